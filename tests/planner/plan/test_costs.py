"""What a plan will cost: in all as the plan says, and by the types of its GPUs."""

import pytest

from automap.planner.errors import SpecError
from automap.planner.plan import costs
from automap.planner.plan.costs import plan_costs
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from tests.helpers.small_jobs import pool, small_job


def two_types() -> Plan:
    """The reference is kept from the A100s, on which the actor is."""
    job = small_job(
        cluster__pools=[pool(), pool(name="h100", gpu="h100-80gb-sxm", price_per_gpu_hour=3.5)],
        constraints__pools={"actor": "a100", "reference": "h100"},
        workload__iterations=500,
        workload__startup_seconds=600,
    )
    return make_plan(job)


def test_costs_of_two_types_are_hours_times_prices_and_sum_to_the_plans() -> None:
    plan = two_types()
    found = plan_costs(plan)
    assert found.by_gpu is not None
    hourly = {"a100-80gb-sxm": 2.0, "h100-80gb-sxm": 3.5}
    assert {each.gpu: each.gpus for each in found.by_gpu} == dict.fromkeys(hourly, 4)
    for each in found.by_gpu:
        per_second = 4 * hourly[each.gpu] / 3600
        assert each.price_per_iteration == pytest.approx(per_second * plan.iteration_seconds)
        # 64 prompts, 512 tokens each, and as many responses of 512 tokens.
        tokens = plan.spec.workload.num_sequences * 1024
        expected = per_second * plan.iteration_seconds / tokens * 1e6
        assert each.price_per_million_tokens == pytest.approx(expected)
        run_seconds = 500 * plan.iteration_seconds + 600
        assert each.run_gpu_hours == pytest.approx(4 * run_seconds / 3600)
        assert each.run_price == pytest.approx(per_second * run_seconds)
    assert [each.gpu for each in found.by_gpu] == ["h100-80gb-sxm", "a100-80gb-sxm"]
    total = found.total
    assert (total.gpu, total.gpus) == ("", 8)
    for name in ("price_per_iteration", "price_per_million_tokens", "run_price"):
        assert getattr(total, name) == getattr(plan, name)
        assert sum(getattr(each, name) for each in found.by_gpu) == pytest.approx(
            getattr(plan, name)
        )


def test_pools_of_one_type_are_one_row() -> None:
    job = small_job(
        cluster__pools=[pool(), pool(name="dear", price_per_gpu_hour=4.0)],
        constraints__pools={"actor": "a100", "reference": "dear"},
    )
    plan = make_plan(job)
    found = plan_costs(plan)
    assert found.by_gpu is not None
    [only] = found.by_gpu
    assert (only.gpu, only.gpus) == ("a100-80gb-sxm", 8)
    assert only.price_per_iteration == pytest.approx(plan.price_per_iteration)


def test_what_has_no_price_costs_hours() -> None:
    plan = make_plan(small_job(cluster__pools=[pool(price_per_gpu_hour=0.0)]))
    found = plan_costs(plan)
    assert found.by_gpu is not None
    assert found.total.run_price == 0
    assert found.by_gpu[0].run_gpu_hours == pytest.approx(plan.run_seconds * 4 / 3600)


def test_prices_that_have_changed_since_divide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = two_types()
    other = plan.model_copy(update={"price_per_iteration": 1.1 * plan.price_per_iteration})
    assert plan_costs(other).by_gpu is None
    assert plan_costs(other).total.price_per_iteration == other.price_per_iteration

    def gone(*given: object, field: str, **more: object) -> None:
        raise SpecError(f"{field}.gpu", "the catalogue has no such GPU", remedy="none")

    monkeypatch.setattr(costs, "resolve_pool", gone)
    assert plan_costs(plan).by_gpu is None
