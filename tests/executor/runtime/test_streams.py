"""Responses that are scored while others are generated, on threads in place of processes."""

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from automap.executor.batch import Batch
from automap.executor.errors import CallFailedError, CallTimeoutError, RunCancelledError
from automap.executor.run.recording import CallEvents
from automap.executor.runtime.controller import Controller, run_iterations
from automap.executor.runtime.finished_calls import FinishedCall, FinishedIteration
from automap.executor.runtime.handles import RunningHandle, Sequences
from automap.executor.runtime.planned import streamed_calls
from automap.executor.runtime.streams import Stream
from automap.executor.settings import DataSettings, FunctionSettings, RolloutSettings, RunSettings
from automap.planner.plan.types import Plan
from tests.executor.runtime import threads
from tests.executor.small_plans import Place, small_plan

ITERATIONS = 3
LENGTHS = {"response_length": {"mean": 3, "max": threads.LONGEST}}
SCORED = {
    "ppo": {"critic": Place(2, 1), "reference": Place(4, 2)},
    "grpo": {"reference": Place(2, 1)},
    "remax": {"reference": Place(2, 1)},
    "dapo": {"reference": Place(2, 1)},
    "rloo": {"reference": Place(2, 2)},
    "safe_rlhf": {
        "critic": Place(2, 1),
        "reference": Place(3, 1),
        "cost": None,
        "cost_critic": Place(4, 1),
    },
}
Run = tuple[dict[str, Tensor], list[FinishedIteration]]


@pytest.fixture(autouse=True)
def no_weights_come_while_it_generates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.TableRollout, "awaits_weights", False)


def plan_of(algorithm: str, *, chunks: int = 4, **changes: Any) -> Plan:
    """The actor trains on device 0 and generates on 1, or where `shadow` says."""
    roles = {"actor": Place(0, 1), **SCORED[algorithm], "reward": None}
    given = {"shadow": Place(1, 1), "kl": "reward", "iterations": ITERATIONS, **LENGTHS}
    return small_plan(algorithm, roles, stream_chunks=chunks, **given | changes)


def controller(
    plan: Plan, *, timeout_seconds: float = 20, cancel: threading.Event | None = None
) -> Controller:
    functions = {
        role: FunctionSettings(path=f"tests.executor.runtime.threads:{name}")
        for role, name in (("reward", "score"), ("cost", "cost"))
        if role in plan.spec.models
    }
    settings = RunSettings(
        data=DataSettings(path=Path("unused")),
        functions=functions,
        rollout=RolloutSettings(steps_per_turn=1),
        call_timeout_seconds=timeout_seconds,
    )
    return Controller(plan, settings, factories=threads.FACTORIES, cancel=cancel)


def run(plan: Plan, *, seed: int = 0, **limits: Any) -> Run:
    """The weights of every role that trains, and the iterations."""
    with threads.without_ray(seed), controller(plan, **limits) as running:
        finished = run_iterations(running, threads.Prompts())
        weights = {}
        for role, group in running._trained().items():
            (process,) = group.processes.processes
            weights[role] = process._process._workers[role].engine.weights.table.detach()
        return weights, finished


def equal(one: Run, other: Run) -> bool:
    """Whether weights and what was measured of the rollouts are the same to the bit."""
    assert one[0].keys() == other[0].keys()
    metrics = [[each.rollout_metrics for each in run[1]] for run in (one, other)]
    return metrics[0] == metrics[1] and all(
        torch.equal(one[0][role], other[0][role]) for role in one[0]
    )


def calls_of(iteration: FinishedIteration, call: str) -> list[FinishedCall]:
    return [each for each in iteration.calls if each.name.id == call]


def streamed(plan: Plan) -> list[str]:
    return [call.id for call in plan.calls if call.streamed_from]


def num_chunks(plan: Plan) -> int:
    return streamed_calls(plan)["actor.generate"].num_chunks


def takers(plan: Plan) -> frozenset[str]:
    return streamed_calls(plan)["actor.generate"].takers


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(each, marks=() if each == "remax" else pytest.mark.slow)
        for each in SCORED
        if each != "dapo"
    ],
)
def test_a_streamed_run_is_the_one_without_streams_to_the_bit(algorithm: str) -> None:
    plan, whole = plan_of(algorithm), plan_of(algorithm, chunks=0)
    assert "reference.forward" in streamed(plan)
    assert streamed(whole) == []
    found = run(plan)
    assert equal(found, run(plan, seed=1))
    assert equal(found, run(whole))
    for iteration in found[1]:
        for call in streamed(plan):
            assert len(calls_of(iteration, call)) == num_chunks(plan) > 2


def test_responses_are_scored_before_the_last_has_ended() -> None:
    plan = plan_of("grpo")
    for iteration in run(plan)[1]:
        (generation,) = calls_of(iteration, "actor.generate")
        scored = calls_of(iteration, "reference.forward")
        assert [each.num_rows for each in scored] == [4, 4, 4, 3]
        assert sum(each.started < generation.ended for each in scored) >= 2
        assert sum(each.ended < generation.ended for each in scored) >= 1
        for other in ("actor.train", "reward.forward"):
            assert all(each.started >= generation.ended for each in calls_of(iteration, other))


