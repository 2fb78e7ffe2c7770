"""The share of memory that engines are told: the sum is shown, and is free when they start."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from automap.planner.cost.transition import model_bytes
from automap.planner.exports.engine_memory import start_bytes
from automap.planner.exports.exporting import export
from automap.planner.exports.memory_share import FILLED_WITH_A_CHANCE_OF, spare_cache_bytes
from automap.planner.exports.refusals import refusals
from automap.planner.exports.subject import subject_of
from automap.planner.frameworks import framework, framework_names
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate
from automap.planner.targets import inside
from tests.helpers import (
    areal_plans,
    framework_plans,
    nemo_rl_plans,
    openrlhf_plans,
    skyrl_plans,
    slime_plans,
    trl_plans,
)
from tests.helpers.broken_exports import changed

VERL = "verl@0.9.1"
PLANS: Mapping[str, Any] = {
    "verl": framework_plans,
    "slime": slime_plans,
    "nemo-rl": nemo_rl_plans,
    "openrlhf": openrlhf_plans,
    "trl": trl_plans,
    "skyrl": skyrl_plans,
    "areal": areal_plans,
}
"""Framework → module with a sample of plans that it can be told."""


@pytest.mark.slow
@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("target", framework_names())
def test_every_share_is_the_sum_that_is_shown(target: str, spare: bool) -> None:
    described = framework(target)
    plans = PLANS[described.name]
    keys = {
        key.lstrip("+")
        for setting in described.settings
        if setting.decision == "memory_share"
        for role, key in setting.keys.items()
        if role != "reward"
    }
    plan_of: Callable[[Any], Plan] = getattr(plans, "plan_of", framework_plans.plan_of)
    for name, wanted in plans.SAMPLE.items():
        plan = plan_of(wanted)
        launch = export(plan, target, spare_cache=spare)
        shares = [each for each in launch.settings if each.key.lstrip("+") in keys]
        # Tokens bound the cache beside the share, which is then not to be the smaller of both.
        bounded = any(each.key == "--sglang-max-total-tokens" for each in launch.settings)
        assert shares, name
        for share in shares:
            other, cache, memory = sum_of(share.because)
            [call, *_] = [each for each in plan.calls if each.kind == "generate"]
            planned = call.kv_cache_bytes or 0
            free = spare_cache_bytes(subject_of(resolve(plan.spec), plan, described))
            assert cache == pytest.approx(planned + spare * free, abs=2**18 * bounded)
            assert other >= weights_of(plan, call.copy_id), name
            assert float(share.value) == pytest.approx((other + cache) / memory, abs=1e-4)
            assert (float(share.value) <= (other + cache) / memory) != bounded


@pytest.mark.parametrize("target", framework_names())
def test_an_engine_gets_what_is_free_while_it_generates(target: str) -> None:
    described = framework(target)
    plans = PLANS[described.name]
    plan_of: Callable[[Any], Plan] = getattr(plans, "plan_of", framework_plans.plan_of)
    plan = plan_of(plans.SAMPLE["grpo"])
    subject = subject_of(resolve(plan.spec), plan, described)
    [call] = [each for each in plan.calls if each.kind == "generate"]
    spare = spare_cache_bytes(subject)
    assert spare > 2**30
    more = changed(plan, "calls", call.id, kv_cache_bytes=(call.kv_cache_bytes or 0) + spare)
    filled = estimate(plan.spec, more.placement())
    [again] = [each for each in filled.calls if each.kind == "generate"]
    chance = again.out_of_memory_probability or 0
    # A GiB is at most half of the chance.
    assert chance > FILLED_WITH_A_CHANCE_OF / 2
    assert chance <= FILLED_WITH_A_CHANCE_OF * 1.001


@pytest.mark.parametrize("planned_inside", [False, True])
def test_an_engine_has_all_its_weights_beside_those_that_train(planned_inside: bool) -> None:
    """vLLM's parameters in verl are its own, whatever the plan was made for."""
    wanted = replace(framework_plans.SAMPLE["mixture"], offload="optimizer")
    plan = framework_plans.plan_of(wanted)
    if planned_inside:
        plan = estimate(inside(plan.spec, VERL), plan.placement())
    subject = subject_of(resolve(plan.spec), plan, framework(VERL))
    [call] = subject.generations
    layout, model = call.parallelism, subject.job.models["actor"]
    assert layout is not None
    dense, experts = model_bytes(model, "bf16")
    weights = dense / layout.tensor_parallel_size
    weights += experts / max(layout.tensor_parallel_size, layout.expert_parallel_size)
    cache, memory = call.kv_cache_bytes or 0, subject.pool(subject.actor).gpu.memory_bytes
    for spare in (False, True):
        launch = export(plan, VERL, spare_cache=spare)
        [share] = [each for each in launch.settings if each.key.endswith("gpu_memory_utilization")]
        [held] = [each for each in launch.settings if each.key.endswith("kv_cache_memory_bytes")]
        assert float(share.value) * memory > weights + int(held.value)
        assert int(held.value) >= cache
        resident = sum(each.resident_bytes for each in plan.copies)
        assert subject.actor.resident_bytes > 0
        assert resident + float(share.value) * memory < call.capacity_bytes
    # What fits beside a part of the weights alone is refused.
    room = call.capacity_bytes - start_bytes(subject, call)
    for more, refused in ((room, False), (room + 1, True)):
        other = changed(plan, "calls", call.id, kv_cache_bytes=cache + more)
        told = refusals(subject_of(resolve(plan.spec), other, framework(VERL)))
        assert any("when the engine starts" in each.summary for each in told) == refused


def test_a_full_gpu_has_nothing_to_spare() -> None:
    plan = framework_plans.plan_of(framework_plans.SAMPLE["grpo"])
    [call] = [each for each in plan.calls if each.kind == "generate"]
    full = changed(plan, "calls", call.id, kv_cache_bytes=call.capacity_bytes)
    assert spare_cache_bytes(subject_of(resolve(plan.spec), full, framework("verl@0.9.1"))) == 0


def sum_of(because: str) -> tuple[int, int, int]:
    """Bytes of all but the cache, of the cache, and of the GPU."""
    other, cache, memory = (int(each) for each in re.findall(r"(?<= )\d+", because)[:3])
    return other, cache, memory


def weights_of(plan: Plan, copy_id: str | None) -> int:
    """Bytes of weights that an engine has on a GPU, whether its call or its copy counts them."""
    [copy] = [each for each in plan.copies if each.id == copy_id]
    call = next(each for each in plan.calls if each.kind == "generate")
    return call.bytes_by_kind.weights or copy.bytes_by_kind.weights


@pytest.mark.parametrize("target", framework_names())
def test_a_cache_of_the_whole_memory_is_not_free_at_the_start(target: str) -> None:
    described = framework(target)
    plans = PLANS[described.name]
    plan_of: Callable[[Any], Plan] = getattr(plans, "plan_of", framework_plans.plan_of)
    plan = plan_of(plans.SAMPLE["grpo"])
    [call] = [each for each in plan.calls if each.kind == "generate"]
    full = changed(plan, "calls", call.id, kv_cache_bytes=call.capacity_bytes)
    told = refusals(subject_of(resolve(plan.spec), full, described))
    assert any("GiB of 74.2 when the engine starts" in each.summary for each in told), told
