"""Placements as users see them: from table rows to names and sizes."""

from automap.planner.cost.generation.streaming import TAILS
from automap.planner.job.job import Job
from automap.planner.layout import (
    OFFLOADS,
    RECOMPUTES,
    SHARDINGS,
    GenerationLayouts,
    IntArray,
    Layouts,
)
from automap.planner.plan.types import (
    CallPlacement,
    CopyPlacement,
    GenerationTail,
    Parallelism,
    Placement,
)
from automap.planner.search import CallTable, CopyTable, Selected, Tables


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
