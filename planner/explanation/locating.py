"""A plan by rows of its job's tables: what the tables lack is priced and added at their end."""

from dataclasses import replace
from typing import Any

import numpy as np

from automap.planner.assembly.parts import layouts_of, price_call, price_copy
from automap.planner.check.prices import tail_setting
from automap.planner.cost.generation.streaming import TAILS
from automap.planner.cost.pricing import GenerationLayouts
from automap.planner.errors import SpecError
from automap.planner.explanation.study import Study
from automap.planner.job.job import Job
from automap.planner.layout import RECOMPUTES, Layouts
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement, Plan
from automap.planner.search import CallTable, CopyTable, Selected
from automap.planner.search.model.problem import Timing


def locate(given: Study, placement: Placement, timing: Timing) -> tuple[Study, Selected]:
    """A placement by rows of the tables; what they lack is priced and added at their end.

    A plan of the caller's own may have settings that the enumeration leaves out, or that pruning
    dropped because others are as good.

    Raises:
        SpecError: a copy of the placement is none that the job may have.
    """
    tables = given.tables
    copies = list(tables.copies)
    firsts: list[int | None] = [None] * len(copies)
    number = {copy.id: index for index, copy in enumerate(copies)}
    copy_rows: list[int | None] = [None] * len(copies)
    for copy in placement.copies:
        if copy.id not in number:
            known = ", ".join(number)
            raise SpecError(
                "plan.copies", f"this job has no copy {copy.id!r}", remedy=f"use some of {known}"
            )
        index = number[copy.id]
        copies[index], copy_rows[index] = _with_copy(given, copies[index], copy)
        firsts[index] = given.job.pools[_pool(given.job, copy)].first_gpu + copy.first_gpu
    calls = list(tables.calls)
    call_rows: list[tuple[int, int] | None] = [None] * len(given.job.dataflow.calls)
    positions = {call.id: index for index, call in enumerate(given.job.dataflow.calls)}
    by_id = {copy.id: copy for copy in placement.copies}
    for call in placement.calls:
        if call.copy_id is None:
            continue
        copy_index, call_index = number[call.copy_id], positions[call.id]
        at = next(n for n, t in enumerate(calls) if (t.call, t.copy) == (call_index, copy_index))
        row = copy_rows[copy_index]
        assert row is not None, "the placement was checked: its copies are there"
        calls[at], found = _with_call(given, calls[at], call, by_id[call.copy_id], row)
        call_rows[call_index] = (copy_index, found)
    grown = replace(tables, copies=copies, calls=calls)
    selected = Selected(tuple(copy_rows), tuple(firsts), tuple(call_rows), timing)
    return given.on(given.space.with_tables(grown)), selected


def timing_of(given: Study, plan: Plan) -> Timing:
    """A plan's schedule by the numbers of the job's calls and syncs."""
    calls = {call.id: call for call in plan.calls}
    ordered = [calls[call.id] for call in given.job.dataflow.calls]
    syncs = {sync.target_copy: sync for sync in plan.transitions}
    shadows = [given.tables.copies[sync.shadow].id for sync in given.problem.syncs]
    there = [syncs.get(shadow) for shadow in shadows]
    return Timing(
        period=plan.iteration_seconds,
        call_starts=tuple(call.start_seconds for call in ordered),
        call_stages=tuple(call.stage for call in ordered),
        sync_starts=tuple(None if sync is None else sync.start_seconds for sync in there),
        sync_stages=tuple(0 if sync is None else sync.stage for sync in there),
    )


def _pool(job: Job, copy: CopyPlacement) -> int:
    return next(i for i, pool in enumerate(job.pools) if pool.name == copy.pool)


def _with_copy(given: Study, table: CopyTable, copy: CopyPlacement) -> tuple[CopyTable, int]:
    """The table and the row of a copy in it."""
    wanted, pool = layouts_of(copy), _pool(given.job, copy)
    same = table.pool == pool
    for name in Layouts.__dataclass_fields__:
        same &= getattr(table.layouts, name) == getattr(wanted, name)[0]
    found = np.flatnonzero(same)
    if len(found):
        return table, int(found[0])
    in_one_node = given.space.is_in_one_node
    pricing = replace(given.pricing, one_node=True) if in_one_node else given.pricing
    priced = price_copy(pricing, copy)
    alone = None
    if table.node_sync_seconds is not None:
        alone = price_copy(replace(given.pricing, one_node=True), copy).sync_seconds
    row = replace(
        table,
        pool=np.array([pool], dtype=np.int64),
        layouts=wanted,
        resident_bytes=np.array([priced.resident_bytes], dtype=np.int64),
        host_bytes=np.array([priced.host_bytes], dtype=np.int64),
        sync_seconds=np.array([priced.sync_seconds]),
        node_sync_seconds=None if alone is None else np.array([alone]),
        process=table.any_process(),
    )
    return table.joined(row), len(table)


