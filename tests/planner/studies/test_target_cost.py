"""What a target costs: its plan beside the free one, and limit by limit."""

from dataclasses import fields
from typing import Any

import pytest

from automap.planner.job.resolution import resolve
from automap.planner.planning import estimate
from automap.planner.studies.target_cost import (
    TargetCost,
    _beside,
    _Found,
    driver_seconds,
    target_cost,
    target_costs,
)
from automap.planner.targets.automap import AUTOMAP
from automap.planner.targets.limits import limits
from automap.planner.targets.skyrl import SKYRL
from automap.planner.targets.slime import SLIME
from automap.planner.targets.tables import ANY, inside
from automap.planner.targets.target import Target
from automap.planner.targets.verl import VERL
from tests.helpers.framework_plans import Wanted, plan_of
from tests.helpers.small_jobs import pool, small_job

PPO = small_job("ppo", cluster__pools=[pool(2, gpu="h100-80gb-sxm")])


@pytest.mark.parametrize("target", [AUTOMAP, VERL])
def test_each_limit_is_told_once_and_lifted_alone(target: Target) -> None:
    found = list(limits(target))
    assert len({words for words, _ in found}) == len(found) > 5
    for _, without in found:
        (changed,) = differing(target, without)
        if changed == "training":
            known = [engine for engine in without.training if engine not in target.training]
            assert len(known) == 1
            own = next(engine for engine in target.training if engine.name == known[0].name)
            assert len(differing(own, known[0])) == 1


def differing(one: Any, other: Any) -> list[str]:
    """Fields in which two tables differ."""
    return [
        each.name for each in fields(one) if getattr(one, each.name) != getattr(other, each.name)
    ]


def test_any_has_no_limits() -> None:
    assert list(limits(ANY)) == []


@pytest.mark.slow
def test_a_target_costs_what_its_plan_takes_more_than_the_free_one() -> None:
    cost = target_cost(PPO, VERL.name)
    assert cost.plan is not None
    assert cost.free_value is not None
    own = cost.plan.search.objective_value
    assert cost.share == pytest.approx(own / cost.free_value - 1)
    assert cost.share > 0
    assert cost.plan.search.target == VERL.name
    assert cost.limits
    assert [each.share for each in cost.limits] == sorted(
        (e.share for e in cost.limits), reverse=True
    )
    for each in cost.limits:
        assert each.proven
        assert cost.free_value <= each.objective_value * (1 + 1e-9)
        assert each.objective_value <= own * (1 + 1e-9)
        assert each.share == pytest.approx(max(1 - each.objective_value / own, 0))
    assert cost.limits[0].share > 0


def test_what_a_target_cannot_run_has_a_reason() -> None:
    cost = target_cost(small_job("safe_rlhf"), VERL.name)
    assert cost.plan is None
    assert "safe_rlhf" in cost.reason
    assert cost.limits == []


def test_targets_are_compared_without_what_was_measured_of_some_drivers_alone() -> None:
    model = {"architecture": "qwen2.5-0.5b"}
    models = {"actor": model, "reference": model, "reward": {"function": True}}
    spec = small_job("grpo", models=models)
    costs = target_costs(spec, [VERL.name, SLIME.name], by_limit=False)
    assert [each.driver_seconds is None for each in costs] == [False, True]
    plan, driver = costs[0].plan, costs[0].driver_seconds
    assert plan is not None
    assert driver is not None
    known = estimate(inside(spec, VERL.name), plan.placement())
    assert known.iteration_seconds == pytest.approx(plan.iteration_seconds + driver, abs=1e-4)
    assert driver_seconds(known.spec) == driver


def test_limits_may_be_left_out() -> None:
    assert target_cost(small_job("grpo"), AUTOMAP.name, by_limit=False).limits == []


@pytest.mark.parametrize("target", [SKYRL, VERL])
def test_what_is_lacked_is_of_the_best_plan_of_all(target: Target) -> None:
    """It may be another target's: here of one with virtual stages, which SkyRL has not."""
    wanted = Wanted(model="qwen2.5-1.5b", pipeline=2, tensor=2)
    own, best = plan_of(wanted), plan_of(wanted.but(virtual=2))
    dearer = own.search.model_copy(update={"objective_value": 2 * best.search.objective_value})
    cost = TargetCost(target=target.name, plan=own.model_copy(update={"search": dearer}))
    found = _beside(_Found(cost, "the same job", resolve(inside(own.spec, target.name))), best)
    assert found.free_value == best.search.objective_value
    assert found.share == pytest.approx(1.0)
    assert any("virtual_pipeline_parallel_size" in each for each in found.lacks) == (
        target is SKYRL
    )
