"""`automap compare --schedules`: three plans of a job in one table."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.helpers.small_jobs import small_job


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    spec = small_job("grpo").model_dump(mode="json", by_alias=True, exclude_unset=True)
    path.write_text(json.dumps(spec), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_every_schedule_has_a_row(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    code, out, _ = call(capsys, "compare", spec_file, "--schedules")
    assert code == 0
    rows = [line.split("  ")[0] for line in out.splitlines()]
    assert [row for row in rows if row in ("synchronous", "one step off", "continuous")] == [
        "synchronous",
        "one step off",
        "continuous",
    ]
    assert "continuous: a replica runs" in out
    code, out, _ = call(capsys, "compare", spec_file, "--schedules", "--json")
    found = json.loads(out)
    assert [each["staleness"] for each in found] == [0, 1, 4]
    assert found[2]["plan"]["continuous"]["training_slack"] == 2
    assert found[2]["times_faster"] > 0


def test_it_is_a_comparison_of_its_own(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    code, _, err = call(capsys, "compare", spec_file, "--schedules", "--targets", "all")
    assert code == 2
    assert "comparison of its own" in err


def test_a_job_without_any_plan_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "spec.json"
    large = {"architecture": "llama-3.1-405b"}
    models = dict.fromkeys(("actor", "reference", "reward"), large)
    spec = small_job("grpo", models=models).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    path.write_text(json.dumps(spec), encoding="utf-8")
    code, out, err = call(capsys, "compare", str(path), "--schedules")
    assert (code, out) == (2, "")
    assert "no schedule has a plan" in err
    assert err.count("one step off: ") == 1
