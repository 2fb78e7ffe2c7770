"""Copies and calls of a placement, each priced anew."""

from dataclasses import dataclass, fields

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.check.prices import CallPrice, Prices, tail_setting
from automap.planner.cost.estimates import BytesColumns, CallEstimates
from automap.planner.cost.generation.streaming import ready_seconds
from automap.planner.cost.pricing import CopyBytes, Pricing, whole_microseconds
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job
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
    CopyPlacement,
    Parallelism,
    SecondsByPart,
)


@dataclass(frozen=True, slots=True)
class PricedCopy:
    """One copy of a placement with its bytes per GPU."""

    placement: CopyPlacement
    pool: Pool
    held: CopyBytes
    bytes_by_kind: BytesByKind
    sync_seconds: float
    """Seconds of a weight sync on this copy's side, if it has one."""

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory per GPU."""
        return int(self.held.host[0])

    @property
    def resident_bytes(self) -> int:
        """Bytes per GPU that the copy holds through the whole iteration."""
        return self.bytes_by_kind.total

    @property
    def span(self) -> range:
        """Its GPUs on the axis of all pools."""
        first = self.pool.first_gpu + self.placement.first_gpu
        return range(first, first + self.placement.num_gpus)


@dataclass(frozen=True, slots=True)
class PricedCall:
    """One call of a placement with its seconds and transient bytes per GPU."""

    placement: CallPlacement
    price: CallPrice
    seconds_by_part: SecondsByPart
    bytes_by_kind: BytesByKind
    source: str

    @property
    def seconds(self) -> float:
        """Seconds of the whole call."""
        return self.price.seconds

    @property
    def chunk_ready_seconds(self) -> tuple[float, ...]:
        """Seconds until each chunk but the last is ready; empty where no call takes chunks."""
        return self._passed(*self.price.chunk_ready_shares)

    @property
    def main_phase_seconds(self) -> float | None:
        """Seconds until the tail begins and frees GPUs; None: there is no such tail."""
        share = self.price.main_phase_share
        return None if share is None else self._passed(share)[0]

    def _passed(self, *shares: float) -> tuple[float, ...]:
        return tuple(ready_seconds(np.array([shares]), np.array([self.seconds]))[0].tolist())


def pricing_of(job: Job, copies: list[CopyPlacement]) -> Pricing:
    """The cost model of a job for a placement: where that lies in one node its syncs do too."""
    per_node = {pool.name: pool.gpus_per_node for pool in job.pools}
    ends = [(c.pool, n) for c in copies for n in (c.first_gpu, c.first_gpu + c.num_gpus - 1)]
    return Pricing(job, one_node=len({(pool, gpu // per_node[pool]) for pool, gpu in ends}) == 1)


def price_copy(pricing: Pricing, copy: CopyPlacement) -> PricedCopy:
    """Price one copy through the same functions as all candidates."""
    pool = next(pool for pool in pricing.job.pools if pool.name == copy.pool)
    layouts = layouts_of(copy)
    if copy.kind == "home":
        held = pricing.home_bytes(copy.role, pool, layouts)
        sync = pricing.send_seconds(copy.role, pool, layouts)
    else:
        held = pricing.shadow_bytes(copy.role, layouts)
        sync = pricing.receive_seconds(copy.role, pool, layouts)
    return PricedCopy(copy, pool, held, _bytes_by_kind(held.resident), float(sync[0]))


def price_call(
    pricing: Pricing, call: Call, placement: CallPlacement, copy: PricedCopy | None
) -> PricedCall:
    """Price one call on its copy through the same functions as all candidates."""
    if copy is None:
        seconds = call.fixed_seconds or 0.0
        by_part = SecondsByPart(compute=seconds)
        return PricedCall(placement, CallPrice(seconds, None), by_part, BytesByKind(), "analytical")
    estimates = _estimates(pricing, call, placement, copy)
    seconds = float(whole_microseconds(estimates.seconds.total)[0])
    return PricedCall(
        placement,
        CallPrice(seconds, estimates, *_output_timeline(pricing, call, placement, copy, seconds)),
        _seconds_by_part(estimates, seconds),
        _bytes_by_kind(estimates.transient),
        SOURCES[int(estimates.source[0])],
    )


def prices_of(copies: list[PricedCopy], calls: list[PricedCall]) -> Prices:
    """The prices of a placement's plan, in the form that its check reads."""
    homes = {
        copy.placement.role: copy.sync_seconds for copy in copies if copy.placement.kind == "home"
    }
    return Prices(
        {call.placement.id: call.price for call in calls},
        {copy.placement.id: copy.held for copy in copies},
        {
            copy.placement.id: max(homes[copy.placement.role], copy.sync_seconds)
            for copy in copies
            if copy.placement.kind == "shadow"
        },
    )


