"""A job with its priced tables, kept so that the next question about it need not price again."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.assembly import layouts_of, placement_of, price_call, price_copy
from planner.cost.pricing import Engine, Pricing
from planner.errors import SpecError
from planner.job import Job
from planner.layout import RECOMPUTES, FloatArray, IntArray, Layouts
from planner.resolve import resolve
from planner.result import CallPlacement, CopyPlacement, Parallelism, Placement, Plan
from planner.search.candidates import price
from planner.search.objectives import touched_gpus
from planner.search.problem import Problem, Timing
from planner.search.search import Selected
from planner.search.space import Rows, skeleton
from planner.search.tables import CallTable, CopyTable, Tables, joined_calls, joined_layouts
from planner.spec import JobSpec, unrunnable_field

KEPT = 3
"""Jobs whose tables a process keeps; those of 1,024 GPUs take about 50 MB."""
_kept: "OrderedDict[str, Tables]" = OrderedDict()


@dataclass(frozen=True)
class Study:
    """What every question about one job shares."""

    job: Job
    tables: Tables
    problem: Problem
    """Without options."""

    def __post_init__(self) -> None:
        """Refuse what questions are not asked about.

        Raises:
            SpecError: calls may be streamed, or generations have a tail. What waits for such a call
                waits for a part of its duration; questions know only whole ones.
        """
        if (field := unrunnable_field(self.job.spec)) is not None:
            raise SpecError(
                field,
                "explanations, robust plans and re-planning know no streamed calls and no tails",
                remedy="plan without it",
            )

    @cached_property
    def pricing(self) -> Pricing:
        """Its cost model."""
        return Pricing(self.job)

    @cached_property
    def reshard_seconds(self) -> list[FloatArray | None]:
        """Per call table the reshard's part of each row; None where there is no such part."""
        return [self._reshard_seconds(table) for table in self.tables.calls]

    def _reshard_seconds(self, table: CallTable) -> FloatArray | None:
        call, copy = self.job.dataflow.calls[table.call], self.tables.copies[table.copy]
        if call.kind != "generate" or copy.shadow_of is not None:
            return None
        return self.reshard_part(table, np.arange(len(table), dtype=np.int64))

    def reshard_part(self, table: CallTable, rows: IntArray) -> FloatArray:
        """Seconds of the reshard in some rows; 0 for calls that need none."""
        call, copy = self.job.dataflow.calls[table.call], self.tables.copies[table.copy]
        seconds = np.zeros(len(rows))
        if call.kind != "generate" or copy.shadow_of is not None:
            return seconds
        pool_of = copy.pool[table.copy_row[rows]]
        for index, pool in enumerate(self.job.pools):
            here = np.flatnonzero(pool_of == index)
            layouts = copy.layouts.take(table.copy_row[rows[here]])
            engine = table.engine.take(rows[here])
            if len(here):
                seconds[here] = self.pricing.reshard(call, pool, layouts, engine)[0]
        return np.minimum(seconds, table.seconds[rows])

    def placement(self, selected: Selected) -> Placement:
        """A placement by rows in words."""
        return placement_of(self.job, self.tables, selected)

    def gpus(self, selected: Selected) -> int:
        """GPUs of all nodes that a placement touches."""
        return sum(touched_gpus(self.tables, self.problem, selected))

    def with_tables(self, tables: Tables) -> "Study":
        """The same job with other tables of the same copies."""
        return replace(self, tables=tables)


def study(spec: JobSpec, *, fits_only: bool = True) -> Study:
    """The job with its tables: priced, or as this process has kept them.

    Raises:
        SpecError: as make_plan.
    """
    job = resolve(spec)
    key = _key(job, fits_only=fits_only)
    if key not in _kept:
        _kept[key] = price(job, fits_only=fits_only)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    tables = _kept[key]
    return Study(job, tables, skeleton(job, tables))


def fresh(spec: JobSpec, *, fits_only: bool = True) -> Study:
    """The job with its tables, priced and not kept: for a variant that nobody asks about again."""
    job = resolve(spec)
    tables = price(job, fits_only=fits_only)
    return Study(job, tables, skeleton(job, tables))


def is_kept(spec: JobSpec) -> bool:
    """True when the tables of a job need not be priced again."""
    return _key(resolve(spec), fits_only=True) in _kept


def forget() -> None:
    """Keep no tables any more: the next question about any job prices them."""
    _kept.clear()


