"""Plans with continuous rollouts: the best of all pairs of ranges, by a loop over the rows."""

from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from automap.planner.check.check import violations
from automap.planner.check.subject import Subject, span_of
from automap.planner.cost.memory import fillable_bytes
from automap.planner.errors import SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import ContinuousReport, Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.search import price_candidates
from automap.planner.search.candidates.tables import Tables
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job

SPREAD = {"mean": 512, "max": 2048}
REWARD = {"function": True, "seconds_per_response": 1e-3, "concurrency": 64}


def job(staleness: int = 4, **changes: Any) -> JobSpec:
    search = {"target": "any", "staleness": staleness, "continuous_rollouts": True}
    values = {
        "models__reward": REWARD,
        "workload__prompts_per_iteration": 64,
        "workload__responses_per_prompt": 4,
        "workload__response_length": SPREAD,
        "workload__kl": "none",
        "search": search,
    }
    return small_job(**(values | changes))


ROOMY = job(8, workload__prompts_per_iteration=512)
"""Batches that are large beside what engines hold: nothing waits."""


def keeping(staleness: int) -> JobSpec:
    """A job whose weight syncs leave caches as they are."""
    spec = job(staleness)
    search = spec.search.model_copy(update={"keep_cache_at_sync": True})
    return spec.model_copy(update={"search": search})


def least_period(found: Job, tables: Tables) -> float:
    """The least period of all pairs of a home and a shadow that fit beside each other.

    With the generation alone on its GPUs all that can bind are the two ranges, and the chain from a
    weight sync to the next, which may span a period more than training's slack.
    """
    homes = {t.role: n for n, t in enumerate(tables.copies) if t.shadow_of is None}
    shadow = next(n for n, t in enumerate(tables.copies) if t.shadow_of is not None)
    assert set(homes) == {"actor"}
    slack = found.training_slack
    fixed = sum(call.fixed_seconds or 0.0 for call in found.dataflow.calls)
    best = float("inf")
    sides = [_sides(found, tables, homes["actor"]), _sides(found, tables, shadow)]
    for (home, trains), (rolls, generates) in product(*sides):
        if home[0] == rolls[0] and home[1] + rolls[1] > found.pools[home[0]].usable_gpus:
            continue
        sync = max(home[2], rolls[2])
        chain = (generates + fixed + trains + sync) / (1 + slack)
        best = min(best, max(trains + sync, generates + sync, chain))
    return best


def _sides(found: Job, tables: Tables, copy: int) -> list[tuple[tuple[int, int, float], float]]:
    """((pool, GPUs, seconds of a sync), least seconds of all its calls) of every layout."""
    held = tables.copies[copy]
    sides = []
    for row in range(len(held)):
        room = fillable_bytes(
            found.pools[int(held.pool[row])],
            max_out_of_memory_probability=found.max_out_of_memory_probability,
        ) - int(held.resident_bytes[row])
        total = 0.0
        for table in (t for t in tables.calls if t.copy == copy and len(t.seconds)):
            fits = (table.copy_row == row) & (table.transient_bytes <= room)
            total += float(table.seconds[fits].min()) if fits.any() else np.inf
        if total < np.inf:
            key = int(held.pool[row]), int(held.layouts.num_gpus[row]), held.sync_seconds[row]
            sides.append((key, total))
    return sides


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        job(),
        job(2, cluster__pools=[pool(2)]),
        job(6, cluster__pools=[pool(1), pool(1, name="h100", gpu="h100-80gb-sxm")]),
        job(3, workload__turns=3, workload__environment_seconds_per_turn=2.0),
    ],
    ids=["node", "two nodes", "two pools", "turns"],
)
def test_the_plan_is_the_best_pair_of_ranges(spec: JobSpec) -> None:
    found = resolve(spec)
    plan = make_plan(spec)
    assert plan.search.status == "optimal"
    best = least_period(found, price_candidates(found))
    assert plan.iteration_seconds == pytest.approx(best, rel=1e-5)
    assert violations(found, plan) == []
    _generates_alone(found, plan)


