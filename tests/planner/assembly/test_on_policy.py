"""Staleness that gains nothing is not used."""

from automap.planner.assembly.proof import bound_is_proven
from automap.planner.check.check import violations
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from tests.helpers.small_jobs import pool, small_job

TOGETHER = {"constraints__allow_shadow_copies": False, "search__staleness": 1}
TOLD = "search.staleness: 1 is allowed and nothing is gained by it here"


def test_models_on_the_same_gpus_take_turns_with_new_weights() -> None:
    plan = make_plan(small_job("grpo", **TOGETHER))
    fresh = make_plan(small_job("grpo", constraints__allow_shadow_copies=False))
    assert (plan.staleness, plan.spec.search.staleness) == (0, 0)
    assert {call.stage for call in plan.calls} == {0}
    assert plan.warnings[0].startswith(TOLD)
    # The space with staleness holds what the one without does: neither is proven to be better.
    assert plan.iteration_seconds <= fresh.iteration_seconds * 1.01
    job = resolve(plan.spec)
    assert violations(job, plan) == []
    assert bound_is_proven(job, plan)


def test_staleness_that_shortens_the_iteration_is_used() -> None:
    """Rollouts on a pool of their own, which stands still for half of the time in turns."""
    apart = {
        "cluster__pools": [pool(name="trains"), pool(name="generates")],
        "constraints__pools": {"actor.train": "trains", "actor.generate": "generates"},
    }
    stale = make_plan(small_job("grpo", **apart, search__staleness=1))
    fresh = make_plan(small_job("grpo", **apart))
    assert stale.staleness == 1
    assert stale.iteration_seconds < 0.9 * fresh.iteration_seconds
    assert not any(line.startswith(TOLD) for line in stale.warnings)


def test_an_iteration_without_a_barrier_is_left_as_it_was_asked_for() -> None:
    plan = make_plan(small_job("grpo", **TOGETHER, search__iteration_barrier=False))
    assert plan.staleness == 1
