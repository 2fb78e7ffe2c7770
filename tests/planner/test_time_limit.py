"""What a time limit means: why the search stopped, and how long it took by the clock."""

import time

import pytest

from automap.planner.planning import estimate, make_plan
from automap.planner.spec import SearchSpec, job_spec_json_schema
from automap.service.planners.deadlines import planning_deadline_seconds
from tests.helpers.small_jobs import small_job


def test_a_cut_search_says_at_which_limit_and_with_which_gap() -> None:
    plan = make_plan(small_job("safe_rlhf", num_nodes=2, search__time_limit_seconds=1e-6))
    assert plan.search.status == "feasible"
    assert plan.relative_gap > 0
    gap = f"{100 * plan.relative_gap:.2g} %"
    assert plan.search.stopped == f"stopped at the time limit of 1e-06 s with a gap of {gap}"


def test_a_proof_and_a_given_placement_stop_for_other_reasons() -> None:
    plan = make_plan(small_job())
    assert plan.search.stopped == "the search is complete: no plan of the searched space is better"
    given = estimate(plan.spec, plan.placement())
    assert given.search.stopped == "nothing was searched: the placement was given"


def test_a_cut_search_ends_with_the_same_plan_every_time() -> None:
    """The limit counts work, not seconds: the clock must have no say in the plan."""
    spec = small_job("safe_rlhf", num_nodes=2, search__time_limit_seconds=0.01)
    first, second = make_plan(spec), make_plan(spec)
    assert first.search.status == "feasible"
    assert first.placement() == second.placement()
    assert first.lower_bound_seconds == second.lower_bound_seconds


def test_a_plan_reports_nearly_all_of_the_time_it_took() -> None:
    spec = small_job("safe_rlhf", num_nodes=2)
    make_plan(spec)  # imports and tables
    started = time.perf_counter()
    plan = make_plan(spec)
    elapsed = time.perf_counter() - started
    assert 0.5 * elapsed < plan.search_seconds <= elapsed


@pytest.mark.parametrize("name", SearchSpec.model_fields)
def test_the_schema_describes_every_search_setting_and_its_default(name: str) -> None:
    setting = job_spec_json_schema()["$defs"]["SearchSpec"]["properties"][name]
    assert len(setting["description"]) > 40
    assert "default" in setting
    if name.endswith("_seconds"):
        assert "econds" in setting["description"]


def test_a_service_waits_for_machines_slower_than_the_limit_counts_with() -> None:
    """36 s were measured for a limit of 30 s: a limit of 600 s must not end in a time-out."""
    spec = small_job(search__time_limit_seconds=600)
    assert planning_deadline_seconds(spec, overhead_seconds=60) > 600 * 36 / 30 + 60
    robust = small_job(search__time_limit_seconds=600, search__robust=True)
    assert planning_deadline_seconds(robust, overhead_seconds=60) > 2 * 600 * 36 / 30 + 60
