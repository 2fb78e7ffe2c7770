"""Placements and plans: from table rows to the published types, with every number priced anew."""

from dataclasses import dataclass, fields

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.check.prices import CallPrice, Prices, tail_setting
from automap.planner.check.subject import tolerance_seconds
from automap.planner.cost import memory
from automap.planner.cost.estimates import BytesColumns, CallEstimates
from automap.planner.cost.generation.streaming import TAILS, ready_seconds
from automap.planner.cost.model_flops import (
    model_flops,
    peak_flops_per_second,
    tokens_processed,
)
from automap.planner.cost.pricing import CopyBytes, Pricing, whole_microseconds
from automap.planner.cost.transition import received_bytes
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
from automap.planner.plan.runs_with import engine_name
from automap.planner.plan.types import (
    BytesByKind,
    CallPlacement,
    CallPlan,
    CopyPlacement,
    CopyPlan,
    GenerationTail,
    Parallelism,
    Placement,
    SecondsByPart,
    WeightSync,
)
from automap.planner.search import CallTable, CopyTable, Selected, Tables
from automap.planner.search.model.problem import Timing


def placement_of(job: Job, tables: Tables, placed: Selected) -> Placement:
    """The placement behind table rows; calls in the order in which they start."""
    timing = placed.timing
    order = sorted(
        range(len(job.dataflow.calls)),
        key=lambda call: (timing.call_stages[call], timing.call_starts[call], call),
    )
    copies = [
        _copy_placement(job, table, row, first)
        for table, row, first in zip(
            tables.copies, placed.copy_rows, placed.first_gpus, strict=True
        )
        if row is not None and first is not None
    ]
    calls = [_call_placement(job, tables, call, placed.call_rows[call]) for call in order]
    return Placement(copies=copies, calls=calls)


def _copy_placement(job: Job, table: CopyTable, row: int, first: int) -> CopyPlacement:
    pool = job.pools[int(table.pool[row])]
    layouts = table.layouts
    return CopyPlacement(
        id=table.id,
        role=table.role,
        kind="home" if table.shadow_of is None else "shadow",
        pool=pool.name,
        first_gpu=first - pool.first_gpu,
        num_gpus=int(layouts.num_gpus[row]),
        layout=_parallelism(layouts, row),
        offload=OFFLOADS[int(layouts.offload[row])],
    )


def _parallelism(layouts: Layouts, row: int) -> Parallelism:
    sizes = {
        name: int(getattr(layouts, name)[row])
        for name in Parallelism.model_fields
        if name != "sharding"
    }
    return Parallelism(**sizes, sharding=SHARDINGS[int(layouts.sharding[row])])


def _call_placement(
    job: Job, tables: Tables, number: int, chosen: tuple[int, int] | None
) -> CallPlacement:
    call = job.dataflow.calls[number]
    if chosen is None:
        return CallPlacement(id=call.id, role=call.role, kind=call.kind)
    copy, row = chosen
    table = next(t for t in tables.calls if t.call == number and t.copy == copy)
    copies = tables.copies[copy]
    if call.kind == "generate":
        parallelism = _engine_parallelism(table.engine, row)
    else:
        parallelism = _parallelism(copies.layouts, int(table.copy_row[row]))
    return CallPlacement(
        id=call.id,
        role=call.role,
        kind=call.kind,
        copy_id=copies.id,
        parallelism=parallelism,
        micro_batch_size=_given(table.micro_batch_size, row),
        recompute=RECOMPUTES[int(table.recompute[row])] if call.kind == "train" else None,
        kv_cache_bytes=_given(table.kv_cache_bytes, row),
        tail=_tail(table, row, int(copies.layouts.num_gpus[table.copy_row[row]])),
    )


def _tail(table: CallTable, row: int, num_gpus: int) -> GenerationTail | None:
    if table.tail is None or table.tail[row] == 0:
        return None
    tail = TAILS[int(table.tail[row]) - 1]
    tensor = int(table.engine.tensor_parallel_size[row]) * tail.tensor_factor
    return GenerationTail(
        num_gpus=num_gpus // tail.ratio,
        tensor_parallel_size=tensor if tail.tensor_factor > 1 else None,
        ended_share=tail.ended_share,
    )


def _engine_parallelism(engine: GenerationLayouts, row: int) -> Parallelism:
    return Parallelism(**{name: int(column[row]) for name, column in engine.columns().items()})


def _given(column: IntArray, row: int) -> int | None:
    """A setting from its column, in which 0 means that it does not apply."""
    return int(column[row]) or None


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


def copy_plans(job: Job, copies: list[PricedCopy]) -> list[CopyPlan]:
    """Copies as a plan states them."""
    return [
        CopyPlan(
            **copy.placement.model_dump(),
            engine=engine_name(job, copy.placement, job.target),
            layers_per_stage=_uneven_stages(job, copy.placement.role, copy.placement.layout),
            resident_bytes=copy.resident_bytes,
            host_bytes=copy.host_bytes,
            bytes_by_kind=copy.bytes_by_kind,
        )
        for copy in copies
    ]


