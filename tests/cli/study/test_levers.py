"""`automap levers`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.helpers.small_jobs import small_job


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    path.write_text(small_job().model_dump_json(by_alias=True), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_each_change_is_a_row_with_gain_seconds_and_price(
    capsys: pytest.CaptureFixture[str], spec_file: str
) -> None:
    code, out, err = call(capsys, "levers", spec_file, "--target", "automap", "--quiet")
    assert (code, err) == (0, "")
    assert "automap: " in out
    assert "verl" not in out
    assert "search.staleness: 1" in out
    assert "use 2 nodes in pool a100, 1 now; cost: see the price" in " ".join(out.split())


@pytest.mark.slow
def test_json_has_what_is_printed(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    code, out, _ = call(capsys, "levers", spec_file, "--target", "verl@0.9.1", "--json")
    (found,) = json.loads(out)
    assert (code, found["target"]) == (0, "verl@0.9.1")
    assert all(each["risk"] for each in found["levers"])


def test_an_unknown_target_is_refused(capsys: pytest.CaptureFixture[str], spec_file: str) -> None:
    code, out, err = call(capsys, "levers", spec_file, "--target", "verl@9")
    assert (code, out) == (2, "")
    assert "verl@0.9.1" in err
