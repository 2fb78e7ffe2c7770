"""Iterations of a plan with staleness, over calls that take what chance says: no old rollouts."""

import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future as Pending
from functools import partial
from typing import Any

import pytest
import torch

from automap.executor.batch import Batch
from automap.executor.errors import RunError
from automap.executor.runtime.blame import CallName
from automap.executor.runtime.finished_calls import FinishedCall
from automap.executor.runtime.placement import Device
from automap.executor.runtime.plan_order import PlannedCall
from automap.executor.runtime.planned import iterations_ahead, planned_calls
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future, Task
from automap.executor.runtime.versions import Versions
from automap.executor.workers.row_references import Rows, fetch, inline
from tests.executor.runtime.test_scheduler import Reference, reply
from tests.executor.small_plans import Place, small_plan

ITERATIONS = 8
ROWS = inline(Batch({"prompt_id": torch.arange(3)}))


class Chance:
    """Runs the calls of a plan's iterations, each for up to ten milliseconds."""

    def __init__(self, planned: list[PlannedCall], versions: Versions, seed: int) -> None:
        self.devices = {call.id: call.devices for call in planned}
        self.planned, self.versions = planned, versions
        self.seconds = random.Random(seed)
        self.scheduler = Scheduler(on_record=versions.ended)

    def call(self, name: str, *inputs: Future[Any]) -> Future[Any]:
        seconds = self.seconds.choice([0.0, 0.001, 0.01])

        def start() -> Mapping[int, Any]:
            pending: Pending[Any] = Pending()
            threading.Timer(seconds, lambda: pending.set_result(reply())).start()
            return {0: Reference(pending)}

        role, method = name.split(".")
        return self.scheduler.submit(
            Task(CallName(name, role, method), self.devices[name], inputs, start, lambda _: ROWS)
        )

    def begin(self, number: int) -> Future[int]:
        """GRPO's calls; how old the rollout was."""
        self.scheduler.enter(number)
        self.call("actor.sync")
        rollout = self.call("actor.generate")
        reference = self.call("reference.forward", rollout)
        rewards = self.call("reward.forward", rollout)
        found = self.scheduler.derive(
            lambda rows, *_: self.versions.check(rows, iteration=number),
            rollout.map(partial(self.versions.marked, iteration=number, call_id="actor.generate")),
            reference,
            rewards,
        )
        self.call("actor.train", found)
        self.scheduler.expect((), number)
        return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("staleness", [0, 1, 2, 4])
def test_the_plans_order_holds_and_no_rollout_is_older_than_it_allows(
    staleness: int, seed: int
) -> None:
    home = {"actor": Place(0, 2), "reference": Place(0, 1), "reward": None}
    plan = small_plan(
        "grpo",
        home,
        shadow=Place(2, 2),
        staleness=staleness,
        kl="loss",
        old_log_probs="rollout",
    )
    planned = planned_calls(plan)
    ahead = iterations_ahead(planned)
    chance = Chance(planned, Versions(staleness, {"actor": "actor.shadow"}), seed)
    found: list[Future[int]] = []
    try:
        for number in range(1, ITERATIONS + 1):
            chance.scheduler.expect(planned, number)
        for number in range(1, ITERATIONS + 1):
            while len(found) < min(number + ahead, ITERATIONS):
                found.append(chance.begin(len(found) + 1))
            chance.scheduler.leave(number)
            assert found[number - 1].done()
            time.sleep(0.005)  # what is done with a finished iteration
        ages = [each.result() for each in found]
    finally:
        chance.scheduler.close()
    assert max(ages) <= staleness
    assert (max(ages) > 0) == (staleness > 0)
    records = chance.scheduler.take_records()
    for device in frozenset().union(*(each.devices for each in planned)):
        here = sorted((each for each in records if device in each.devices), key=_started)
        assert [(each.iteration, each.name.id) for each in here] == [
            (number, each.id) for _, number, each in _in_order(planned) if device in each.devices
        ]


def _started(call: FinishedCall) -> float:
    return call.started


def _in_order(planned: list[PlannedCall]) -> list[tuple[tuple[int, float], int, PlannedCall]]:
    """Place, iteration and call of all iterations."""
    every = [
        ((number + each.stage, each.start_seconds), number, each)
        for number in range(1, ITERATIONS + 1)
        for each in planned
    ]
    return sorted(every, key=lambda each: each[0])


def test_a_rollout_that_is_too_old_ends_the_run() -> None:
    versions = Versions(1, {"actor": "actor.shadow"})
    versions.begin(3)
    for name, iteration in (("sync", 4), ("generate", 6), ("train", 4), ("train", 5)):
        versions.ended(_ended(f"actor.{name}", iteration))
    rows = versions.marked(ROWS, iteration=6, call_id="actor.generate")
    assert fetch(rows).tensor("weights_version").tolist() == [3, 3, 3]
    assert versions.check(rows, iteration=5) == 1
    newer = ROWS.merge(inline(Batch({"weights_version": torch.tensor([4, 5, 5])})))
    assert versions.check(newer, iteration=6) == 1
    mixed = Rows.concatenate([newer, rows])
    with pytest.raises(RunError, match="iteration 6 would train on a rollout that is 2 iterations"):
        versions.check(mixed, iteration=6)
    with pytest.raises(RunError, match="iteration 4 would train on a rollout that is -2 iteration"):
        versions.check(newer, iteration=4)


def _ended(name: str, iteration: int) -> FinishedCall:
    now = time.monotonic()
    role, method = name.split(".")
    devices = frozenset([Device("cpu", 0)])
    return FinishedCall(
        CallName(name, role, method), devices, now, now, now, (), None, None, iteration
    )
