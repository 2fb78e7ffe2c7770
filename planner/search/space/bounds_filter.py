"""Which rows a solution within a limit may have, by lower bounds on the period alone."""

from dataclasses import dataclass

import numpy as np

from automap.planner.layout import BoolArray, FloatArray, IntArray
from automap.planner.search.candidates.tables import CallTable, CopyTable, Tables
from automap.planner.search.model.bounds import Bounds, CallMinimum
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.pruning import SLACK
from automap.planner.search.space.rows import Rows


def rows_within(tables: Tables, problem: Problem, rows: Rows, upper_bound_seconds: float) -> Rows:
    """The members of `rows` that a solution within the upper bound can use; see `model.bounds`."""
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
        self.shares = [self.bounds.shares_of(sizes.pools, sizes.counts) for sizes in self.sizes]
        self.weights = [
            None if table.tail is None else self._tailed_weights(number, table)
            for number, table in enumerate(tables.calls)
        ]
        """Per call table [row, weight], where settings may free a part of their GPUs early."""

    def _tailed_weights(self, number: int, table: CallTable) -> FloatArray:
        copy = self.tables.copies[table.copy]
        pools, counts = copy.pool[table.copy_row], copy.layouts.num_gpus[table.copy_row]
        fewer, main_phase = table.tails(counts)
        sync = self.busy_seconds[number] - table.seconds

        def shares(sizes: IntArray) -> FloatArray:
            scale = int(counts.max(initial=0)) + 1
            keys, of_row = np.unique(pools * scale + sizes, return_inverse=True)
            known = self.bounds.shares_of(keys // scale, keys % scale)
            return np.asarray(known[of_row.reshape(-1)])

        rest = (table.seconds - main_phase)[:, None]
        return shares(counts) * (main_phase + sync)[:, None] + shares(fewer) * rest

    def run(self, limit: float) -> None:
        while self.every_call_has_rows():
            before = sum(int(mask.sum()) for mask in [*self.rows.calls, *self.rows.copies])
            minima = [self.minimum(call) for call in self.bounds.calls]
            offsets = self.bounds.offsets(minima)
            for number, table in enumerate(self.tables.calls):
                left = np.flatnonzero(self.rows.calls[number])
                within = self._within(number, left, offsets[table.call], limit)
                self.rows.calls[number][left] = within
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

    def _within(self, number: int, rows: IntArray, offsets: CallMinimum, limit: float) -> BoolArray:
        """Per given row of a call table whether the least period with it is within the limit."""
        table = self.tables.calls[number]
        within = self.seconds[number][rows] + offsets.seconds <= limit
        tailed = self.weights[number]
        if tailed is not None:
            return np.asarray(within & ((tailed[rows] + offsets.weights).max(axis=1) <= limit))
        # A weight is a share of the seconds that is the same for all rows of a size.
        left, shares = limit - np.array(offsets.weights), self.shares[table.copy]
        most = np.divide(left, shares, out=np.full(shares.shape, np.inf), where=shares > 0)
        most[:, left < 0] = -np.inf
        size = self.sizes[table.copy].of_row[table.copy_row[rows]]
        return np.asarray(within & (self.busy_seconds[number][rows] <= most.min(axis=1)[size]))

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
            fastest = np.full(len(self.sizes[table.copy].counts), np.inf)
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

    pools: IntArray
    counts: IntArray
    of_row: IntArray


def _sizes(copy: CopyTable) -> _Sizes:
    largest = int(copy.layouts.num_gpus.max(initial=0)) + 1
    key, of_row = np.unique(copy.pool * largest + copy.layouts.num_gpus, return_inverse=True)
    return _Sizes(key // largest, key % largest, of_row.reshape(-1).astype(np.int64))


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