def _generates_alone(found: Job, plan: Plan) -> None:
    subject = Subject(found, plan)
    call = next(each for each in plan.calls if each.kind == "generate")
    copy = subject.copies[call.copy_id or ""]
    assert copy.kind == "shadow"
    assert not any(span_of(o).shares_gpus(span_of(copy)) for o in plan.copies if o.id != copy.id)


def test_a_plan_states_its_steady_state() -> None:
    steady = report(make_plan(job()))
    assert steady.admitted_responses == 5 * 256
    assert (steady.most_in_flight, steady.least_in_flight) == (3 * 256, 2 * 256)
    assert steady.running_per_replica <= steady.slots_per_replica
    assert steady.flight_seconds <= 2.5 * steady.seconds * (1 + 1e-6)


@pytest.mark.slow
def test_more_staleness_never_plans_slower() -> None:
    periods = [make_plan(keeping(staleness)).iteration_seconds for staleness in (1, 2, 4, 8, 16)]
    assert periods[-1] < 0.8 * periods[0]
    assert all(new <= old * (1 + 1e-6) for old, new in pairwise(periods))


def test_the_least_staleness_that_fills_engines_is_the_least() -> None:
    steady = report(make_plan(ROOMY))
    least = steady.least_full_staleness
    assert least is not None
    assert 1 < least < 8
    search = ROOMY.search.model_copy(update={"staleness": least})
    filled = report(make_plan(ROOMY.model_copy(update={"search": search})))
    assert filled.running_per_replica == pytest.approx(filled.slots_per_replica)


def test_equal_short_lengths_gain_nothing_and_the_plan_says_so() -> None:
    plan = make_plan(job(workload__response_length={"mean": 64, "max": 64}))
    assert report(plan).gain < 1.01
    assert any("gains nothing" in line for line in plan.warnings)


def report(plan: Plan) -> ContinuousReport:
    assert plan.continuous is not None
    return plan.continuous


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"training_slack": 9}, "training_slack is 9"),
    ({"training_slack": 1}, "weights come 5 iterations later"),
    ({"admitted_responses": 99}, "admitted_responses is 99"),
    ({"least_in_flight": 0}, "least_in_flight is 0"),
    ({"slots_per_replica": 10**6}, "slots_per_replica is 1000000"),
    ({"running_per_replica": 1e6}, "running_per_replica is 1e+06"),
    ({"responses_per_second": 1.0}, "responses a second"),
    ({"flight_seconds": 1e6}, "the longest response is in flight for 1e+06 s"),
    ({"flight_seconds": 1e-6}, "by what is in flight and the rate"),
    ({"least_full_staleness": 16}, "staleness 15 holds up no replica"),
    ({"least_full_staleness": 1}, "staleness 1 is said to hold up no replica"),
    ({"call": "actor.train"}, "not the one call that generates"),
    ({"seconds": 1.0}, "the steady state takes 1.0"),
]


@pytest.mark.parametrize(("changes", "said"), BROKEN, ids=lambda each: str(each)[:40])
def test_a_wrong_steady_state_is_found(changes: dict[str, Any], said: str) -> None:
    plan = roomy_plan()
    broken = plan.model_copy(update={"continuous": report(plan).model_copy(update=changes)})
    assert any(said in line for line in violations(resolve(ROOMY), broken))


@cache
def roomy_plan() -> Plan:
    plan = make_plan(ROOMY)
    assert violations(resolve(ROOMY), plan) == []
    return plan


def test_a_missing_steady_state_and_shared_gpus_are_found() -> None:
    plan = make_plan(job())
    without = plan.model_copy(update={"continuous": None})
    assert any("does not state a steady state" in v for v in violations(resolve(job()), without))
    home, shadow = (c for c in plan.copies)
    shared = [home, shadow.model_copy(update={"first_gpu": home.first_gpu})]
    moved = plan.model_copy(update={"copies": shared})
    assert any("never leaves them" in v for v in violations(resolve(job()), moved))


def test_a_placement_of_ones_own_generates_on_its_own_gpus() -> None:
    batches = small_job(models__reward=REWARD, workload__kl="none", search={"target": "any"})
    placement = make_plan(batches).placement()
    with pytest.raises(SpecError, match="never leaves them"):
        estimate(job(), placement)