def _with_call(
    given: Study, table: CallTable, call: CallPlacement, copy: CopyPlacement, copy_row: int
) -> tuple[CallTable, int]:
    """The table and the row of a call in it."""
    engine = _engine(call.parallelism or copy.layout)
    number = _tail_number(call, copy)
    if number and table.tail is None:
        none = np.zeros(len(table), dtype=np.int64)
        table = replace(table, tail=none, main_phase_shares=np.ones(len(table)))
    wanted = {
        "copy_row": copy_row,
        "micro_batch_size": call.micro_batch_size or 0,
        "recompute": RECOMPUTES.index(call.recompute or "none"),
        "kv_cache_bytes": call.kv_cache_bytes or 0,
        **({} if table.tail is None else {"tail": number}),
    }
    same = np.ones(len(table), dtype=bool)
    for name, value in wanted.items():
        same &= getattr(table, name) == value
    if call.kind == "generate":
        for name, column in engine.columns().items():
            same &= getattr(table.engine, name) == column[0]
    found = np.flatnonzero(same)
    if len(found):
        return table, int(found[0])
    flow = given.job.dataflow.calls[table.call]
    priced = price_call(given.pricing, flow, call, price_copy(given.pricing, copy))
    columns: dict[str, Any] = {
        name: np.array([value], dtype=np.int64) for name, value in wanted.items()
    }
    columns |= _optional_columns(given, table, call, copy, priced.seconds)
    row = CallTable(
        call=table.call,
        copy=table.copy,
        seconds=np.array([priced.seconds]),
        transient_bytes=np.array([priced.bytes_by_kind.total], dtype=np.int64),
        engine=engine,
        process=table.any_process(),
        **columns,
    )
    return table.joined(row), len(table)


def _tail_number(call: CallPlacement, copy: CopyPlacement) -> int:
    """Which of TAILS a generation has, from 1; 0: none.

    Raises:
        SpecError: a tail of the caller's own, which the search does not try.
    """
    wanted = tail_setting(call, copy)
    if wanted is None:
        return 0
    if wanted not in TAILS:
        assert call.tail is not None
        known = ", ".join(
            f"{tail.ended_share:g} "
            + (f"on 1/{tail.ratio} of the GPUs" if tail.ratio > 1 else "")
            + (f"with {tail.tensor_factor} times the tensor size" if tail.ratio == 1 else "")
            for tail in TAILS
        )
        raise SpecError(
            f"plan.calls.{call.id}.tail",
            f"the search tries no tail after {call.tail.ended_share:g} of the responses on "
            f"{call.tail.num_gpus} GPUs, so there is nothing to compare the placement with",
            remedy=f"estimate the placement with a tail after {known}",
        )
    return TAILS.index(wanted) + 1


def _optional_columns(
    given: Study, table: CallTable, call: CallPlacement, copy: CopyPlacement, seconds: float
) -> dict[str, Any]:
    """Optional columns of one row: when each chunk is out, and when its main phase ends."""
    if call.kind != "generate":
        return {}
    found = given.pricing.output_timeline(
        given.job.dataflow.calls[table.call],
        given.job.pools[_pool(given.job, copy)],
        _engine(call.parallelism or copy.layout),
        kv_cache_bytes=np.array([call.kv_cache_bytes or 0], dtype=np.int64),
        tail=tail_setting(call, copy),
        seconds=seconds,
    )
    columns: dict[str, Any] = {
        "chunk_ready_shares": np.array([found.chunk_ready_shares])
        if found.chunk_ready_shares
        else None
    }
    if table.tail is not None:
        columns["main_phase_shares"] = np.array(
            [1.0 if found.main_phase_share is None else found.main_phase_share]
        )
    return columns


def _engine(layout: Parallelism) -> GenerationLayouts:
    names = GenerationLayouts.__dataclass_fields__
    return GenerationLayouts(*(np.array([getattr(layout, name)], dtype=np.int64) for name in names))
