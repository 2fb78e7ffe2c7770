"""Rules on seconds and bytes: each is what the cost model says of that one candidate."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np

from automap.planner.check.subject import TOLERANCE_RELATIVE, Subject, sync_name
from automap.planner.cost.estimates import BytesColumns, CallEstimates, SecondsColumns
from automap.planner.cost.generation.streaming import TailSetting
from automap.planner.cost.pricing import CopyBytes, Pricing, whole_microseconds
from automap.planner.cost.transition import sync_bytes
from automap.planner.layout import (
    OFFLOADS,
    RECOMPUTES,
    SHARDINGS,
    SOURCES,
    GenerationLayouts,
    IntArray,
    Layouts,
)
from automap.planner.plan.types import (
    BytesByKind,
    CallPlacement,
    CallPlan,
    CopyPlacement,
    CopyPlan,
    Parallelism,
    SecondsByPart,
    WeightSync,
)

PRICE_TOLERANCE_SECONDS = 2e-6
"""Prices are rounded up to a microsecond; the noise of a sum may round once more."""


@dataclass(frozen=True, slots=True)
class CallPrice:
    """Price of one call by the cost model; a function has only seconds."""

    seconds: float
    estimates: CallEstimates | None
    chunk_ready_shares: tuple[float, ...] = ()
    """Shares of the seconds after which each chunk but the last is ready; empty where no call takes
    chunks."""
    main_phase_share: float | None = None
    """Share of the seconds after which a tail begins and frees GPUs; None: there is none."""


@dataclass(frozen=True, slots=True)
class Prices:
    """A plan's calls, copies (by id) and weight syncs (by shadow), priced once more."""

    calls: dict[str, CallPrice]
    copies: dict[str, CopyBytes]
    sync_seconds: dict[str, float]


def price_again(subject: Subject) -> Prices:
    """Price every copy, call and weight sync of a plan as single rows."""
    pricing = subject.pricing
    return Prices(
        {call.id: call_price(subject, pricing, call) for call in subject.plan.calls},
        {copy.id: bytes_of(pricing, copy) for copy in subject.plan.copies},
        {
            sync.target_copy: _sync_seconds(subject, pricing, sync)
            for sync in subject.plan.transitions
        },
    )


def call_price(subject: Subject, pricing: Pricing, call: CallPlan) -> CallPrice:
    """Price one call of a plan as a single row."""
    if call.copy_id is None:
        return CallPrice(subject.calls[call.id].fixed_seconds or 0.0, None)
    estimates = estimates_of(subject, pricing, call, subject.copies[call.copy_id])
    seconds = float(whole_microseconds(estimates.seconds.total)[0])
    if call.kind != "generate":
        return CallPrice(seconds, estimates)
    copy = subject.copies[call.copy_id]
    timeline = pricing.output_timeline(
        subject.calls[call.id],
        subject.pool_of(copy),
        engine_of(call),
        kv_cache_bytes=row_of(call.kv_cache_bytes or 0),
        tail=tail_setting(call, copy),
        seconds=seconds,
    )
    return CallPrice(seconds, estimates, timeline.chunk_ready_shares, timeline.main_phase_share)


def tail_setting(call: CallPlacement, copy: CopyPlacement) -> TailSetting | None:
    """The tail of a generation in the cost model's terms."""
    if call.tail is None:
        return None
    factor, tensor = 1, call.tail.tensor_parallel_size
    if tensor is not None:
        assert call.parallelism is not None, "the references were checked"
        factor = tensor // call.parallelism.tensor_parallel_size
    ratio = copy.num_gpus // call.tail.num_gpus
    return TailSetting(ratio, call.tail.ended_share, factor)


def estimates_of(
    subject: Subject, pricing: Pricing, call: CallPlan, copy: CopyPlan
) -> CallEstimates:
    """Seconds and transient bytes of one call on its copy, as a single row."""
    wanted, pool, layouts = subject.calls[call.id], subject.pool_of(copy), _layouts(copy)
    if call.kind == "generate":
        engine, cache = engine_of(call), row_of(call.kv_cache_bytes or 0)
        tail = tail_setting(call, copy)
        if copy.kind == "shadow":
            return pricing.generate(wanted, pool, engine, kv_cache_bytes=cache, tail=tail)
        return pricing.generate_from_home(
            wanted, pool, layouts, engine, kv_cache_bytes=cache, tail=tail
        )
    assert call.micro_batch_size is not None, "the references were checked"
    micro = row_of(call.micro_batch_size)
    if call.kind == "forward":
        return pricing.forward(wanted, pool, layouts, micro_batch_size=micro)
    assert call.recompute is not None, "the references were checked"
    recompute = row_of(RECOMPUTES.index(call.recompute))
    return pricing.train(wanted, pool, layouts, micro_batch_size=micro, recompute=recompute)