def call_plans(
    job: Job, copies: list[PricedCopy], calls: list[PricedCall], timing: Timing
) -> list[CallPlan]:
    """Calls as a plan states them, in the order in which they start."""
    numbers = {call.id: number for number, call in enumerate(job.dataflow.calls)}
    roles = {copy.placement.id: copy.placement.role for copy in copies}
    plans = []
    for call in calls:
        number = numbers[call.placement.id]
        start = timing.call_starts[number]
        peak, capacity = peak_and_capacity(copies, call)
        plans.append(
            CallPlan(
                **call.placement.model_dump(),
                stage=timing.call_stages[number],
                start_seconds=start,
                end_seconds=start + call.seconds,
                bulk_end_seconds=None
                if call.main_phase_seconds is None
                else start + call.main_phase_seconds,
                streamed_from=_streamed_from(job, calls, number, timing),
                layers_per_stage=_uneven_stages(
                    job, roles.get(call.placement.copy_id or ""), call.placement.parallelism
                ),
                seconds_by_part=call.seconds_by_part,
                bytes_by_kind=call.bytes_by_kind,
                peak_bytes=peak,
                capacity_bytes=capacity,
                source=call.source,
                **_efficiency(job, copies, call, number),
            )
        )
    return sorted(plans, key=lambda plan: (plan.stage, plan.start_seconds))


def _uneven_stages(job: Job, role: str | None, layout: Parallelism | None) -> list[int] | None:
    """Layers of each pipeline stage of a role's model where they are not equally many."""
    if role is None or layout is None:
        return None
    return layout.uneven_stages(job.models[role].architecture.num_layers)


def _efficiency(
    job: Job, copies: list[PricedCopy], priced: PricedCall, number: int
) -> dict[str, float]:
    """Model FLOPs utilization and tokens per second and GPU; empty where no GPU is used."""
    copy = next((c for c in copies if c.placement.id == priced.placement.copy_id), None)
    call, workload = job.dataflow.calls[number], job.spec.workload
    if copy is None or call.model is None or not priced.seconds:
        return {}
    model = job.models[call.model]
    gpu_seconds = priced.seconds * copy.placement.num_gpus
    peak = peak_flops_per_second(model, call, workload, copy.pool)
    return {
        "model_flops_utilization": model_flops(model, call, workload) / (gpu_seconds * peak),
        "tokens_per_second_per_gpu": tokens_processed(call, workload) / gpu_seconds,
    }


def _streamed_from(job: Job, calls: list[PricedCall], number: int, timing: Timing) -> list[str]:
    """Calls behind streamed edges that have not ended when the call starts."""
    seconds = {call.placement.id: call.seconds for call in calls}
    numbers = {call.id: index for index, call in enumerate(job.dataflow.calls)}

    def start(call: int) -> float:
        return timing.call_starts[call] + timing.call_stages[call] * timing.period

    return [
        edge.source
        for edge in job.dataflow.edges
        if edge.streamed
        and numbers[edge.target] == number
        and _before(start(number), start(numbers[edge.source]) + seconds[edge.source])
    ]


def _before(one: float, other: float) -> bool:
    """Whether one time is earlier than another by more than rounding."""
    return one < other - tolerance_seconds(one, other)


def peak_and_capacity(copies: list[PricedCopy], call: PricedCall) -> tuple[int, int]:
    """(most bytes on any GPU of the call's range while it runs, usable bytes of such a GPU)."""
    own = next((c for c in copies if c.placement.id == call.placement.copy_id), None)
    if own is None:
        return 0, 0
    starts = {own.span.start, *(c.span.start for c in copies if c.span.start in own.span)}
    residents = max(
        sum(copy.resident_bytes for copy in copies if gpu in copy.span) for gpu in starts
    )
    return residents + call.bytes_by_kind.total, memory.usable_bytes(own.pool)


def weight_syncs(job: Job, copies: list[PricedCopy], timing: Timing) -> list[WeightSync]:
    """The weight syncs of a plan, one per shadow."""
    shadows = [copy for copy in copies if copy.placement.kind == "shadow"]
    plans = []
    for shadow, start, stage in zip(
        shadows,
        [start for start in timing.sync_starts if start is not None],
        [s for s, at in zip(timing.sync_stages, timing.sync_starts, strict=True) if at is not None],
        strict=True,
    ):
        role = shadow.placement.role
        home = next(c for c in copies if c.placement.role == role and c.placement.kind == "home")
        received = received_bytes(job.models[role], job.spec.workload, layouts_of(shadow.placement))
        plans.append(
            WeightSync(
                role=role,
                source_copy=home.placement.id,
                target_copy=shadow.placement.id,
                stage=stage,
                start_seconds=start,
                end_seconds=start + max(home.sync_seconds, shadow.sync_seconds),
                bytes_per_receiver=int(received[0]),
            )
        )
    return plans
