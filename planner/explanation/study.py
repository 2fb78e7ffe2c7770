"""A job with its priced tables, kept so that the next question about it need not price again."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from automap.planner.assembly.parts import placement_of
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.generation.streaming import TAILS
from automap.planner.cost.pricing import GenerationLayouts, Pricing
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job
from automap.planner.job.resolve import resolve
from automap.planner.layout import FloatArray, IntArray
from automap.planner.plan.types import Placement
from automap.planner.search.candidates.tables import CallTable, Tables
from automap.planner.search.candidates.tabulate import price
from automap.planner.search.model.problem import Problem
from automap.planner.search.objectives import touched_gpus
from automap.planner.search.space.search_space import Rows, skeleton
from automap.planner.search.space.selected import Selected
from automap.planner.spec import JobSpec

KEPT = 3
"""Jobs whose tables a process keeps; those of 1,024 GPUs take about 50 MB."""
PRICED = {
    "staleness",
    "iteration_barrier",
    "streaming",
    "stream_chunks",
    "generation_tail",
    "generation_tensor_schedule",
}
"""Fields of the search that decide which candidates there are, and their prices."""
_kept: "OrderedDict[str, Tables]" = OrderedDict()


@dataclass(frozen=True)
class Study:
    """What every question about one job shares."""

    job: Job
    tables: Tables
    problem: Problem
    """Without options."""

    @cached_property
    def pricing(self) -> Pricing:
        """Its cost model."""
        return Pricing(self.job)

    @cached_property
    def reshard_seconds(self) -> list[FloatArray | None]:
        """Per call table the reshard's part of each row; None where there is no such part."""
        return [self._reshard_seconds(table) for table in self.tables.calls]

    def _reshard_seconds(self, table: CallTable) -> FloatArray | None:
        return self.reshard_part(table, np.arange(len(table), dtype=np.int64))

    def reshard_part(self, table: CallTable, rows: IntArray) -> FloatArray | None:
        """Seconds in some rows that move weights; None for a call that moves none.

        From training to generation layout, and to the tensor size of a tail.
        """
        call, copy = self.job.dataflow.calls[table.call], self.tables.copies[table.copy]
        resharded = copy.shadow_of is None
        if call.kind != "generate" or not (resharded or table.tail is not None):
            return None
        seconds = np.zeros(len(rows))
        pool_of = copy.pool[table.copy_row[rows]]
        for index, pool in enumerate(self.job.pools):
            here = np.flatnonzero(pool_of == index)
            if len(here) == 0:
                continue
            engine = table.engine.take(rows[here])
            if resharded:
                layouts = copy.layouts.take(table.copy_row[rows[here]])
                seconds[here] += self.pricing.reshard(call, pool, layouts, engine)[0]
            if table.tail is not None:
                seconds[here] += self._relayouts(call, pool, engine, table.tail[rows[here]])
        return np.minimum(seconds, table.seconds[rows])

    def _relayouts(
        self, call: Call, pool: Pool, engine: GenerationLayouts, tails: IntArray
    ) -> FloatArray:
        """Seconds to the tensor size of each row's tail."""
        seconds = np.zeros(len(tails))
        for number, tail in enumerate(TAILS, start=1):
            here = np.flatnonzero(tails == number)
            if tail.tensor_factor > 1 and len(here):
                part = engine.take(here)
                seconds[here] = self.pricing.relayout_seconds(call, pool, part, tail)
        return seconds

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
    search = spec.search.model_dump(include=PRICED)
    document = spec.model_dump_json(exclude={"name", "search"})
    versions = [pricing.profile(pool).version for pool in job.pools]
    return f"{document} {search} {versions} {fits_only}"


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
            copies.append(copy.take(keep))
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
