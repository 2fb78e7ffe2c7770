"""What a kill costs a run: what counts as finished when it comes."""

import json
from pathlib import Path

import pytest

pytest.importorskip("ray")

from benchmarks.recovery import SAVED_EVERY, finished, planned


def test_a_response_is_finished_once_its_line_is_whole(tmp_path: Path) -> None:
    for iteration, requests in ((4, (96, 97)), (5, (130,))):
        folder = tmp_path / "checkpoints" / "responses" / f"iteration-{iteration:06d}"
        folder.mkdir(parents=True)
        lines = "".join(json.dumps({"request": each}) + "\n" for each in requests)
        (folder / "first-0.jsonl").write_text(lines)
    (folder / "second-0.jsonl").write_text('{"request": 131}\n{"request": 13')
    found = finished(tmp_path)
    assert {name: sorted(requests) for name, requests in found.items()} == {
        "first-0.jsonl": [96, 97, 130],
        "second-0.jsonl": [131],
    }


def test_a_job_keeps_what_its_oldest_checkpoint_needs() -> None:
    plan, settings = planned("continuous")
    assert plan.spec.search.continuous_rollouts
    assert settings.checkpoint.every_iterations == SAVED_EVERY
    assert settings.iterations is not None
    assert settings.checkpoint.keep_last * SAVED_EVERY >= settings.iterations
