"""`automap compare --targets`: each target's best plan, what its limits cost, what it lacks."""

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


def test_every_target_has_a_row(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    code, out, _ = call(capsys, "compare", spec_file, "--targets", "all")
    assert code == 0
    rows = [line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")]
    assert [row for row in rows[:4] if row != "target"][:2] == ["automap", "verl@0.9.1"]
    assert "slime@0.3.1 cannot be told:" in out
    assert "openrlhf@0.11.2 cannot be told:" in out
    assert "trl@1.16.0 cannot be told:" in out
    assert "skyrl@0.3.0 cannot be told:" in out
    assert "areal@1.0.4 cannot be told:" in out
    code, out, _ = call(capsys, "compare", spec_file, "--targets", "automap, slime@0.3.1", "--json")
    found = json.loads(out)
    assert [each["target"] for each in found] == ["automap", "slime@0.3.1"]
    assert found[0]["iteration_seconds"] > 0
    assert found[0]["share"] >= 0
    assert any("epochs" in each for each in found[1]["cannot_be_told"])


def test_what_is_no_target_is_refused(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    code, _, err = call(capsys, "compare", spec_file, "--targets", "slime")
    assert code == 2
    assert "slime@0.3.1" in err
    code, _, err = call(capsys, "compare", spec_file, "--targets", "all", "--strategy", "split")
    assert code == 2
    assert "two comparisons" in err
