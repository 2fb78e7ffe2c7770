"""Staleness that gains nothing is said to."""

from automap.planner.planning import make_plan
from tests.helpers.small_jobs import pool, small_job

TOGETHER = {"constraints__allow_shadow_copies": False, "search__staleness": 1}
TOLD = "search.staleness: 1 gains nothing here"


def test_models_on_the_same_gpus_gain_nothing() -> None:
    plan = make_plan(small_job("grpo", **TOGETHER))
    fresh = make_plan(small_job("grpo", constraints__allow_shadow_copies=False))
    assert plan.warnings[-1].startswith(TOLD)
    assert plan.spec.search.staleness == 1
    assert plan.iteration_seconds > 0.95 * fresh.iteration_seconds
    assert not any("gains" in line for line in fresh.warnings)


def test_staleness_that_shortens_the_iteration_is_left_alone() -> None:
    """Rollouts on a pool of their own, which stands still for half of the time in turns."""
    apart = {
        "cluster__pools": [pool(name="trains"), pool(name="generates")],
        "constraints__pools": {"actor.train": "trains", "actor.generate": "generates"},
    }
    stale = make_plan(small_job("grpo", **apart, search__staleness=1))
    fresh = make_plan(small_job("grpo", **apart))
    assert stale.iteration_seconds < 0.9 * fresh.iteration_seconds
    assert not any("search.staleness" in line for line in stale.warnings)


def test_an_iteration_without_a_barrier_is_not_asked() -> None:
    plan = make_plan(small_job("grpo", **TOGETHER, search__iteration_barrier=False))
    assert not any(line.startswith(TOLD) for line in plan.warnings)
