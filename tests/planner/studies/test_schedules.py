"""Synchronous, one-step-off and continuous plans of one job, beside each other."""

import pytest

from automap.planner.spec import JobSpec, SearchSpec
from automap.planner.studies.schedules import USUAL_STALENESS, ScheduleCost, schedules
from tests.helpers.small_jobs import pool, small_job

REWARD = {"function": True, "seconds_per_response": 1e-3, "concurrency": 64}


def job(algorithm: str = "grpo", **changes: object) -> JobSpec:
    return small_job(algorithm, workload__response_length={"mean": 256, "max": 4096}, **changes)


def by_name(spec: JobSpec) -> dict[str, ScheduleCost]:
    return {each.schedule: each for each in schedules(spec)}


def test_each_schedule_is_a_plan_of_its_own() -> None:
    found = by_name(job(models__reward=REWARD, workload__kl="none"))
    assert [each.staleness for each in found.values()] == [0, 1, USUAL_STALENESS]
    plans = [each.plan for each in found.values()]
    assert all(plan is not None and plan.search.status == "optimal" for plan in plans)
    assert [plan is not None and plan.continuous is not None for plan in plans] == [
        False,
        False,
        True,
    ]
    assert found["synchronous"].times_faster == 1.0
    overlapped, flowing = found["one step off"], found["continuous"]
    assert overlapped.times_faster is not None
    assert overlapped.times_faster >= 1.0
    assert flowing.idle_generating is not None
    assert flowing.idle_others is not None
    assert min(flowing.idle_generating, flowing.idle_others) == pytest.approx(0.0, abs=0.35)


def test_plans_are_inside_the_target_that_the_spec_names() -> None:
    nodes = [pool(2, gpu="h100", gpus_per_node=8)]
    spec = job(
        models__reward=REWARD,
        workload__kl="none",
        cluster__pools=nodes,
        search={"target": "areal@1.0.4"},
    )
    found = by_name(spec)
    plans = [each.plan for each in found.values() if each.plan is not None]
    assert len(plans) == 3
    assert all(plan.spec.search.target == "areal@1.0.4" for plan in plans)
    assert all("areal@1.0.4" in plan.runs_with for plan in plans)
    free = by_name(spec.model_copy(update={"search": SearchSpec()}))
    # Without batches AReaL waits for nothing, which is another model of time.
    for name in ("synchronous", "one step off"):
        anywhere, inside = free[name].plan, found[name].plan
        assert inside is not None
        assert anywhere is not None
        assert inside.iteration_seconds >= anywhere.iteration_seconds * (1 - 1e-9)


@pytest.mark.slow
def test_a_spec_that_asks_for_it_says_its_staleness() -> None:
    search = {"target": "any", "staleness": 8, "continuous_rollouts": True}
    assert by_name(job(search=search))["continuous"].staleness == 8


def test_what_cannot_be_stale_has_the_synchronous_plan_alone() -> None:
    found = by_name(job("remax"))
    assert found["synchronous"].plan is not None
    for name in ("one step off", "continuous"):
        assert found[name].plan is None
        assert "importance ratio" in found[name].reason
