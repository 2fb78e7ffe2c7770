"""Real runs whose rollouts never drain, and what a kill -9 in flight changes: nothing is lost."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from automap.executor.checkpoints import FinishedResponses
from automap.executor.telemetry.call_records import CallRecord, read_records
from automap.executor.tiny.tasks import count_token, write_prompts
from automap.planner.plan.types import Plan
from tests.executor.run.run_process import RunProcess
from tests.executor.small_plans import Place, small_plan

pytestmark = pytest.mark.many_processes

ITERATIONS, SAVED_EVERY, STALENESS, PROMPTS, RESPONSES = 6, 2, 2, 8, 4
BATCH = PROMPTS * RESPONSES
Start = Callable[..., RunProcess]
Lines = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """One process trains while another one generates."""
    return small_plan(
        "grpo",
        {"actor": Place(0, 1), "reward": None},
        shadow=Place(1, 1),
        staleness=STALENESS,
        continuous=True,
        kl="none",
        prompts_per_iteration=PROMPTS,
        responses_per_prompt=RESPONSES,
        prompt_length={"mean": 3, "max": 4},
        response_length={"mean": 24, "max": 32},
        iterations=ITERATIONS,
    )


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    write_prompts(path, task="count_token", num_prompts=32)
    return path


@pytest.fixture(scope="module")
def start(plan: Plan, prompts: Path) -> Iterator[Start]:
    training = {"optimizer": {"learning_rate": 1e-2}, "micro_batch_tokens": 256}
    settings: dict[str, Any] = {
        "functions": {"reward": {"path": "automap.executor.tiny.tasks:count_token"}},
        "data": {"path": str(prompts)},
        "training": {"default": training},
        "algorithm": {"off_policy_correction": "decoupled_ppo"},
        "rollout": {"max_running_sequences": 8, "steps_per_turn": 4},
        # All are kept, and with them what was finished after the oldest.
        "checkpoint": {"every_iterations": SAVED_EVERY, "keep_last": ITERATIONS},
        "metrics": {"loggers": ["jsonl"]},
        "seed": 3,
    }
    started: list[RunProcess] = []

    def make(folder: Path, *, by_command: bool = False, **changes: Any) -> RunProcess:
        started.append(RunProcess(plan, settings | changes, folder, by_command=by_command))
        return started[-1]

    yield make
    for run in started:
        run.kill_all()


def finished(run: RunProcess) -> dict[int, Lines]:
    """Iteration → the responses that are on the disk for it, by request."""
    kept = FinishedResponses(run.folder / "checkpoints" / "responses")
    return {number: dict(kept.read(number)) for number in range(1, ITERATIONS + 1)}  # type: ignore[arg-type]


def writers(run: RunProcess) -> dict[str, set[int]]:
    """File of an attempt's process → the requests in it, of all iterations."""
    found: dict[str, set[int]] = {}
    for file in (run.folder / "checkpoints" / "responses").rglob("*.jsonl"):
        requests = [json.loads(line)["request"] for line in file.read_text().splitlines()]
        assert len(set(requests)) == len(requests)
        found.setdefault(file.name, set()).update(requests)
    return found


def assert_each_was_trained_on_once(run: RunProcess, prompts: Path) -> None:
    """Every response after the oldest checkpoint, by the scores of what the run trained on."""
    metrics = run.metrics()
    assert [each["training/global_step"] for each in metrics] == list(range(1, ITERATIONS + 1))
    rows = [json.loads(line)["prompt"] for line in prompts.read_text().splitlines()]
    for number, lines in finished(run).items():
        if number <= SAVED_EVERY:
            assert not lines, "a checkpoint holds what they have taught"
            continue
        assert sorted(lines) == list(range((number - 1) * BATCH, number * BATCH))
        scores = count_token(
            [rows[line["prompt_id"]] for line in lines.values()],
            [line["response_tokens"] for line in lines.values()],
        )
        assert metrics[number - 1]["critic/score/mean"] == pytest.approx(mean(scores), rel=1e-5)
        for line in lines.values():
            versions = line["token_versions"]
            assert versions == sorted(versions)
            assert number - 1 - STALENESS <= versions[0]
            assert versions[-1] <= number - 1
            assert len(versions) == len(line["response_tokens"]) == len(line["response_log_probs"])


def overlapping(records: list[CallRecord], one: str, other: str) -> int:
    """Records of a kind during which another kind's ran."""
    others = [each for each in records if each.kind == other]
    return sum(
        any(
            each.start_seconds < there.end_seconds and there.start_seconds < each.end_seconds
            for there in others
        )
        for each in records
        if each.kind == one
    )


@pytest.mark.slow
def test_engines_go_on_while_others_train(start: Start, prompts: Path, tmp_path: Path) -> None:
    run = start(tmp_path)
    assert run.end() == 0, run.log()
    metrics = run.metrics()
    assert_each_was_trained_on_once(run, prompts)
    assert max(each["rollout/staleness_max"] for each in metrics) in range(1, STALENESS + 1)
    assert max(each["rollout/spanning_share"] for each in metrics) > 0
    assert metrics[0]["training/rollout_log_probs_diff_max"] < 1e-4, "of the first weights alone"
    records = read_records(run.folder / "records.jsonl")
    assert overlapping(records, "train", "generate") >= ITERATIONS
    assert overlapping(records, "weight_sync", "generate") == 0
    # One event for the turns of an iteration: a service keeps them.
    events = [each["iteration"] for each in run.events("call") if each["call"] == "actor.generate"]
    assert events == sorted(set(events))
    assert run.processes() == []


@pytest.mark.slow
@pytest.mark.parametrize("which", ["the larger worker", "the other worker", "the controller"])
def test_a_kill_in_flight_loses_no_finished_response(
    start: Start, prompts: Path, tmp_path: Path, which: str
) -> None:
    run = start(tmp_path, by_command=which == "the controller")
    # The checkpoint is whole, the next iteration done, and later ones are in flight.
    saved = tmp_path / "checkpoints" / f"iteration-{SAVED_EVERY:06d}"
    run.wait_until(lambda: saved.exists() and len(finished(run)[SAVED_EVERY + 2]) > 0)
    victim = (
        run.controllers()[0]
        if which == "the controller"
        else run.workers()[which == "the other worker"]
    )
    os.kill(victim, signal.SIGKILL)
    (first,) = writers(run)
    done = len(run.events("iteration"))
    assert done < ITERATIONS - 1, "it was killed too late"
    assert run.end() == 0, run.log()
    logs = " ".join(event["message"] for event in run.events("log"))
    assert f"resuming after iteration {SAVED_EVERY}" in logs
    assert_each_was_trained_on_once(run, prompts)
    by_attempt = writers(run)
    assert len(by_attempt) == 2
    before, after = by_attempt.pop(first), *by_attempt.values()
    assert len(before) > BATCH
    assert not before & after, "what was finished is not generated again"
    assert before | after == set(range(SAVED_EVERY * BATCH, ITERATIONS * BATCH))


@pytest.mark.slow
def test_cancel_in_flight_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    run = start(tmp_path, iterations=10_000)
    run.wait_until(lambda: len(run.events("iteration")) >= 2)
    run.cancel()
    assert run.end(seconds=30) == 130, run.log()
    assert run.processes() == []
    assert run.report()["outcome"]["state"] == "cancelled"
