"""The check names wrong prices, memory that is too small, and wrong totals."""

import re

import pytest

from automap.planner.check.check import violations
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Parallelism
from tests.helpers.specs import job_spec
from tests.planner.check.broken_plans import (
    BARRIER_JOB,
    BARRIER_PLAN,
    CYCLIC_JOB,
    Change,
    expect,
    with_call,
    with_copy,
    with_totals,
)
from tests.planner.check.sound_plans import GIB, call_plan, copy_plan, plan_of

PRICES: dict[str, tuple[Change, str]] = {
    "shrunk seconds": (
        lambda p: with_call(p, "critic.train", end_seconds=p.calls[-1].end_seconds - 1.0),
        r"call critic\.train lasts \d+\.\d+ s, but its price is",
    ),
    "another micro-batch at the same price": (
        lambda p: with_call(p, "actor.train", micro_batch_size=2),
        r"call actor\.train lasts .* but its price is",
    ),
    "utilization": (
        lambda p: with_call(p, "actor.train", model_flops_utilization=0.99),
        r"model_flops_utilization of call actor\.train is 0\.99",
    ),
    "tokens per GPU": (
        lambda p: with_call(p, "actor.train", tokens_per_second_per_gpu=1.0),
        r"tokens_per_second_per_gpu of call actor\.train is 1\.0",
    ),
    "part": (
        lambda p: with_call(
            p,
            "actor.train",
            seconds_by_part=p.calls[0].seconds_by_part,
        ),
        r"seconds_by_part of call actor\.train sum to",
    ),
    "transient bytes": (
        lambda p: with_call(p, "actor.train", bytes_by_kind=p.calls[1].bytes_by_kind),
        r"call actor\.train has \d+ bytes of activations, but its price has",
    ),
    "resident bytes": (
        lambda p: with_copy(p, "actor", resident_bytes=1),
        r"copy actor holds 1 bytes, but its price is",
    ),
    "host bytes": (
        lambda p: with_copy(p, "reference", host_bytes=0),
        r"copy reference holds 0 host bytes, but its price is",
    ),
    "offload for nothing": (
        lambda p: with_copy(p, "actor", offload="optimizer"),
        r"call actor\.train lasts .* but its price is",
    ),
    "provenance": (
        lambda p: with_call(p, "actor.train", source="measured"),
        r"actor\.train is called measured, but its price is",
    ),
    "cache below a sequence": (
        lambda p: with_call(p, "actor.generate", kv_cache_bytes=1),
        r"actor\.generate has 1 cache bytes, but its longest sequence takes",
    ),
    "peak": (
        lambda p: with_call(p, "critic.train", peak_bytes=5),
        r"critic\.train states a peak of 5 bytes, but it is",
    ),
    "capacity": (
        lambda p: with_call(p, "critic.train", capacity_bytes=2**40),
        r"critic\.train states a capacity of 1099511627776 bytes",
    ),
}


@pytest.mark.parametrize("case", PRICES)
def test_wrong_price_is_named(case: str) -> None:
    change, pattern = PRICES[case]
    expect(BARRIER_JOB, change(BARRIER_PLAN), pattern)


def test_call_that_overflows_memory_is_named() -> None:
    """Every number of the plan is right, but the activations do not fit."""
    copies = BARRIER_PLAN.copies
    calls = [
        call_plan(
            BARRIER_JOB, c.id, copies, copy_id=c.copy_id, micro_batch_size=64, recompute="none"
        )
        if c.id == "actor.train"
        else c
        for c in BARRIER_PLAN.calls
    ]
    expect(
        BARRIER_JOB,
        with_totals(BARRIER_PLAN, calls=calls),
        r"call actor\.train needs \d+ MiB on GPUs a100\[0:8\] \(14477 resident, \d+ transient\), "
        r"but 76288 MiB are usable",
    )