@pytest.mark.parametrize(
    "changes",
    [
        {"shadow": None},
        {"shadow": Place(6, 2)},
        {"shadow": Place(4, 4), "prompts_per_iteration": 2},
        {"staleness": 1, "barrier": False, "old_log_probs": "rollout"},
        {"chunks": 15},
        {"chunks": 64},
    ],
    ids=["at home", "two replicas", "an idle replica", "overlapped", "one by one", "too many"],
)
def test_any_generation_may_be_streamed(changes: dict[str, Any]) -> None:
    plan = plan_of("grpo", **changes)
    assert "reference.forward" in streamed(plan)
    whole = run(plan_of("grpo", **changes | {"chunks": 0}))
    assert equal(run(plan), whole)


def test_what_fails_in_a_turn_is_named_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, count = threads.TableRollout.turn, itertools.count(1)

    def broken(self: threads.TableRollout, *args: Any, **given: Any) -> Batch | None:
        if next(count) == 3:
            raise ValueError("no such token")
        return turn(self, *args, **given)

    monkeypatch.setattr(threads.TableRollout, "turn", broken)
    message = r"actor\.generate.*failed on its only rank: ValueError: no such token"
    with pytest.raises(CallFailedError, match=message):
        run(plan_of("grpo"))


def test_the_time_limit_is_of_all_turns_together(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = threads.TableRollout.turn

    def slow(self: threads.TableRollout, *args: Any, **given: Any) -> Batch | None:
        time.sleep(0.4)  # at least three turns
        return turn(self, *args, **given)

    monkeypatch.setattr(threads.TableRollout, "turn", slow)
    with pytest.raises(CallTimeoutError, match=r"actor\.generate"):
        run(plan_of("grpo"), timeout_seconds=0.7)


def test_a_run_is_cancelled_between_two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, cancel, count = threads.TableRollout.turn, threading.Event(), itertools.count(1)

    def cancelled(self: threads.TableRollout, *args: Any, **given: Any) -> Batch | None:
        if next(count) == 2:
            cancel.set()
            time.sleep(0.3)  # whoever waits looks every tenth of a second
        return turn(self, *args, **given)

    monkeypatch.setattr(threads.TableRollout, "turn", cancelled)
    with pytest.raises(RunCancelledError):
        run(plan_of("grpo"), cancel=cancel)


def test_what_is_drawn_until_groups_are_mixed_is_not_streamed() -> None:
    """Which responses count is known when all have been scored."""
    assert streamed(plan_of("dapo")) == []


def test_a_chunk_has_a_micro_batch_for_every_rank() -> None:
    """15 responses; a micro-batch has 2, and the reference of rloo two data-parallel ranks."""
    assert num_chunks(plan_of("grpo", chunks=64)) == 7
    assert num_chunks(plan_of("rloo", chunks=64)) == 3
    assert num_chunks(plan_of("rloo", chunks=2)) == 2


def test_a_copy_that_would_load_its_weights_for_every_chunk_waits_for_all() -> None:
    plan = plan_of("ppo")
    copies = [
        copy.model_copy(update={"offload": "weights"}) if copy.id == "reference" else copy
        for copy in plan.copies
    ]
    waiting = plan.model_copy(update={"copies": copies})
    assert takers(plan) - takers(waiting) == {"reference.forward"}


def test_fewer_responses_than_chunks_are_an_error_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a program of one's own that generates from a part of the prompts."""
    stream = RunningHandle._stream

    def short(self: RunningHandle, prompts: Sequences, *args: Any, **given: Any) -> Stream:
        first = Sequences(prompts.rows.map(lambda rows: rows.slice(0, 1)))
        return stream(self, first, *args, **given)

    monkeypatch.setattr(RunningHandle, "_stream", short)
    message = r"actor\.generate has 3 responses, too few for the 4 chunks .*stream_chunks"
    with pytest.raises(CallFailedError, match=message):
        run(plan_of("grpo"))


def test_chunks_of_a_call_are_one_event() -> None:
    """Who watches compares its seconds with those that are planned for the whole call."""

    class Sent:
        def __init__(self) -> None:
            self.events: list[dict[str, Any]] = []

        def send(self, kind: str, **fields: Any) -> None:
            self.events.append(fields)

    plan, sent = plan_of("grpo"), Sent()
    events = CallEvents(plan, sent)  # type: ignore[arg-type]
    for iteration in run(plan)[1]:
        events.iteration, sent.events[:] = iteration.number, []
        for call in iteration.calls:
            events(call)
        ids = [each["call"] for each in sent.events]
        assert sorted(ids) == sorted(set(ids)), "one event a call"
        (scored,) = [each for each in sent.events if each["call"] == "reference.forward"]
        parts = calls_of(iteration, "reference.forward")
        assert scored["seconds"] == pytest.approx(sum(each.seconds for each in parts), abs=1e-5)
