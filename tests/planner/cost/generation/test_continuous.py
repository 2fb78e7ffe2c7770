"""Prices of continuous generation: what staleness, cache, syncs and environments change."""

from typing import Any

import numpy as np
import pytest

from automap.planner.cost.generation.continuous import (
    ContinuousGeneration,
    cached_variance,
    slots_of_cache,
)
from automap.planner.cost.pricing import GenerationLayouts, Pricing
from automap.planner.job.resolution import resolve
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import small_job

GIB = 2**30
SPREAD = {"mean": 512, "max": 4096}


def job(staleness: int, *, keeps: bool = False, **changes: Any) -> JobSpec:
    search = {"target": "any", "staleness": staleness, "continuous_rollouts": True}
    values = {"workload__prompts_per_iteration": 512, "workload__response_length": SPREAD}
    return small_job(search={**search, "keep_cache_at_sync": keeps}, **(values | changes))


def engines(number: int) -> GenerationLayouts:
    one = np.ones(number, dtype=np.int64)
    return GenerationLayouts(one, one, one, 4 * one)


def steady(spec: JobSpec, *budgets: float) -> ContinuousGeneration:
    found = resolve(spec)
    call = next(each for each in found.dataflow.calls if each.kind == "generate")
    cache = np.array([int(each * GIB) for each in budgets], dtype=np.int64)
    priced = Pricing(found).continuous_generation(
        call, found.pools[0], engines(len(cache)), kv_cache_bytes=cache
    )
    assert priced is not None
    return priced


def seconds(spec: JobSpec, *budgets: float) -> list[float]:
    """By the call's price itself, which drains where the staleness leaves nothing in flight."""
    found = resolve(spec)
    call = next(each for each in found.dataflow.calls if each.kind == "generate")
    cache = np.array([int(each * GIB) for each in budgets], dtype=np.int64)
    priced = Pricing(found).generate(
        call, found.pools[0], engines(len(cache)), kv_cache_bytes=cache
    )
    return priced.seconds.total.tolist()


def test_more_staleness_is_never_slower() -> None:
    budgets = (0.5, 1.0, 2.0, 4.0, 8.0)
    before = [float("inf")] * len(budgets)
    for staleness in (2, 4, 6, 8, 12, 16):
        now = seconds(job(staleness, keeps=True), *budgets)
        assert all(new <= old * (1 + 1e-9) for new, old in zip(now, before, strict=True))
        before = now


def test_staleness_one_drains_as_a_batch_does() -> None:
    batches = small_job(
        search={"target": "any", "staleness": 1},
        workload__prompts_per_iteration=512,
        workload__response_length=SPREAD,
    )
    assert seconds(job(1), 1.0, 8.0) == seconds(batches, 1.0, 8.0)


def test_engines_finish_no_more_than_they_hold() -> None:
    found = steady(job(8, keeps=True), 0.5, 1.0, 2.0, 8.0)
    held = found.slots * 4
    mean = 512.0
    steps = 512 * mean / held
    # Every step takes at least the least seconds of one.
    least = found.decode.total / steps
    assert (found.running <= found.slots * (1 + 1e-9)).all()
    assert (np.diff(found.slots) > 0).all()
    assert (least > 1e-3).all()


def test_a_dropped_cache_costs_a_prefill_of_all_that_is_in_flight() -> None:
    kept, dropped = steady(job(8, keeps=True), 1.0), steady(job(8), 1.0)
    assert kept.recomputed_tokens[0] == 0.0
    # P + half a block + E[L²] / 2 E[L] for each that runs.
    points, mass = job(8).workload.response_length.distribution()
    cached = 512 + 8 + float(points**2 @ mass) / (2 * float(points @ mass))
    assert dropped.recomputed_tokens[0] == pytest.approx(dropped.running[0] * cached, rel=1e-3)
    assert dropped.prefill.total[0] > 1.2 * kept.prefill.total[0]
    assert dropped.decode.total[0] == pytest.approx(kept.decode.total[0])


def test_batches_wait_for_a_response_that_would_be_too_old() -> None:
    # One response in two hundred is thirty times as long as the others.
    long = {"histogram": [[100, 199], [3000, 1]]}
    tight = steady(job(2, keeps=True, workload__response_length=long), 0.5)
    roomy = steady(job(16, keeps=True, workload__response_length=long), 0.5)
    assert tight.decode.bubble[0] > 0.0
    assert tight.flight_seconds[0] == pytest.approx(
        1.5 * (tight.prefill.total[0] + tight.decode.total[0])
    )
    assert roomy.decode.bubble[0] == 0.0


def test_a_cache_holds_what_is_in_flight_with_two_deviations_to_spare() -> None:
    spec = job(4).workload
    mean, variance = 1500.0, cached_variance(spec)
    slots = slots_of_cache(np.array([1e5, 1e6]), mean=mean, variance=variance)
    for tokens, number in zip((1e5, 1e6), slots, strict=True):
        assert number * mean + 2 * np.sqrt(number * variance) <= tokens
        more = number + 1
        assert more * mean + 2 * np.sqrt(more * variance) > tokens


def test_what_is_with_its_environment_takes_a_place_in_flight_alone() -> None:
    turns = {"workload__turns": 4, "workload__environment_seconds_per_turn": 5.0}
    there = steady(job(8, keeps=True), 1.0)
    away = steady(job(8, keeps=True, **turns), 1.0)
    assert away.needed[0] > 1.5 * there.needed[0]
    assert away.slots[0] == there.slots[0]
    # With enough in flight beside them engines decode as many as ever.
    assert away.running[0] <= there.running[0] * (1 + 1e-9)
