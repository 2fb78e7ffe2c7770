"""`automap examples`: what is listed, what is copied, and that a copy can be planned."""

import json

import pytest

from automap.service.cli.inputs import examples
from automap.service.cli.inputs.files import read_run_settings, read_spec
from tests.cli.commands import call


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_example_is_listed_in_a_line_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = call(capsys, "examples")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == len(examples.names()) + 2
    assert "remax-70b-128xa100" in out
    assert "own_algorithm.py: 1 tiny-llama on 2 cpu" in out
    assert "ppo: 4 llama-2-70b on 1,024 a100-80gb-sxm" in out
    code, out, _ = call(capsys, "examples", "--json")
    assert [each["name"] for each in json.loads(out)] == list(examples.names())
    assert all(each["about"] and each["models"] and each["gpus"] for each in json.loads(out))


@pytest.mark.parametrize("name", examples.names())
def test_a_copy_has_everything_that_it_needs(capsys, elsewhere, name):
    code, out, err = call(capsys, "examples", name, "--json")
    assert (code, err) == (0, "")
    files = json.loads(out)["files"]
    assert sorted(files) == sorted(
        str(file.relative_to(elsewhere)) for file in elsewhere.rglob("*") if file.is_file()
    )
    spec = read_spec(f"{name}.yaml")
    if f"{name}.run.yaml" in files:
        settings = read_run_settings(None, beside=f"{name}.yaml", spec=spec)
        assert str(settings.data.path).startswith(str(elsewhere))


def test_a_copy_never_overwrites_unless_it_is_told_to(capsys, elsewhere):
    assert call(capsys, "examples", "tiny-ppo-cpu", "--to", "job.yaml")[0] == 0
    assert (elsewhere / "job.run.yaml").is_file()
    # What is there already as it should be is no obstacle.
    assert call(capsys, "examples", "tiny-ppo-cpu", "--to", "job.yaml")[0] == 0
    (elsewhere / "job.run.yaml").write_text("mine", encoding="utf-8")
    code, _, err = call(capsys, "examples", "tiny-ppo-cpu", "--to", "job.yaml")
    assert code == 2
    assert "not overwritten: job.run.yaml" in err
    assert (elsewhere / "job.run.yaml").read_text(encoding="utf-8") == "mine"
    assert call(capsys, "examples", "tiny-ppo-cpu", "--to", "job.yaml", "--force")[0] == 0
    assert (elsewhere / "job.run.yaml").read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["examples", "tiny-pppo-cpu"], "did you mean tiny-ppo-cpu"),
        (["examples", "tiny-remax"], "did you mean tiny-remax-cpu?"),
        (["examples", "zzz"], "automap examples lists them"),
        (["examples", "--force"], "say which example"),
        (["examples", "tiny-ppo-cpu", "--to", "examples.py/x"], "cannot write"),
        (["plan", "tiny-ppo-cpu"], "automap examples tiny-ppo-cpu copies the example to here"),
        (["plan", "examples/tiny-ppo-cpu.yaml"], "automap examples tiny-ppo-cpu copies"),
        (["plan", "none.yaml"], "error: cannot read none.yaml: there is no such file"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(capsys, elsewhere, words, told):
    (elsewhere / "examples.py").write_text("text", encoding="utf-8")
    code, _, err = call(capsys, *words)
    assert code == 2
    assert told in " ".join(err.split())
