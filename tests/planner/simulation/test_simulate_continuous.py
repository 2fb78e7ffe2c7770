"""Continuous generation request by request, beside the closed form that the price is.

Where engines are full both agree within 4 %. Where batches wait for a response that would be too
old, or nearly do, the replay is at most 7 % slower than the price, and often much faster: the price
then takes responses to begin anywhere while a batch fills, and they begin when new weights come.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest

from automap.planner.check.subject import Subject
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import ContinuousReport, Plan
from automap.planner.planning import make_plan
from automap.planner.simulation.continuous import replayed
from automap.planner.simulation.report import simulate
from automap.planner.simulation.requests import Batches
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job

FULL, WAITING = 0.04, 0.07
BATCHES, SKIP = 16, 6
REWARD = {"function": True, "seconds_per_response": 1e-3, "concurrency": 64}


def job(staleness: int, *, keeps: bool = False, **changes: Any) -> JobSpec:
    search = {"target": "any", "staleness": staleness, "continuous_rollouts": True}
    values = {
        "models__reward": REWARD,
        "workload__kl": "none",
        "workload__prompts_per_iteration": 128,
        "workload__responses_per_prompt": 4,
        "workload__response_length": {"mean": 512, "max": 2048},
        "search": {**search, "keep_cache_at_sync": keeps},
    }
    return small_job(**(values | changes))


@cache
def planned(staleness: int, keeps: bool, which: str) -> Plan:
    return make_plan(job(staleness, keeps=keeps, **CHANGES[which]))


CHANGES: dict[str, dict[str, Any]] = {
    "groups": {},
    "pairs": {"workload__prompts_per_iteration": 256, "workload__responses_per_prompt": 2},
    "equal": {"workload__response_length": {"mean": 512, "max": 512}},
    "turns": {"workload__turns": 3, "workload__environment_seconds_per_turn": 1.0},
}


def run(plan: Plan, **training: float) -> tuple[ContinuousReport, Batches]:
    subject = Subject(resolve(plan.spec), plan)
    call = next(each for each in plan.calls if each.kind == "generate")
    assert plan.continuous is not None
    rng = np.random.default_rng(1)
    steady = plan.continuous
    return steady, replayed(subject, call, steady, batches=BATCHES, rng=rng, **training)


@pytest.mark.parametrize("which", ["groups", "pairs"])
@pytest.mark.parametrize("keeps", [False, True])
def test_full_engines_take_what_the_price_says(which: str, keeps: bool) -> None:
    plan = planned(12, keeps, which)
    steady, out = run(plan)
    assert steady.least_full_staleness is None or steady.least_full_staleness <= 12
    assert out.seconds_per_batch(skip=SKIP) == pytest.approx(steady.seconds, rel=FULL)


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [2, 4, 8])
@pytest.mark.parametrize("which", ["groups", "pairs", "equal", "turns"])
def test_the_price_of_waiting_is_no_less_than_what_is_waited(staleness: int, which: str) -> None:
    steady, out = run(planned(staleness, True, which))
    found = out.seconds_per_batch(skip=SKIP)
    assert found <= steady.seconds * (1 + WAITING)
    assert found >= 0.4 * steady.seconds


@pytest.mark.parametrize("staleness", [2, 4, 12])
def test_no_response_is_older_than_the_staleness(staleness: int) -> None:
    steady, out = run(planned(staleness, True, "groups"))
    assert out.oldest <= staleness
    assert out.most_admitted <= steady.admitted_responses


def test_a_trainer_that_keeps_pace_changes_nothing_and_a_slow_one_sets_the_period() -> None:
    plan = planned(4, True, "groups")
    assert plan.continuous is not None
    seconds = plan.continuous.seconds
    steady, fast = run(plan, train_seconds=0.9 * seconds)
    _, alone = run(plan)
    least, found = (each.seconds_per_batch(skip=SKIP) for each in (alone, fast))
    assert (1 - WAITING) * least <= found <= (1 + WAITING) * seconds
    _, slow = run(plan, train_seconds=2.0 * seconds)
    assert slow.seconds_per_batch(skip=SKIP) == pytest.approx(2.0 * seconds, rel=0.1)
    for each in (fast, slow):
        assert each.oldest <= 4
        assert each.most_admitted <= steady.admitted_responses


@pytest.mark.parametrize("staleness", [2, 4, 8])
def test_what_waits_for_nothing_takes_what_the_price_says(staleness: int) -> None:
    nodes = [pool(2, gpu="h100", gpus_per_node=8)]
    search = {"target": "areal@1.0.4", "staleness": staleness}
    plan = make_plan(job(staleness, search=search, cluster__pools=nodes))
    steady, out = run(plan)
    # Admission comes in bursts, with weights, and training holds less than its whole batch.
    assert out.seconds_per_batch(skip=SKIP) == pytest.approx(steady.seconds, rel=WAITING)
    assert out.most_admitted <= steady.admitted_responses
    assert out.oldest > staleness


@pytest.mark.slow
def test_a_simulated_plan_replays_its_requests() -> None:
    plan = planned(12, False, "groups")
    found, _ = simulate(plan, iterations=6, seed=3)
    again, _ = simulate(plan, iterations=6, seed=3)
    assert found == again
    assert found.iteration_seconds.mean == pytest.approx(plan.iteration_seconds, rel=0.1)
    call = next(each for each in found.calls if "actor.generate" in each.name)
    assert call.seconds.lowest < call.seconds.highest
