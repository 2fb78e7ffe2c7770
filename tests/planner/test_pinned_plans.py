"""Plans of jobs that say where calls go: they obey, lose nothing else, and the check knows."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from automap.planner.check.check import violations
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlan, CopyPlan, Plan
from automap.planner.planning import STRATEGIES, make_plan
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough

POOLS = [pool(1, name="train"), pool(1, name="rollout", gpu="l40s")]


def spec_with(algorithm: str = "grpo", **constraints: Any) -> JobSpec:
    return small_job(algorithm, cluster__pools=POOLS, constraints=constraints)


@cache
def planned(algorithm: str, *pins: tuple[str, str]) -> Plan:
    return make_plan(spec_with(algorithm, pools=dict(pins)))


def call_of(plan: Plan, name: str) -> CallPlan:
    return next(call for call in plan.calls if call.id == name)


def copy_of(plan: Plan, name: str) -> CopyPlan:
    call = call_of(plan, name)
    return next(copy for copy in plan.copies if copy.id == call.copy_id)


def test_training_and_rollouts_in_pools_of_their_own() -> None:
    plan = planned("grpo", ("actor.train", "train"), ("actor.generate", "rollout"))
    assert copy_of(plan, "actor.train").pool == "train"
    shadow = copy_of(plan, "actor.generate")
    assert (shadow.kind, shadow.pool) == ("shadow", "rollout")
    assert violations(resolve(plan.spec), plan) == []


def test_a_role_and_a_call_that_is_its_exception() -> None:
    plan = planned("grpo", ("actor", "train"), ("actor.generate", "rollout"))
    same = planned("grpo", ("actor.train", "train"), ("actor.generate", "rollout"))
    assert copy_of(plan, "actor.generate").pool == "rollout"
    assert plan.iteration_seconds == same.iteration_seconds


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "remax"])
def test_the_best_of_all_pins_is_the_best_without(algorithm: str) -> None:
    """Pins only take plans away, and together take away none."""
    calls = ["actor.train", "actor.generate"]
    periods = [
        planned(algorithm, *zip(calls, places, strict=True)).iteration_seconds
        for places in product(("train", "rollout"), repeat=2)
    ]
    free = planned(algorithm)
    assert free.search.status == "optimal"
    assert min(periods) == pytest.approx(free.iteration_seconds, rel=1e-9)


KEYS = ("actor.train", "actor.forward", "actor.generate", "actor.generate.greedy", "actor.shadow")
KEYS += ("actor", "reference", "reference.forward", "reward.forward")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_plan_obeys_whatever_is_pinned(seed: int) -> None:
    """Some pins contradict one another, which their error says; all others hold in the plan."""
    draw = Random(seed)
    pins = {key: draw.choice(["train", "rollout"]) for key in draw.sample(KEYS, 4)}
    plan, refused = None, ""
    try:
        plan = planned("remax", *pins.items())
    except SpecError as error:
        refused = error.field
    if plan is None:
        assert refused.removeprefix("constraints.pools.") in pins
        return
    for call in plan.calls:
        assert copy_of(plan, call.id).pool == pins.get(call.id, copy_of(plan, call.id).pool)
    for copy in plan.copies:
        key = copy.role if copy.kind == "home" else copy.id
        assert copy.pool == pins.get(key, copy.pool)
    assert violations(resolve(plan.spec), plan) == []


def test_two_rollouts_of_one_role_in_two_pools() -> None:
    plan = planned("remax", ("actor.generate", "train"), ("actor.generate.greedy", "rollout"))
    found = [copy_of(plan, name) for name in ("actor.generate", "actor.generate.greedy")]
    assert [copy.pool for copy in found] == ["train", "rollout"]
    assert {copy.kind for copy in found} == {"home", "shadow"}


FIXED: dict[str, dict[str, Any]] = {
    "actor.train": {"micro_batch_size": 2, "recompute": "full"},
    "actor.forward": {"micro_batch_size": 8},
    "reference.forward": {"micro_batch_size": 1},
    "actor.generate": {"tensor_parallel_size": 2, "data_parallel_size": 2},
}


@pytest.mark.parametrize("pools", [{}, {"actor.train": "train", "actor.generate": "rollout"}])
def test_sizes_and_settings_of_calls(pools: dict[str, str]) -> None:
    plan = make_plan(spec_with(pools=pools, parallelism=FIXED))
    for name, fixed in FIXED.items():
        call = call_of(plan, name)
        found = {"micro_batch_size": call.micro_batch_size, "recompute": call.recompute}
        found |= {} if call.parallelism is None else call.parallelism.model_dump()
        assert {field: found[field] for field in fixed} == fixed
    assert violations(resolve(plan.spec), plan) == []


def test_gpus_of_a_shadow_and_of_a_call() -> None:
    pools = {"actor.train": "train", "actor.generate": "rollout"}
    for key in ("actor.shadow", "actor.generate"):
        plan = make_plan(spec_with(pools=pools, parallelism={key: {"num_gpus": 2}}))
        assert copy_of(plan, "actor.generate").num_gpus == 2
    sizes = {"actor": {"num_gpus": 4}, "actor.generate": {"num_gpus": 2}}
    plan = make_plan(small_job(constraints={"parallelism": sizes}))
    assert (copy_of(plan, "actor.train").num_gpus, copy_of(plan, "actor.generate").num_gpus) == (
        4,
        2,
    )


def broken() -> Iterator[tuple[Plan, dict[str, Any], str]]:
    """Plans, constraints that they do not obey, and what the check says."""
    apart = planned("grpo", ("actor.train", "train"), ("actor.generate", "rollout"))
    together = planned("grpo", ("actor.train", "train"), ("actor.generate", "train"))
    yield together, {"pools": {"actor.generate": "rollout"}}, "call actor.generate runs in pool"
    yield together, {"pools": {"actor.train": "rollout"}}, "call actor.train runs in pool train"
    yield apart, {"pools": {"actor": "train"}}, "copy actor.shadow lies in pool rollout"
    yield apart, {"pools": {"actor.shadow": "train"}}, "copy actor.shadow lies in pool rollout"
    shadow, train = copy_of(apart, "actor.generate"), call_of(apart, "actor.train")
    assert train.micro_batch_size is not None
    for key, name, value in (
        ("actor.shadow", "num_gpus", 8 // shadow.num_gpus),
        ("actor.generate", "num_gpus", 8 // shadow.num_gpus),
        ("actor.generate", "tensor_parallel_size", 3 - shadow.layout.tensor_parallel_size),
        ("actor.train", "micro_batch_size", 2 * train.micro_batch_size),
        ("actor.train", "recompute", "none" if train.recompute != "none" else "full"),
    ):
        yield apart, {"parallelism": {key: {name: value}}}, f"{key} has {name}"


@pytest.mark.slow
def test_the_check_refuses_plans_that_do_not_obey() -> None:
    for plan, constraints, words in broken():
        pinned = plan.spec.model_copy(update={"constraints": spec_with(**constraints).constraints})
        job = resolve(pinned)
        found = violations(job, plan.model_copy(update={"spec": pinned}))
        assert any(words in line for line in found), (constraints, found)


@pytest.mark.slow
def test_strategies_obey_or_say_why_not() -> None:
    spec = spec_with(pools={"actor.train": "train", "actor.generate": "rollout"})
    placed = set()
    for name, info in STRATEGIES.items():
        if info.needs_staleness:
            continue
        limit = {"time_limit_seconds": 1.0, "limit_by": "work"}
        search = spec.search.model_copy(update={"strategy": name, **limit})
        try:
            plan = make_plan(spec.model_copy(update={"search": search}))
        except InfeasibleError as error:
            assert "actor.generate" in error.reasons[0].summary  # noqa: PT017 - others are placed
            continue
        placed.add(name)
        assert copy_of(plan, "actor.train").pool == "train"
        assert copy_of(plan, "actor.generate").pool == "rollout"
        assert violations(resolve(plan.spec), plan) == []
    assert "colocate_all" not in placed
    assert "openrlhf" in placed


@pytest.mark.slow
def test_a_pool_too_small_for_its_call_is_named() -> None:
    """26 GB of weights on one GPU of 24 GB."""
    models = {role: {"architecture": "llama-2-13b"} for role in ("actor", "reference", "reward")}
    pools = [pool(4, name="train"), pool(1, name="rollout", gpu="a10g", gpus_per_node=1)]
    pinned = {"actor": "train", "actor.generate": "rollout"}
    with pytest.raises(InfeasibleError) as error:
        make_plan(small_job(models=models, cluster__pools=pools, constraints__pools=pinned))
    assert error.value.reasons[0].phase == "actor.generate"
    assert any("constraints.pools" in (r.remedy or "") for r in error.value.reasons)


@pytest.mark.slow
def test_the_home_of_an_infeasible_job_stays_where_its_training_is_pinned() -> None:
    models = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reference", "reward")}
    pools = [pool(4, name="large"), pool(1, name="small", gpus_per_node=1)]
    with pytest.raises(InfeasibleError) as error:
        make_plan(
            small_job(
                models=models, cluster__pools=pools, constraints__pools={"actor.train": "small"}
            )
        )
    assert error.value.reasons[0].phase == "actor.train"
    assert "1 GPU)" in error.value.reasons[0].summary