def bytes_of(pricing: Pricing, copy: CopyPlan) -> CopyBytes:
    """What a copy holds on a GPU and on its host, as a single row."""
    if copy.kind == "home":
        pool = next(pool for pool in pricing.job.pools if pool.name == copy.pool)
        return pricing.home_bytes(copy.role, pool, _layouts(copy))
    return pricing.shadow_bytes(copy.role, _layouts(copy))


def _sync_seconds(subject: Subject, pricing: Pricing, sync: WeightSync) -> float:
    """The slower of sending and receiving."""
    home, shadow = subject.sync_sides(sync)
    send = pricing.send_seconds(home.role, subject.pool_of(home), _layouts(home))
    receive = pricing.receive_seconds(shadow.role, subject.pool_of(shadow), _layouts(shadow))
    return max(float(send[0]), float(receive[0]))


def row_of(value: int) -> IntArray:
    """A column of one row."""
    return np.array([value], dtype=np.int64)


def _layouts(copy: CopyPlan) -> Layouts:
    """A copy's layout as columns of one row."""
    layout = copy.layout
    return Layouts(
        num_gpus=row_of(copy.num_gpus),
        tensor_parallel_size=row_of(layout.tensor_parallel_size),
        pipeline_parallel_size=row_of(layout.pipeline_parallel_size),
        virtual_pipeline_parallel_size=row_of(layout.virtual_pipeline_parallel_size),
        context_parallel_size=row_of(layout.context_parallel_size),
        data_parallel_size=row_of(layout.data_parallel_size),
        expert_parallel_size=row_of(layout.expert_parallel_size),
        sharding=row_of(SHARDINGS.index(layout.sharding)),
        offload=row_of(OFFLOADS.index(copy.offload)),
    )


def engine_of(call: CallPlacement) -> GenerationLayouts:
    """A call's generation layout as columns of one row."""
    layout: Parallelism | None = call.parallelism
    assert layout is not None, "the references were checked"
    return GenerationLayouts(
        tensor_parallel_size=row_of(layout.tensor_parallel_size),
        pipeline_parallel_size=row_of(layout.pipeline_parallel_size),
        expert_parallel_size=row_of(layout.expert_parallel_size),
        data_parallel_size=row_of(layout.data_parallel_size),
    )


def wrong_prices(subject: Subject, prices: Prices) -> Iterator[str]:
    """Seconds or bytes of the plan that are not the cost model's."""
    for copy in subject.plan.copies:
        yield from _copy_holds_its_bytes(copy, prices.copies[copy.id])
    for call in subject.plan.calls:
        price = prices.calls[call.id]
        yield from _duration_is_the_price(
            f"call {call.id}", call.end_seconds - call.start_seconds, price.seconds
        )
        yield from _parts_sum_to_the_duration(call)
        if price.estimates is not None:
            yield from _parts_are_the_prices(call, price.estimates.seconds)
            yield from _bytes_are_the_prices(
                f"call {call.id}", call.bytes_by_kind, price.estimates.transient
            )
            yield from _source_is_the_prices(call, price.estimates.source)
        elif call.bytes_by_kind.total or call.peak_bytes:
            yield f"call {call.id} is a function and takes no GPU, but has bytes on one"
    for sync in subject.plan.transitions:
        seconds = sync.end_seconds - sync.start_seconds
        yield from _duration_is_the_price(
            sync_name(sync), seconds, prices.sync_seconds[sync.target_copy]
        )
        yield from _receiver_gets_its_weights(subject, sync)
    yield from caches_too_small(subject)
    yield from impossible_tails(subject)