def _output_timeline(
    pricing: Pricing, call: Call, placement: CallPlacement, copy: PricedCopy, seconds: float
) -> tuple[tuple[float, ...], float | None]:
    """(shares of a generation's seconds until each chunk is ready, share until its tail begins)."""
    if call.kind != "generate":
        return (), None
    found = pricing.output_timeline(
        call,
        copy.pool,
        _engine(placement, copy),
        kv_cache_bytes=_column(placement.kv_cache_bytes or 0),
        tail=tail_setting(placement, copy.placement),
        seconds=seconds,
    )
    return found.chunk_ready_shares, found.main_phase_share


def _engine(placement: CallPlacement, copy: PricedCopy) -> GenerationLayouts:
    """The layout that a call generates in; a shadow's is the layout it is stored in."""
    if copy.placement.kind == "shadow":
        return GenerationLayouts.of(layouts_of(copy.placement))
    assert placement.parallelism is not None
    return GenerationLayouts(
        *(
            _column(getattr(placement.parallelism, name))
            for name in GenerationLayouts.__dataclass_fields__
        )
    )


def _estimates(
    pricing: Pricing, call: Call, placement: CallPlacement, copy: PricedCopy
) -> CallEstimates:
    layouts = layouts_of(copy.placement)
    micro = _column(placement.micro_batch_size or 0)
    if call.kind == "train":
        recompute = _column(RECOMPUTES.index(placement.recompute or "none"))
        return pricing.train(call, copy.pool, layouts, micro_batch_size=micro, recompute=recompute)
    if call.kind == "forward":
        return pricing.forward(call, copy.pool, layouts, micro_batch_size=micro)
    budget = _column(placement.kv_cache_bytes or 0)
    engine, tail = _engine(placement, copy), tail_setting(placement, copy.placement)
    if copy.placement.kind == "shadow":
        return pricing.generate(call, copy.pool, engine, kv_cache_bytes=budget, tail=tail)
    return pricing.generate_from_home(
        call, copy.pool, layouts, engine, kv_cache_bytes=budget, tail=tail
    )


def layouts_of(copy: CopyPlacement) -> Layouts:
    """A copy's layout as columns of one row."""
    sizes = {
        name: _column(getattr(copy.layout, name))
        for name in Parallelism.model_fields
        if name != "sharding"
    }
    return Layouts(
        num_gpus=_column(copy.num_gpus),
        sharding=_column(SHARDINGS.index(copy.layout.sharding)),
        offload=_column(OFFLOADS.index(copy.offload)),
        **sizes,
    )


def _column(value: int) -> IntArray:
    return np.array([value], dtype=np.int64)


def _bytes_by_kind(columns: BytesColumns) -> BytesByKind:
    return BytesByKind(
        **{field.name: int(getattr(columns, field.name)[0]) for field in fields(columns)}
    )


def _seconds_by_part(estimates: CallEstimates, seconds: float) -> SecondsByPart:
    """Seconds by part, which sum to `seconds`: what rounding up adds is overhead."""
    parts = {
        field.name: float(getattr(estimates.seconds, field.name)[0])
        for field in fields(estimates.seconds)
    }
    parts["overhead"] += seconds - sum(parts.values())
    return SecondsByPart(**{name: max(value, 0.0) for name, value in parts.items()})