def _key(job: Job, *, fits_only: bool) -> str:
    """All that prices depend on: the spec without how to search, and the tables' versions."""
    spec, pricing = job.spec, Pricing(job)
    search = spec.search.model_dump(include={"staleness", "iteration_barrier"})
    document = spec.model_dump_json(exclude={"name", "search"})
    versions = [pricing.profile(pool).version for pool in job.pools]
    return f"{document} {search} {versions} {fits_only}"


def located(given: Study, placement: Placement, timing: Timing) -> tuple[Study, Selected]:
    """A placement by rows of the tables; what they lack is priced and added at their end.

    A plan of the caller's own may have settings that the enumeration leaves out, or that pruning
    dropped because others are as good.

    Raises:
        SpecError: a copy of the placement is none that the job may have.
    """
    tables = given.tables
    copies, rows = list(tables.copies), [None] * len(tables.copies)
    firsts: list[int | None] = [None] * len(copies)
    number = {copy.id: index for index, copy in enumerate(copies)}
    copy_rows: list[int | None] = list(rows)
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
    return given.with_tables(grown), selected


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
    priced = price_copy(given.pricing, copy)
    grown = replace(
        table,
        pool=np.append(table.pool, pool),
        layouts=joined_layouts([table.layouts, wanted]),
        resident_bytes=np.append(table.resident_bytes, priced.resident_bytes),
        host_bytes=np.append(table.host_bytes, priced.host_bytes),
        sync_seconds=np.append(table.sync_seconds, priced.sync_seconds),
    )
    return grown, len(table)


def _with_call(
    given: Study, table: CallTable, call: CallPlacement, copy: CopyPlacement, copy_row: int
) -> tuple[CallTable, int]:
    """The table and the row of a call in it."""
    engine = _engine(call.parallelism or copy.layout)
    wanted = {
        "copy_row": copy_row,
        "micro_batch_size": call.micro_batch_size or 0,
        "recompute": RECOMPUTES.index(call.recompute or "none"),
        "kv_cache_bytes": call.kv_cache_bytes or 0,
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
    row = CallTable(
        call=table.call,
        copy=table.copy,
        seconds=np.array([priced.seconds]),
        transient_bytes=np.array([priced.bytes_by_kind.total], dtype=np.int64),
        engine=engine,
        **columns,
    )
    return joined_calls([table, row]), len(table)


def _engine(layout: Parallelism) -> Engine:
    names = Engine.__dataclass_fields__
    return Engine(*(np.array([getattr(layout, name)], dtype=np.int64) for name in names))


def restricted(given: Study, rows: Rows) -> Study:
    """The study with the given rows alone, numbered anew; every home must have some."""
    return Narrowed.of(given, rows).study


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A study with some rows alone, and their numbers in the one that it comes from."""

    study: Study
    copy_rows: list[IntArray]
    call_rows: list[IntArray]

    @staticmethod
    def of(given: Study, rows: Rows) -> "Narrowed":
        """The study with the given rows."""
        copies, positions, kept_copies = [], [], []
        for copy, mask in zip(given.tables.copies, rows.copies, strict=True):
            # A shadow that no call can use is as good as none; a table has at least a row.
            keep = np.flatnonzero(mask) if mask.any() else np.zeros(1, dtype=np.int64)
            position = np.full(len(copy), -1, dtype=np.int64)
            position[keep] = np.arange(len(keep))
            positions.append(position)
            kept_copies.append(keep)
            columns = ("pool", "resident_bytes", "host_bytes", "sync_seconds")
            taken = {name: getattr(copy, name)[keep] for name in columns}
            copies.append(replace(copy, layouts=copy.layouts.take(keep), **taken))
        calls, kept_calls = [], []
        for table, mask in zip(given.tables.calls, rows.calls, strict=True):
            keep = np.flatnonzero(mask & rows.copies[table.copy][table.copy_row])
            part = table.take(keep)
            kept_calls.append(keep)
            calls.append(replace(part, copy_row=positions[table.copy][part.copy_row]))
        tables = replace(given.tables, copies=copies, calls=calls)
        return Narrowed(given.with_tables(tables), kept_copies, kept_calls)

    def original(self, selected: Selected) -> Selected:
        """A placement by the rows of the study that this one comes from."""
        tables = self.study.tables.calls
        at = {(table.call, table.copy): n for n, table in enumerate(tables)}
        return Selected(
            tuple(
                None if row is None else int(self.copy_rows[index][row])
                for index, row in enumerate(selected.copy_rows)
            ),
            selected.first_gpus,
            tuple(
                None if c is None else (c[0], int(self.call_rows[at[n, c[0]]][c[1]]))
                for n, c in enumerate(selected.call_rows)
            ),
            selected.timing,
        )