def _receiver_gets_its_weights(subject: Subject, sync: WeightSync) -> Iterator[str]:
    """Dense weights split over tensor ranks, experts over the larger group, both over stages.

    Where one rank sends all weights, all of them.
    """
    _, shadow = subject.sync_sides(sync)
    model, layout = subject.job.models[shadow.role], shadow.layout
    dense, experts = sync_bytes(model, subject.job.spec.workload)
    expert_ranks = max(layout.tensor_parallel_size, layout.expert_parallel_size)
    shard = Fraction(dense, layout.tensor_parallel_size) + Fraction(experts, expert_ranks)
    expected = math.ceil(shard / layout.pipeline_parallel_size)
    if subject.job.target.rollout.whole_syncs:
        expected = dense + experts
    if sync.bytes_per_receiver != expected:
        yield (
            f"{sync_name(sync)} brings {sync.bytes_per_receiver} bytes to a receiver, but "
            f"{expected} are due to it"
        )


def _near(found: float, expected: float) -> bool:
    allowed = PRICE_TOLERANCE_SECONDS + TOLERANCE_RELATIVE * abs(expected)
    return abs(found - expected) <= allowed


def _duration_is_the_price(name: str, seconds: float, price: float) -> Iterator[str]:
    if not _near(seconds, price):
        yield f"{name} lasts {seconds:.6f} s, but its price is {price:.6f} s"


def _parts_sum_to_the_duration(call: CallPlan) -> Iterator[str]:
    total = sum(getattr(call.seconds_by_part, name) for name in SecondsByPart.model_fields)
    seconds = call.end_seconds - call.start_seconds
    if not _near(total, seconds):
        yield f"seconds_by_part of call {call.id} sum to {total:.6f} s, not {seconds:.6f} s"


def _parts_are_the_prices(call: CallPlan, price: SecondsColumns) -> Iterator[str]:
    for field in fields(price):
        found = getattr(call.seconds_by_part, field.name)
        expected = float(getattr(price, field.name)[0])
        if not _near(found, expected):
            yield (
                f"call {call.id} has {found:.6f} s of {field.name}, but its price has "
                f"{expected:.6f} s"
            )


def _bytes_are_the_prices(name: str, found: BytesByKind, price: BytesColumns) -> Iterator[str]:
    for field in fields(price):
        count, expected = getattr(found, field.name), int(getattr(price, field.name)[0])
        if count != expected:
            yield f"{name} has {count} bytes of {field.name}, but its price has {expected}"


def _copy_holds_its_bytes(copy: CopyPlan, price: CopyBytes) -> Iterator[str]:
    yield from _bytes_are_the_prices(f"copy {copy.id}", copy.bytes_by_kind, price.resident)
    resident, host = int(price.resident.total[0]), int(price.host[0])
    if copy.resident_bytes != resident:
        yield f"copy {copy.id} holds {copy.resident_bytes} bytes, but its price is {resident}"
    if copy.host_bytes != host:
        yield f"copy {copy.id} holds {copy.host_bytes} host bytes, but its price is {host}"


def _source_is_the_prices(call: CallPlan, price: IntArray) -> Iterator[str]:
    expected = SOURCES[int(price[0])]
    if call.source != expected:
        yield f"call {call.id} is called {call.source}, but its price is {expected}"


def impossible_tails(subject: Subject) -> Iterator[str]:
    """Tails onto which the responses that are left do not fit, or that replicas cannot be split to.

    Their ranges were checked with the layouts.
    """
    pricing = subject.pricing
    for call, copy in subject.placed_calls():
        tail = tail_setting(call, copy)
        if tail is not None and call.tail is not None:
            wanted, pool = subject.calls[call.id], subject.pool_of(copy)
            cache = row_of(call.kv_cache_bytes or 0)
            priced = pricing.tail(wanted, pool, engine_of(call), kv_cache_bytes=cache, tail=tail)
            if not priced.possible[0]:
                yield (
                    f"call {call.id} cannot go on with {call.tail.num_gpus} GPUs once "
                    f"{call.tail.ended_share:g} of its responses have ended: its replicas do not "
                    "part so, or their cache is too small for the others"
                )


def caches_too_small(subject: Subject) -> Iterator[str]:
    """Generate calls whose cache is below their longest sequence: they could never finish it."""
    pricing = subject.pricing
    for call, _ in subject.placed_calls():
        if call.kind == "generate":
            least = int(pricing.kv_cache_limits(subject.calls[call.id], engine_of(call))[0][0])
            if (call.kv_cache_bytes or 0) < least:
                yield (
                    f"call {call.id} has {call.kv_cache_bytes} cache bytes, but its longest "
                    f"sequence takes {least}"
                )
