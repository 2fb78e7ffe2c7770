"""From priced tables to the placement problem: which rows become options, and back again."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.cost import constants, memory, transition
from automap.planner.dataflow.graph import Dataflow, weights_edge, with_staleness
from automap.planner.job.job import Job
from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates.tables import BoolArray, CallTable, CopyTable, Tables
from automap.planner.search.model.bounds import Bounds, CallMinimum
from automap.planner.search.model.options import CallOptions, CallPart, CopyOptions
from automap.planner.search.model.problem import (
    CallChoice,
    CopyChoice,
    PoolSlice,
    Precedence,
    Problem,
    WeightSyncChoice,
)
from automap.planner.search.model.pruning import SLACK


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows of the tables take part."""

    copies: list[BoolArray]
    calls: list[BoolArray]
    """Per call table."""

    def both(self, other: "Rows") -> "Rows":
        """The rows that are in both."""
        return Rows(
            [a & b for a, b in zip(self.copies, other.copies, strict=True)],
            [a & b for a, b in zip(self.calls, other.calls, strict=True)],
        )


def all_rows(tables: Tables) -> Rows:
    """Every row."""
    return Rows(
        [np.ones(len(copy), dtype=bool) for copy in tables.copies],
        [np.ones(len(call), dtype=bool) for call in tables.calls],
    )


def rows_up_to(tables: Tables, sizes: tuple[int, ...]) -> Rows:
    """The rows whose range has at most so many GPUs of its pool."""
    most = np.array(sizes, dtype=np.int64)
    copies = [copy.layouts.num_gpus <= most[copy.pool] for copy in tables.copies]
    return Rows(copies, [copies[call.copy][call.copy_row] for call in tables.calls])


def rows_with_counts(tables: Tables, counts: set[int]) -> Rows:
    """The rows whose range has one of the given sizes."""
    wanted = np.array(sorted(counts), dtype=np.int64)
    copies = [np.isin(copy.layouts.num_gpus, wanted) for copy in tables.copies]
    return Rows(copies, [copies[call.copy][call.copy_row] for call in tables.calls])


def rows_without_tails(tables: Tables) -> Rows:
    """The rows whose generation ends on all of its GPUs."""
    rows = all_rows(tables)
    calls = [
        mask if table.tail is None else table.tail == 0
        for table, mask in zip(tables.calls, rows.calls, strict=True)
    ]
    return Rows(rows.copies, calls)


@dataclass(frozen=True, slots=True)
class Arena:
    """Tables and the option-free problem on (part of) the cluster."""

    tables: Tables
    problem: Problem
    rows: Rows

    def options(self, rows: Rows) -> Problem:
        """The problem with the given rows as options."""
        return problem_of(self.problem, self.tables, rows)


