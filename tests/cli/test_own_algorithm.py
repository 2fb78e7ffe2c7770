"""Specs that name a program of the user's: only the command line reads them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from automap.planner.errors import SpecError
from automap.planner.spec import JobSpec
from automap.service.cli.inputs.files import read_run_settings, read_spec
from automap.service.cli.terminal.failures import BadInputError
from automap.service.schemas.documents import load_document
from tests.cli.commands import call

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = EXAMPLES / "tiny-own-algorithm-cpu.yaml"
PATH = "own_algorithm.py:PROGRAM"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A copy of the example in a folder of its own."""
    for name in (OWN.name, "own_algorithm.py", "tiny-own-algorithm-cpu.run.yaml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    return tmp_path / OWN.name


def change(file: Path, old: str, new: str) -> str:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    return str(file)


def test_a_program_beside_the_spec_is_traced() -> None:
    spec = read_spec(str(OWN))
    assert spec.algorithm is None
    assert spec.dataflow is not None
    assert [each.id for each in spec.dataflow.calls][-1] == "actor.train"


def test_a_module_is_found_too(own: Path) -> None:
    spec = read_spec(change(own, PATH, "automap.planner.dataflow.algorithms.rloo:PROGRAM"))
    assert spec.dataflow == read_spec(str(OWN)).dataflow


def test_a_missing_file_is_told_with_its_place(own: Path, capsys) -> None:
    code, _, err = call(capsys, "plan", change(own, PATH, "else.py:PROGRAM"))
    assert code == 2
    assert f"no file {own.parent / 'else.py'}" in err.replace("\n", "")


def test_other_mistakes_keep_their_fields(own: Path) -> None:
    with pytest.raises(BadInputError) as error:
        read_spec(change(own, "iterations: 3", "iterations: many"))
    assert error.value.lines[0].startswith("workload.iterations: ")
    with pytest.raises(BadInputError, match="either algorithm or dataflow"):
        read_spec(change(own, "iterations: many", "iterations: 3\ndataflow: {calls: []}"))


def test_a_program_that_wants_more_models_is_told(own: Path) -> None:
    with pytest.raises(SpecError, match=r"models\.critic: the algorithm calls this role"):
        read_spec(change(own, PATH, "automap.planner.dataflow.algorithms.ppo:PROGRAM"))


def test_the_service_knows_built_in_names_alone() -> None:
    """So that no request makes it import anything."""
    document = load_document(OWN.read_bytes(), media="yaml")
    with pytest.raises(ValidationError, match=r"algorithm\n  .*names a program of your own"):
        JobSpec.model_validate(document)


def test_settings_name_the_program_of_an_own_dataflow(own: Path) -> None:
    settings = own.with_suffix(".run.yaml")
    spec = read_spec(str(own))
    found = read_run_settings(None, beside=str(own), spec=spec)
    assert found.program == f"{own.parent}/{PATH}"
    change(settings, f"program: {PATH}\n", "")
    with pytest.raises(BadInputError) as error:
        read_run_settings(None, beside=str(own), spec=spec)
    (line,) = error.value.lines
    assert line.startswith("program: the spec is an explicit dataflow")


@pytest.mark.parametrize(
    ("example", "program", "complaint"),
    [
        ("tiny-grpo-cpu", "m:PROGRAM", "program: the spec names the built-in algorithm grpo"),
        ("tiny-own-algorithm-cpu", "PROGRAM", "program: does not name a program"),
    ],
)
def test_a_wrong_program_setting_is_told(
    tmp_path: Path, example: str, program: str, complaint: str
) -> None:
    text = (EXAMPLES / f"{example}.run.yaml").read_text().replace(f"program: {PATH}\n", "")
    (tmp_path / "my.run.yaml").write_text(f"program: {program}\n{text}")
    spec = read_spec(str(EXAMPLES / f"{example}.yaml"))
    with pytest.raises(BadInputError) as error:
        read_run_settings(str(tmp_path / "my.run.yaml"), beside="", spec=spec)
    assert error.value.lines[0].startswith(complaint)
