"""The check names broken references, layouts and constraints."""

import re

import pytest

from automap.planner.check.check import recomputed_iteration_seconds, violations
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Parallelism
from tests.helpers.specs import job_spec
from tests.planner.check.broken_plans import (
    BARRIER_JOB,
    BARRIER_PLAN,
    CYCLIC_JOB,
    CYCLIC_PLAN,
    Change,
    expect,
    with_call,
    with_copy,
    with_layout,
    with_sync,
    with_totals,
    without_call,
)
from tests.planner.check.sound_plans import barrier_plan

MALFORMED: dict[str, tuple[Change, str]] = {
    "dropped call": (
        lambda p: without_call(p, "reward.forward"),
        r"call reward\.forward of the dataflow appears 0 times",
    ),
    "call twice": (
        lambda p: with_totals(p, calls=[*p.calls, p.calls[0]]),
        r"call actor\.generate of the dataflow appears 2 times",
    ),
    "call of another role": (
        lambda p: with_call(p, "reward.forward", role="critic"),
        r"reward\.forward is forward of critic",
    ),
    "no home": (
        lambda p: with_totals(p, copies=[c for c in p.copies if c.id != "reward"]),
        r"model reward has 0 homes",
    ),
    "two ids alike": (
        lambda p: with_copy(p, "reward", id="critic"),
        r"2 copies have the id critic",
    ),
    "swapped copies": (
        lambda p: with_call(
            with_call(p, "critic.forward", copy_id="reward"), "reward.forward", copy_id="critic"
        ),
        r"call critic\.forward needs the weights of critic, but copy reward holds those of reward",
    ),
    "unknown pool": (lambda p: with_copy(p, "actor", pool="h100"), r"copy actor lies in pool h100"),
    "no cache": (
        lambda p: with_call(p, "actor.generate", kv_cache_bytes=None),
        r"actor\.generate is generate and has no kv_cache_bytes",
    ),
    "not a number": (
        lambda p: with_call(p, "actor.train", end_seconds=float("nan")),
        r"end_seconds of call actor\.train is nan",
    ),
    "outside the pool": (
        lambda p: with_copy(p, "critic", first_gpu=16),
        r"copy critic takes GPUs 16 to 23 of pool a100, which has 16",
    ),
    "across nodes": (
        lambda p: with_copy(p, "actor", first_gpu=4),
        r"copy actor is misaligned: 8 GPUs from offset 4",
    ),
    "not at a multiple": (
        lambda p: with_layout(
            with_copy(p, "reward", first_gpu=9, num_gpus=2), "reward", tensor_parallel_size=2
        ),
        r"copy reward is misaligned: 2 GPUs from offset 1",
    ),
    "tensor group across nodes": (
        lambda p: with_layout(with_copy(p, "actor", num_gpus=16), "actor", tensor_parallel_size=16),
        r"copy actor: the tensor group of GPUs 0 to 15 leaves its NVLink domain of 8",
    ),
    "sizes do not multiply": (
        lambda p: with_layout(p, "critic", data_parallel_size=2),
        r"copy critic: tensor × pipeline × context × data = 16, but it has 8 GPUs",
    ),
    "heads": (
        lambda p: with_layout(p, "critic", tensor_parallel_size=6),
        r"copy critic: 6 tensor ranks do not divide 32 heads",
    ),
    "experts": (
        lambda p: with_layout(p, "critic", expert_parallel_size=2),
        r"copy critic: 2 expert ranks do not divide 0 experts",
    ),
    "stages": (
        lambda p: with_layout(
            p, "critic", pipeline_parallel_size=8, virtual_pipeline_parallel_size=8
        ),
        r"copy critic: 64 pipeline stages for 32 layers",
    ),
    "call laid out unlike its copy": (
        lambda p: with_call(p, "critic.train", parallelism=Parallelism(data_parallel_size=8)),
        r"call critic\.train has another layout than its copy critic",
    ),
    "engine on fewer GPUs": (
        lambda p: with_call(p, "actor.generate", parallelism=Parallelism(data_parallel_size=4)),
        r"engine of call actor\.generate: .* = 4, but it has 8 GPUs",
    ),
    "optimizer of a scorer": (
        lambda p: with_copy(p, "reward", offload="optimizer"),
        r"copy reward offloads an optimizer, but reward does not train",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_plan_is_named(case: str) -> None:
    change, pattern = MALFORMED[case]
    broken = change(BARRIER_PLAN)
    expect(BARRIER_JOB, broken, pattern)
    with pytest.raises(ValueError, match=pattern):
        recomputed_iteration_seconds(BARRIER_JOB, broken)


SHADOWS: dict[str, tuple[Change, str]] = {
    "train on a shadow": (
        lambda p: with_call(p, "actor.train", copy_id="actor.shadow"),
        r"actor\.train is train, but copy actor\.shadow is a shadow",
    ),
    "no weight sync": (
        lambda p: with_totals(p, transitions=[]),
        r"shadow actor\.shadow has 0 weight syncs",
    ),
    "two weight syncs": (
        lambda p: with_totals(p, transitions=p.transitions * 2),
        r"shadow actor\.shadow has 2 weight syncs",
    ),
    "sync from another model": (
        lambda p: with_sync(p, source_copy="reward"),
        r"weight sync reward → actor\.shadow does not lead from the home of actor",
    ),
    "unused shadow": (
        lambda p: with_call(p, "actor.generate", copy_id="actor"),
        r"shadow actor\.shadow serves no call",
    ),
    "sharded shadow": (
        lambda p: with_layout(p, "actor.shadow", sharding="full"),
        r"shadow actor\.shadow has sharding full",
    ),
    "too many replicas": (
        lambda p: with_layout(p, "actor.shadow", data_parallel_size=2048),
        r"actor\.shadow has 2048 data-parallel ranks for 1024 sequences",
    ),
}


@pytest.mark.parametrize("case", SHADOWS)
def test_malformed_shadow_is_named(case: str) -> None:
    change, pattern = SHADOWS[case]
    expect(CYCLIC_JOB, change(CYCLIC_PLAN), pattern)


CONSTRAINTS: dict[str, tuple[dict[str, object], str]] = {
    "colocate": (
        {"colocate": [("actor", "critic")]},
        r"actor and critic are to be colocated, but lie on a100\[0:8\] and a100\[8:16\]",
    ),
    "separate": (
        {"separate": [("actor", "reference")]},
        r"actor and reference are to be separate, but copies actor and reference share",
    ),
    "size": (
        {"parallelism": {"actor": {"tensor_parallel_size": 4}}},
        r"copy actor has tensor_parallel_size 8, but the spec fixes 4",
    ),
    "number of GPUs": (
        {"parallelism": {"critic": {"num_gpus": 4}}},
        r"copy critic has num_gpus 8, but the spec fixes 4",
    ),
    "micro-batch": (
        {"parallelism": {"critic": {"micro_batch_size": 4}}},
        r"call critic\.train has micro_batch_size 1, but the spec fixes 4",
    ),
    "engine": (
        {"parallelism": {"actor": {"generation_tensor_parallel_size": 8}}},
        r"call actor\.generate has generation_tensor_parallel_size 2, but the spec fixes 8",
    ),
    "recompute": (
        {"allow_recompute": False},
        r"call actor\.train recomputes full, but allow_recompute is false",
    ),
    "offload": (
        {"allow_offload": False},
        r"copy reference offloads its weights, but allow_offload is false",
    ),
    "kept free": (
        {"keep_free_gpus": {"a100": 4}},
        r"copy critic takes GPUs 8 to 15 of pool a100, whose last 4 are kept free",
    ),
}


@pytest.mark.parametrize("case", CONSTRAINTS)
def test_broken_constraint_is_named(case: str) -> None:
    constraints, pattern = CONSTRAINTS[case]
    expect(resolve(job_spec("ppo", constraints=constraints)), BARRIER_PLAN, pattern)


def test_broken_pin_is_named() -> None:
    pools = [{"name": name, "gpu": "a100-80gb-sxm", "num_nodes": 2} for name in ("a100", "other")]
    spec = job_spec("ppo", cluster={"pools": pools}, constraints={"pools": {"actor": "other"}})
    expect(
        resolve(spec), BARRIER_PLAN, r"copy actor lies in pool a100, but actor is pinned to other"
    )


def test_forbidden_shadow_is_named() -> None:
    spec = CYCLIC_JOB.spec
    forbidden = spec.constraints.model_copy(update={"allow_shadow_copies": False})
    job = resolve(spec.model_copy(update={"constraints": forbidden}))
    expect(job, CYCLIC_PLAN, r"actor\.shadow is a shadow, but allow_shadow_copies is false")


def test_uneven_batch_is_named() -> None:
    job = resolve(job_spec("ppo", constraints={"require_even_batch": True}))
    plan = with_totals(barrier_plan(job), spec=job.spec)
    assert violations(job, plan) == []
    expect(
        job,
        with_call(plan, "critic.train", micro_batch_size=3),
        r"critic\.train: data parallel × micro-batch = 3 does not divide its batch of 128",
    )


def test_missed_target_is_named() -> None:
    search = {"objective": "fewest_gpus", "target_iteration_seconds": 100.0}
    job = resolve(job_spec("ppo", search=search))
    pattern = r"iteration_seconds .* misses the target 100\.0"
    found = BARRIER_PLAN.search.model_copy(update={"status": "feasible"})
    expect(job, with_totals(BARRIER_PLAN, search=found), pattern)
    assert not any(re.search(pattern, line) for line in violations(job, BARRIER_PLAN))
