"""A file that another command takes: each command says what it is, and which one that is."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, TWO_NODES, call
from tests.helpers.framework_plans import Wanted, plan_of

LAUNCHES = ROOT / "benchmarks" / "launches"
GIVEN = ("--gpu", "h100", "--lengths", "mean=300", "--prompt-lengths", "mean=120")


@pytest.mark.parametrize("command", ["plan", "export", "targets"])
@pytest.mark.parametrize(
    ("name", "what"),
    [("grpo-7b.sh", "a shell script"), ("config-b.yaml", "a configuration of another framework")],
)
def test_a_launch_given_as_a_job_is_named(
    capsys: pytest.CaptureFixture[str], command: str, name: str, what: str
) -> None:
    file = str(LAUNCHES / name)
    code, out, err = call(capsys, command, file)
    assert (code, out) == (2, "")
    assert f"{file}: this is {what}" in err
    assert f"automap import {file} --gpu NAME" in err


def test_a_job_or_a_plan_given_as_a_launch_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = plan_of(Wanted())
    files = {
        "plan.json": (plan.model_dump_json(by_alias=True), "a plan", "automap export"),
        "spec.yaml": (TWO_NODES, "a job spec", "automap plan"),
        "spec.json": (json.dumps(plan.spec.model_dump(mode="json")), "a job spec", "automap plan"),
        "placement.json": (
            plan.placement().model_dump_json(by_alias=True),
            "a placement",
            "automap estimate SPEC",
        ),
    }
    for name, (text, what, command) in files.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        for given in (("import", str(path)), ("advise", str(path))):
            code, out, err = call(capsys, *given, *GIVEN)
            assert (code, out) == (2, "")
            assert f"{path}: this is {what}, not a launch" in err
            assert f"{command} {path}" in err