def arena(tables: Tables, problem: Problem, sizes: tuple[int, ...] | None = None) -> Arena:
    """The whole cluster, or the first `sizes` GPUs of every pool (0: the pool is not touched)."""
    if sizes is None:
        sizes = tuple(pool.num_gpus for pool in problem.pools)
    pools = tuple(
        replace(pool, num_gpus=size) if size else pool
        for pool, size in zip(problem.pools, sizes, strict=True)
    )
    nodes = (-(-n // pool.gpus_per_node) for n, pool in zip(sizes, pools, strict=True))
    if sum(nodes) == 1:
        tables = tables.in_one_node()
    return Arena(tables, replace(problem, pools=pools), rows_up_to(tables, sizes))


@dataclass(frozen=True, slots=True)
class Compact:
    """An arena of some rows only, so that nothing walks the others again, and their old numbers."""

    arena: Arena
    copy_rows: list[IntArray]
    """Per copy."""
    call_rows: dict[tuple[int, int], IntArray]
    """Per call and copy."""


def compact(arena_: Arena, rows: Rows) -> Compact:
    """The given rows as an arena of their own."""
    tables = arena_.tables
    copy_rows = [np.flatnonzero(mask) for mask in rows.copies]
    copies, positions = [], []
    for copy, mine in zip(tables.copies, copy_rows, strict=True):
        position = np.full(len(copy), -1, dtype=np.int64)
        position[mine] = np.arange(len(mine))
        positions.append(position)
        copies.append(copy.take(mine))
    calls, call_rows = [], {}
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        mine = np.flatnonzero(mask & (positions[table.copy][table.copy_row] >= 0))
        part = table.take(mine)
        calls.append(replace(part, copy_row=positions[table.copy][part.copy_row]))
        call_rows[table.call, table.copy] = mine
    small = replace(tables, copies=copies, calls=calls)
    return Compact(Arena(small, arena_.problem, all_rows(small)), copy_rows, call_rows)


def skeleton(job: Job, tables: Tables) -> Problem:
    """The problem without options: pools, dataflow, syncs and forced pairs."""
    dataflow = with_staleness(job.dataflow, job.spec.search.staleness)
    numbers = {call.id: index for index, call in enumerate(dataflow.calls)}
    precedences = tuple(
        Precedence(
            numbers[edge.source],
            numbers[edge.target],
            edge.distance,
            job.spec.search.stream_chunks if edge.streamed else 0,
        )
        for edge in dataflow.edges
    )
    homes = {copy.role: i for i, copy in enumerate(tables.copies) if copy.shadow_of is None}
    constraints = job.spec.constraints
    return Problem(
        pools=tuple(pool_slices(job)),
        copies=tuple(CopyChoice(copy.id, copy.role, copy.shadow_of, ()) for copy in tables.copies),
        calls=tuple(CallChoice(call.id, (), call.fixed_seconds or 0.0) for call in dataflow.calls),
        precedences=precedences,
        syncs=tuple(_syncs(dataflow, tables)),
        barrier=not job.spec.search.cyclic,
        colocate=tuple((homes[one], homes[other]) for one, other in constraints.colocate),
        separate=tuple(
            (first, second)
            for one, other in constraints.separate
            for first in _copies_of(tables, one)
            for second in _copies_of(tables, other)
        ),
    )


def _copies_of(tables: Tables, role: str) -> list[int]:
    return [index for index, copy in enumerate(tables.copies) if copy.role == role]


def pool_slices(job: Job) -> list[PoolSlice]:
    """The pools on the GPU axis, with what a plan may use of them."""
    return [
        PoolSlice(
            name=pool.name,
            first_gpu=pool.first_gpu,
            num_gpus=pool.num_gpus - pool.kept_free_gpus,
            gpus_per_node=pool.gpus_per_node,
            capacity_bytes=memory.usable_bytes(pool),
            host_bytes=int(constants.HOST_SHARE * pool.host_memory_bytes / pool.gpus_per_node),
            price_per_gpu_second=pool.price_per_gpu_hour / 3600.0,
        )
        for pool in job.pools
    ]


def _syncs(dataflow: Dataflow, tables: Tables) -> list[WeightSyncChoice]:
    """A shadow's sync follows its role's last train call, as far back as its rollouts allow."""
    numbers = {call.id: index for index, call in enumerate(dataflow.calls)}
    syncs = []
    for index, copy in enumerate(tables.copies):
        if copy.shadow_of is None:
            continue
        edge = weights_edge(dataflow, copy.role)
        assert edge is not None, "candidates gives no other role a shadow"
        syncs.append(
            WeightSyncChoice(
                home=copy.shadow_of,
                shadow=index,
                train=numbers[edge.source],
                distance=edge.distance,
                bucket_bytes=transition.sync_bucket_bytes(),
            )
        )
    return syncs


def rows_within(tables: Tables, problem: Problem, rows: Rows, upper_bound_seconds: float) -> Rows:
    """Of `rows` those that a solution no slower than the bound can use (see bounds.py)."""
    filter_ = _Filter(tables, problem, rows)
    filter_.run(upper_bound_seconds * (1 + SLACK))
    return filter_.rows


def least_period(tables: Tables, problem: Problem, rows: Rows) -> float | None:
    """A lower bound on the period with these rows; None where a call has none."""
    filter_ = _Filter(tables, problem, rows)
    if not filter_.every_call_has_rows():
        return None
    return filter_.bounds.period([filter_.minimum(call) for call in filter_.bounds.calls])


class _Filter:
    """Drops rows whose bound exceeds a limit, until none does."""

    def __init__(self, tables: Tables, problem: Problem, rows: Rows) -> None:
        self.tables, self.problem = tables, problem
        self.bounds = Bounds(problem, {(table.call, table.copy) for table in tables.calls})
        self.rows = rows.both(rows)
        self.seconds = [self._seconds(table) for table in tables.calls]
        """Per call table: seconds on a path, with the weight sync that must come first."""
        self.busy_seconds = [self._busy_seconds(table) for table in tables.calls]
        """Per call table: seconds for sums, in which one call counts the sync."""
        self.sizes = [_sizes(copy) for copy in tables.copies]
        self.shares = [self._shares(sizes.keys) for sizes in self.sizes]
        self.weights = [
            None if table.tail is None else self._tailed_weights(number, table)
            for number, table in enumerate(tables.calls)
        ]
        """Per call table [row, weight], where settings may free a part of their GPUs early."""

    def _shares(self, sizes: list[tuple[int, int]]) -> FloatArray:
        """[size, weight] weights of one second."""
        places = len(self.bounds.shares(0, 1))
        return np.array([self.bounds.shares(*size) for size in sizes]).reshape(-1, places)

    def _tailed_weights(self, number: int, table: CallTable) -> FloatArray:
        copy = self.tables.copies[table.copy]
        pools, counts = copy.pool[table.copy_row], copy.layouts.num_gpus[table.copy_row]
        fewer, bulk = table.tails(counts)
        sync = self.busy_seconds[number] - table.seconds

        def shares(sizes: IntArray) -> FloatArray:
            scale = int(counts.max(initial=0)) + 1
            keys, of_row = np.unique(pools * scale + sizes, return_inverse=True)
            known = self._shares([(int(key) // scale, int(key) % scale) for key in keys])
            return np.asarray(known[of_row.reshape(-1)])

        rest = (table.seconds - bulk)[:, None]
        return shares(counts) * (bulk + sync)[:, None] + shares(fewer) * rest

    def run(self, limit: float) -> None:
        while self.every_call_has_rows():
            before = sum(int(mask.sum()) for mask in [*self.rows.calls, *self.rows.copies])
            minima = [self.minimum(call) for call in self.bounds.calls]
            offsets = self.bounds.offsets(minima)
            for number, table in enumerate(self.tables.calls):
                self.rows.calls[number] &= self._least_period(number, offsets[table.call]) <= limit
            for copy in range(len(self.tables.copies)):
                self.rows.copies[copy] &= self._joint_period(copy, minima) <= limit
            _drop_orphans(self.tables, self.rows)
            if sum(int(mask.sum()) for mask in [*self.rows.calls, *self.rows.copies]) == before:
                return

    def every_call_has_rows(self) -> bool:
        wanted = {table.call for table in self.tables.calls}
        have = {t.call for n, t in enumerate(self.tables.calls) if self.rows.calls[n].any()}
        return wanted == have

    def _seconds(self, table: CallTable) -> FloatArray:
        copy = self.tables.copies[table.copy]
        if copy.shadow_of is None or not self.bounds.is_source[table.call]:
            return table.seconds
        return table.seconds + copy.sync_seconds[table.copy_row]

    def _busy_seconds(self, table: CallTable) -> FloatArray:
        if not self.bounds.counts_sync(table.call, table.copy):
            return table.seconds
        return table.seconds + self.tables.copies[table.copy].sync_seconds[table.copy_row]

    def _least_period(self, number: int, offsets: CallMinimum) -> FloatArray:
        """Per row of a call table the least period with that row."""
        table, busy = self.tables.calls[number], self.busy_seconds[number]
        size = self.sizes[table.copy].of_row[table.copy_row]
        least = self.seconds[number] + offsets.seconds
        tailed = self.weights[number]
        if tailed is not None:
            return np.asarray(np.maximum(least, (tailed + offsets.weights).max(axis=1)))
        for column, rest in zip(self.shares[table.copy].T, offsets.weights, strict=True):
            least = np.maximum(least, column[size] * busy + rest)
        return least

    def _joint_period(self, copy: int, minima: list[CallMinimum]) -> FloatArray:
        """Per row of a copy the least period with all calls that can only run there."""
        tables = self.tables.calls
        own = [
            number
            for number, table in enumerate(tables)
            if table.copy == copy
            and not any(
                other.call == table.call and other.copy != copy and self.rows.calls[n].any()
                for n, other in enumerate(tables)
            )
        ]
        total = np.zeros(len(self.tables.copies[copy]))
        for number in own:
            fastest = np.full(len(total), np.inf)
            mask = self.rows.calls[number]
            np.minimum.at(fastest, tables[number].copy_row[mask], self.busy_seconds[number][mask])
            total += fastest
        rest = self.bounds.joint_offset(minima, [tables[number].call for number in own])
        return total if rest is None else total + rest

    def minimum(self, call: int) -> CallMinimum:
        """Least seconds and least weights of a call over its rows that are left."""
        seconds, weights = [], []
        for number, table in enumerate(self.tables.calls):
            mask = self.rows.calls[number]
            if table.call != call or not mask.any():
                continue
            tailed = self.weights[number]
            if tailed is not None:
                seconds.append(float(self.seconds[number][mask].min()))
                weights.append(tailed[mask].min(axis=0))
                continue
            fastest = np.full(len(self.sizes[table.copy].keys), np.inf)
            size = self.sizes[table.copy].of_row[table.copy_row[mask]]
            np.minimum.at(fastest, size, self.busy_seconds[number][mask])
            there = np.isfinite(fastest)
            seconds.append(float(self.seconds[number][mask].min()))
            weights.append((self.shares[table.copy][there] * fastest[there, None]).min(axis=0))
        if not seconds:
            zeros = (0.0,) * len(self.bounds.shares(0, 1))
            return CallMinimum(self.problem.calls[call].fixed_seconds, zeros)
        return CallMinimum(min(seconds), tuple(map(float, np.min(weights, axis=0))))


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The distinct (pool, GPUs) of a copy's rows, and which one each row has."""

    keys: list[tuple[int, int]]
    of_row: IntArray


def _sizes(copy: CopyTable) -> _Sizes:
    largest = int(copy.layouts.num_gpus.max(initial=0)) + 1
    key, of_row = np.unique(copy.pool * largest + copy.layouts.num_gpus, return_inverse=True)
    keys = [(int(k) // largest, int(k) % largest) for k in key]
    return _Sizes(keys, of_row.reshape(-1).astype(np.int64))


def _drop_orphans(tables: Tables, rows: Rows) -> None:
    """A copy row needs a setting for every call that has no other copy; settings need a copy."""
    while True:
        before = sum(int(mask.sum()) for mask in rows.copies)
        for index, copy in enumerate(tables.copies):
            users = [n for n, table in enumerate(tables.calls) if table.copy == index]
            served = np.zeros(len(copy), dtype=bool)
            for number in users:
                table, has = tables.calls[number], np.zeros(len(copy), dtype=bool)
                has[table.copy_row[rows.calls[number]]] = True
                served |= has
                elsewhere = any(
                    other.call == table.call and other.copy != index and rows.calls[n].any()
                    for n, other in enumerate(tables.calls)
                )
                if not elsewhere:
                    rows.copies[index] &= has
            if copy.shadow_of is not None:
                rows.copies[index] &= served
            for number in users:
                rows.calls[number] &= rows.copies[index][tables.calls[number].copy_row]
        if sum(int(mask.sum()) for mask in rows.copies) == before:
            return


def problem_of(problem: Problem, tables: Tables, rows: Rows) -> Problem:
    """The skeleton with an option for every row that takes part."""
    positions, copies = [], []
    for choice, copy, mask in zip(problem.copies, tables.copies, rows.copies, strict=True):
        numbers = np.flatnonzero(mask)
        position = np.full(len(copy), -1, dtype=np.int64)
        position[numbers] = np.arange(len(numbers))
        positions.append(position)
        options = CopyOptions(
            copy.pool[numbers],
            copy.layouts.num_gpus[numbers],
            copy.resident_bytes[numbers],
            copy.host_bytes[numbers],
            copy.sync_seconds[numbers],
            numbers,
        )
        copies.append(replace(choice, options=options))
    parts: list[list[CallPart]] = [[] for _ in problem.calls]
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        numbers = np.flatnonzero(mask)
        owners = positions[table.copy][table.copy_row[numbers]]
        parts[table.call].append(_part(tables, table, numbers, owners))
    calls = [
        replace(call, options=CallOptions(tuple(mine)))
        for call, mine in zip(problem.calls, parts, strict=True)
    ]
    return replace(problem, copies=tuple(copies), calls=tuple(calls))


def _part(tables: Tables, table: CallTable, numbers: IntArray, owners: IntArray) -> CallPart:
    """The options of a call on a copy: rows of its table, and the copy's options they belong to."""
    seconds, transient = table.seconds[numbers], table.transient_bytes[numbers]
    if table.shares is None and table.tail is None:
        none = np.zeros((len(numbers), 0))
        return CallPart(table.copy, owners, seconds, transient, numbers, none, None, seconds)
    part = table.take(numbers)
    counts = tables.copies[table.copy].layouts.num_gpus[part.copy_row]
    fewer, bulk = part.tails(counts)
    tails = None if part.tail is None else np.where(fewer < counts, fewer, 0)
    return CallPart(table.copy, owners, seconds, transient, numbers, part.releases(), tails, bulk)