def test_copies_that_overflow_a_part_of_a_range_are_named() -> None:
    """A single GPU of a wide range that also holds another model is enough."""
    job = BARRIER_JOB
    one_gpu = Parallelism()
    copies = [
        copy_plan(job, "actor", first_gpu=0),
        copy_plan(job, "critic", first_gpu=7, layout=one_gpu),
        copy_plan(job, "reference", first_gpu=0),
        copy_plan(job, "reward", first_gpu=8),
    ]
    calls = [call_plan(job, c.id, copies, copy_id=c.model) for c in job.dataflow.calls]
    plan = plan_of(job, copies, calls, period=1000.0)
    found = [line for line in violations(job, plan) if line.startswith("copies")]
    assert len(found) == 1
    assert re.search(r"copies actor, critic, reference hold .* on GPUs a100\[7:8\]", found[0])


def test_host_memory_is_counted_over_copies() -> None:
    """Offloaded state fits copy by copy, but not together: 12 bytes a parameter for two models."""
    pools = [
        {"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 2, "host_memory_bytes": 120 * GIB}
    ]
    job = resolve(job_spec("ppo", cluster={"pools": pools}))

    def found(critic_at: int) -> list[str]:
        copies = [
            copy_plan(job, "actor", first_gpu=0, offload="optimizer"),
            copy_plan(job, "critic", first_gpu=critic_at, offload="optimizer"),
            copy_plan(job, "reference", first_gpu=0),
            copy_plan(job, "reward", first_gpu=8),
        ]
        calls = [call_plan(job, c.id, copies, copy_id=c.model) for c in job.dataflow.calls]
        plan = plan_of(job, copies, calls, period=1000.0)
        return [line for line in violations(job, plan) if "host" in line]

    assert found(8) == []
    assert re.search(r"actor, critic.* MiB of host memory per GPU on a100\[0:8\]", found(0)[0])


TOTALS: dict[str, tuple[Change, str]] = {
    "longer than need be": (
        lambda p: with_totals(p, iteration_seconds=p.iteration_seconds + 1),
        r"iteration_seconds is .*, but the calls take",
    ),
    "bound above": (
        lambda p: with_totals(p, lower_bound_seconds=p.iteration_seconds * 1.01),
        r"lower_bound_seconds .* exceeds iteration_seconds",
    ),
    "optimal without proof": (
        lambda p: with_totals(p, search=p.search.model_copy(update={"status": "optimal"})),
        r"the plan is called optimal, but its value",
    ),
    "gap": (lambda p: with_totals(p, relative_gap=0.0), r"relative_gap is 0, but value and bound"),
    "objective": (
        lambda p: with_totals(p, search=p.search.model_copy(update={"objective_value": 1.0})),
        r"the objective's value is 1\.0+, but it is",
    ),
    "tokens": (
        lambda p: with_totals(p, tokens_per_iteration=1.0),
        r"tokens_per_iteration is 1\.0, but it is 2097152",
    ),
    "rate": (
        lambda p: with_totals(p, tokens_per_second=p.tokens_per_second * 2),
        r"tokens_per_second is .*, but it is",
    ),
    "GPUs": (
        lambda p: with_totals(p, gpus_used=8),
        r"gpus_used is 8, but the nodes touched have 16",
    ),
    "price": (
        lambda p: with_totals(p, price_per_iteration=p.price_per_iteration * 1.01),
        r"price_per_iteration is .*, but it is",
    ),
    "price of tokens": (
        lambda p: with_totals(p, price_per_million_tokens=1e-3),
        r"price_per_million_tokens is .*, but it is",
    ),
    "run": (lambda p: with_totals(p, run_seconds=1.0), r"run_seconds is 1\.0+, but it is"),
    "run's price": (lambda p: with_totals(p, run_price=1.0), r"run_price is 1\.0+, but it is"),
    "another spec": (
        lambda p: with_totals(p, spec=CYCLIC_JOB.spec),
        r"the plan carries another spec than its job",
    ),
    "staleness": (lambda p: with_totals(p, staleness=2), r"staleness is 2, but the spec has 0"),
}


@pytest.mark.parametrize("case", TOTALS)
def test_wrong_total_is_named(case: str) -> None:
    change, pattern = TOTALS[case]
    expect(BARRIER_JOB, change(BARRIER_PLAN), pattern)
