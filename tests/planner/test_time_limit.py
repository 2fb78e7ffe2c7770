"""What a time limit means: why the search stopped, and how long it took by the clock."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from automap.planner.errors import NoSolutionInTimeError
from automap.planner.planning import estimate, make_plan
from automap.planner.search import search
from automap.planner.spec import JobSpec, SearchSpec, job_spec_json_schema
from automap.planner.studies.pareto import pareto
from automap.planner.studies.what_if import what_if
from automap.service.planners.deadlines import planning_deadline_seconds
from tests.helpers.small_jobs import small_job

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_cut_search_says_at_which_limit_and_with_which_gap() -> None:
    brief = {"search__time_limit_seconds": 1e-6, "search__limit_by": "work"}
    plan = make_plan(small_job("safe_rlhf", num_nodes=2, **brief))
    assert plan.search.status == "feasible"
    assert plan.relative_gap > 0
    gap = f"{100 * plan.relative_gap:.2g} %"
    assert plan.search.stopped == (
        f"stopped at the time limit of 1e-06 s with a gap of {gap}; "
        "least is proven of placements without shadow copies"
    )


@pytest.mark.slow
def test_a_cut_search_says_where_its_bound_is_weak() -> None:
    document = yaml.safe_load((EXAMPLES / "safe-rlhf-two-critics-70b-128xa100.yaml").read_text())
    document["search"] = {"time_limit_seconds": 2, "limit_by": "work"}
    plan = make_plan(JobSpec.model_validate(document))
    assert plan.search.status == "feasible"
    assert "; least is proven of placements with actor.shadow" in (plan.search.stopped or "")


def test_a_proof_and_a_given_placement_stop_for_other_reasons() -> None:
    plan = make_plan(small_job())
    assert plan.search.stopped == "the search is complete: no plan of the searched space is better"
    given = estimate(plan.spec, plan.placement())
    assert given.search.stopped == "nothing was searched: the placement was given"


@pytest.mark.slow
def test_a_cut_search_ends_with_the_same_plan_every_time() -> None:
    """Where the limit counts work the clock must have no say in the plan."""
    spec = small_job(
        "safe_rlhf", num_nodes=2, search__time_limit_seconds=0.01, search__limit_by="work"
    )
    first, second = make_plan(spec), make_plan(spec)
    assert first.search.status == "feasible"
    assert first.placement() == second.placement()
    assert first.lower_bound_seconds == second.lower_bound_seconds


def test_a_limit_by_the_clock_too_short_for_any_plan_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "LEAST_SEARCH_SECONDS", 0.0)
    with pytest.raises(NoSolutionInTimeError, match=r"raise search\.time_limit_seconds"):
        make_plan(small_job("safe_rlhf", num_nodes=2, search__time_limit_seconds=1e-6))


def test_a_limit_by_the_clock_is_kept_from_the_request_to_the_answer() -> None:
    """A job that takes 25 s to prove; two seconds of leave are for slow machines."""
    document = yaml.safe_load((EXAMPLES / "safe-rlhf-two-critics-70b-128xa100.yaml").read_text())
    document["search"] = {"time_limit_seconds": 4}
    started = time.perf_counter()
    plan = make_plan(JobSpec.model_validate(document))
    assert time.perf_counter() - started < 4 + 2
    assert plan.search.status == "feasible"
    assert plan.relative_gap < 0.5


def job_that_takes_long_to_price(time_limit_seconds: float = 2) -> JobSpec:
    """Over 16,384 GPUs the candidates of a mixture of experts take more than 10 s to price."""
    model = {"architecture": "deepseek-v3"}
    return small_job(
        models={"actor": model, "reference": model, "reward": {"function": True}},
        workload__prompts_per_iteration=32768,
        cluster__pools=[{"name": "h200", "gpu": "h200", "num_nodes": 2048}],
        search__target="any",
        search__time_limit_seconds=time_limit_seconds,
    )


@pytest.mark.slow
@pytest.mark.parametrize("question", [make_plan, pareto])
def test_pricing_ends_by_the_clock_as_well(question: Callable[[JobSpec], object]) -> None:
    spec = job_that_takes_long_to_price()
    used = time.process_time()  # no longer than the clock's, on one thread
    with pytest.raises(NoSolutionInTimeError, match="it ended while candidates were priced"):
        question(spec)
    assert time.process_time() - used < 2 + 4  # two turns of pricing on a slow core


@pytest.mark.slow
def test_a_cluster_that_takes_too_long_to_price_says_so_beside_the_others() -> None:
    job = job_that_takes_long_to_price(time_limit_seconds=5)  # the small one takes 1 s
    large, small = what_if(job, nodes=[2048, 16]).variants
    assert large.plan is None
    assert "it ended while candidates were priced" in large.reasons[0].summary
    assert small.plan is not None


@pytest.mark.slow
def test_a_proven_plan_is_the_same_whatever_ends_the_search() -> None:
    clock, work = (
        make_plan(small_job("safe_rlhf", num_nodes=2, search__limit_by=name))
        for name in ("clock", "work")
    )
    assert clock.search.status == work.search.status == "optimal"
    assert clock.placement() == work.placement()


@pytest.mark.slow
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
