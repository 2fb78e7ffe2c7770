"""`automap export --into` and `automap advise --write`: what they write, and what they leave."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, call
from tests.helpers.framework_plans import Wanted, plan_of

GRPO = ROOT / "benchmarks" / "launches" / "grpo-7b.sh"
GIVEN = ("--gpu", "h100", "--lengths", "mean=300", "--prompt-lengths", "mean=120")


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    """A launch that can be run, with line ends and a mark of the encoding of another system."""
    path = tmp_path / "job.sh"
    text = GRPO.read_text(encoding="utf-8").replace("\n", "\r\n").removesuffix("\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    path.chmod(0o750)
    return path


def plan_in(folder: Path, wanted: Wanted) -> str:
    path = folder / "plan.json"
    path.write_text(plan_of(wanted).model_dump_json(by_alias=True), encoding="utf-8")
    return str(path)


def test_an_imported_launch_takes_its_own_plan_byte_for_byte(
    capsys: pytest.CaptureFixture[str], launch: Path, tmp_path: Path
) -> None:
    before = launch.read_bytes()
    assert call(capsys, "import", str(launch), *GIVEN, "--out", str(tmp_path))[0] == 0
    files = [str(tmp_path / name) for name in ("spec.yaml", "placement.json", "plan.json")]
    assert call(capsys, "estimate", *files[:2], "--output", files[2])[0] == 0
    new = tmp_path / "new.sh"
    code, out, err = call(capsys, "export", files[2], "--into", str(launch), "--out", str(new))
    assert (code, out, err) == (0, "", f"{new}: nothing to change\n")
    assert new.read_bytes() == launch.read_bytes() == before
    assert new.stat().st_mode & 0o777 == 0o750


def test_a_plan_changes_its_settings_and_the_file_only_where_it_is_named(
    capsys: pytest.CaptureFixture[str], launch: Path, tmp_path: Path
) -> None:
    before = launch.read_bytes()
    plan = plan_in(tmp_path, Wanted(model="qwen2.5-1.5b", num_nodes=1, engine="fsdp"))
    code, out, err = call(capsys, "export", plan, "--into", str(launch))
    assert code == 0
    assert "data.train_batch_size=256 \\\r\n" in out
    assert f"{launch}: " in err
    assert "the plan is made for qwen2.5-1.5b" in err
    assert "added at the command's end" in err
    assert launch.read_bytes() == before
    code, out, err = call(capsys, "export", plan, "--into", str(launch), "--json")
    assert "data.train_batch_size" in json.loads(out)["changed"]
    code, out, err = call(capsys, "export", plan, "--into", str(launch), "--out", str(launch))
    assert (code, out) == (0, "")
    assert b"data.train_batch_size=256" in launch.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["job.sh", "plan.json"]


@pytest.mark.slow
def test_advice_is_written_into_another_file(
    capsys: pytest.CaptureFixture[str], launch: Path, tmp_path: Path
) -> None:
    before, new = launch.read_bytes(), tmp_path / "new.sh"
    arguments = ("advise", str(launch), *GIVEN)
    code, out, err = call(capsys, *arguments, "--write", str(new), "--json")
    assert code == 0
    found = json.loads(out)
    assert launch.read_bytes() == before
    assert f"{new}: " in err
    code, out, _ = call(capsys, "import", str(new), *GIVEN, "--json")
    assert json.loads(out)["plan"]["iteration_seconds"] == found["together_seconds"]


def test_what_cannot_be_written_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str],
    launch: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_in(tmp_path, Wanted(model="qwen2.5-7b", num_nodes=1, engine="fsdp"))
    arguments = ("export", plan, "--into", str(launch))
    for output, words in ((str(tmp_path), "it is a folder"), ("no/such/x.sh", "no folder")):
        code, out, err = call(capsys, *arguments, "--out", output)
        assert (code, out) == (2, "")
        assert words in err
    before = launch.read_bytes()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    code, out, err = call(capsys, *arguments, "--out", str(launch))
    assert (code, out) == (2, "")
    assert "No space left" in err
    assert launch.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["job.sh", "plan.json"]


def test_options_of_a_launch_need_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = plan_in(tmp_path, Wanted())
    code, out, err = call(capsys, "export", plan, "--set", "N=1")
    assert (code, out) == (2, "")
    assert "--into FILE" in err


def test_a_plan_that_verl_cannot_run_is_refused_also_for_a_launch(
    capsys: pytest.CaptureFixture[str], launch: Path, tmp_path: Path
) -> None:
    plan = plan_in(tmp_path, Wanted(workload=(("precision", "fp16"), ("epochs", 2)), apart=True))
    code, out, err = call(capsys, "export", plan, "--into", str(launch))
    assert (code, out) == (2, "")
    assert "--nearest" in err
