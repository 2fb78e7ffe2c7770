"""The search space: priced candidates, the problem they are options of, and which take part."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType

import numpy as np

from automap.planner.job.job import Job
from automap.planner.layout import IntArray
from automap.planner.search.candidates.tables import BoolArray, Tables
from automap.planner.search.model.problem import Assignment, CopyChoice, Problem, Range, Timing
from automap.planner.search.model.timing import exact_timing
from automap.planner.search.space.bounds_filter import least_period, rows_within
from automap.planner.search.space.rows import (
    Rows,
    Selected,
    all_rows,
    rows_of_placement,
    rows_up_to,
)
from automap.planner.search.space.structure import problem_of, problem_structure


@dataclass(frozen=True, slots=True)
class Origin:
    """Which rows of a larger space the rows of a restricted space are."""

    copy_rows: list[IntArray]
    """Per copy, the larger space's row of each of its rows."""
    call_rows: dict[tuple[int, int], IntArray]
    """Per (call, copy), the larger space's row of each of its rows."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """All placements of a job, or a part of them.

    `restrict` takes candidates away and numbers the others anew; `lift` says where a placement
    that was found in the part stands in the whole.
    """

    tables: Tables
    """The candidates and their prices."""
    problem: Problem
    """Pools, copies, calls, dataflow, syncs and forced pairs; without options."""
    rows: Rows
    """The candidates that take part."""
    origin: Origin | None = None
    """Where a restricted space's rows and GPUs lie in the larger one; None: it is part of none."""

    @staticmethod
    def of(job: Job, tables: Tables) -> "SearchSpace":
        """All placements of a job; the tables may be those of it on a larger cluster."""
        copies = [CopyChoice(copy.id, copy.role, copy.shadow_of, ()) for copy in tables.copies]
        return SearchSpace.whole(tables, problem_structure(job, copies))

    @staticmethod
    def whole(tables: Tables, problem: Problem) -> "SearchSpace":
        """All placements of a problem with these candidates on its pools."""
        return _on_gpus(tables, problem, tuple(pool.num_gpus for pool in problem.pools))

    def on_gpus(self, sizes: tuple[int, ...]) -> "SearchSpace":
        """The placements on the first `sizes` GPUs of every pool; 0: the pool is not touched."""
        return _on_gpus(self.tables, self.problem, sizes)

    def nodes(self) -> Iterator["SearchSpace"]:
        """A node of every pool (nodes of a pool are alike), where its prices are its own.

        What a weight sync takes depends on the whole placement: inside the node where all of it
        lies in one, across nodes anywhere else. So these placements are a search of their own: else
        a plan on one node of several would be priced too dear, and its bound would not hold.
        """
        if self.tables.differ_in_one_node:
            for pool in range(len(self.problem.pools)):
                yield self.node(pool)

    def node(self, pool: int) -> "SearchSpace":
        """The placements on the first node of one pool."""
        pools = list(self.problem.pools)
        size = min(pools[pool].num_gpus, pools[pool].gpus_per_node)
        pools[pool] = replace(pools[pool], num_gpus=size)
        sizes = tuple(size if index == pool else 0 for index in range(len(pools)))
        tables = self.tables.in_one_node()
        rows = self.rows.both(rows_up_to(tables, sizes))
        return SearchSpace(tables, replace(self.problem, pools=tuple(pools)), rows)

    def with_tables(self, tables: Tables) -> "SearchSpace":
        """This problem with all candidates of `tables`, which price the same copies and calls."""
        return SearchSpace.whole(tables, self.problem)

    def with_problem(self, problem: Problem) -> "SearchSpace":
        """All these candidates in `problem`, which must have the same copies and calls."""
        return replace(SearchSpace.whole(self.tables, problem), origin=self.origin)

    @property
    def is_in_one_node(self) -> bool:
        """True where every placement lies in one and the same node."""
        return sum(-(-p.num_gpus // p.gpus_per_node) for p in self.problem.pools) == 1

    def is_complete(self, rows: Rows | None = None) -> bool:
        """True where every home has a row, and every call with a table has one too."""
        rows = self.rows if rows is None else rows
        homes = all(
            rows.copies[index].any()
            for index, copy in enumerate(self.tables.copies)
            if copy.shadow_of is None
        )
        calls = {table.call for table in self.tables.calls}
        served = {table.call for n, table in enumerate(self.tables.calls) if rows.calls[n].any()}
        return homes and calls <= served

    def rows_where(
        self,
        copies: Mapping[int, BoolArray] = MappingProxyType({}),
        calls: Mapping[int, BoolArray] = MappingProxyType({}),
    ) -> Rows:
        """The rows that take part but for those that a mask excludes, and the settings on these.

        Args:
            copies: The number of a copy → a mask of its layouts.
            calls: The number of a call table → a mask of its settings.
        """
        kept = self.rows.both(self.rows)
        for copy, mask in copies.items():
            kept.copies[copy] &= mask
        for number, table in enumerate(self.tables.calls):
            kept.calls[number] &= kept.copies[table.copy][table.copy_row]
            if number in calls:
                kept.calls[number] &= calls[number]
        return kept

    def options(self, rows: Rows) -> Problem:
        """The problem with the given rows as options."""
        return problem_of(self.problem, self.tables, rows)

    def lower_bound(self) -> float | None:
        """Seconds that no period is below, wherever it lies; None where a call has no row."""
        return least_period(self.tables.least_syncs(), self.problem, self.rows)

    def restrict(self, rows: Rows) -> "SearchSpace":
        """The space of the given rows alone, so that nothing walks the others again."""
        rows = self.rows.both(rows)
        copy_rows = [np.flatnonzero(mask) for mask in rows.copies]
        copies, positions = [], []
        for copy, mine in zip(self.tables.copies, copy_rows, strict=True):
            position = np.full(len(copy), -1, dtype=np.int64)
            position[mine] = np.arange(len(mine))
            positions.append(position)
            copies.append(copy.take(mine))
        calls, call_rows = [], {}
        for table, mask in zip(self.tables.calls, rows.calls, strict=True):
            mine = np.flatnonzero(mask & (positions[table.copy][table.copy_row] >= 0))
            part = table.take(mine)
            calls.append(replace(part, copy_row=positions[table.copy][part.copy_row]))
            call_rows[table.call, table.copy] = mine
        small = replace(self.tables, copies=copies, calls=calls)
        return SearchSpace(small, self.problem, all_rows(small), Origin(copy_rows, call_rows))

    def within(self, cutoff_seconds: float) -> "SearchSpace | None":
        """The candidates that a placement of at most so many seconds may have.

        None: there is no such placement.
        """
        if not self.is_complete():
            return None
        rows = rows_within(self.tables.least_syncs(), self.problem, self.rows, cutoff_seconds)
        return self.restrict(rows) if self.is_complete(rows) else None

    def lift(self, selected: Selected) -> Selected:
        """A placement in this space by the rows of the space that it was taken from."""
        if self.origin is None:
            return selected
        copies, calls = self.origin.copy_rows, self.origin.call_rows
        return replace(
            selected,
            copy_rows=tuple(
                None if row is None else int(rows[row])
                for row, rows in zip(selected.copy_rows, copies, strict=True)
            ),
            call_rows=tuple(
                None if chosen is None else (chosen[0], int(calls[call, chosen[0]][chosen[1]]))
                for call, chosen in enumerate(selected.call_rows)
            ),
        )

    def lowered(self, selected: Selected) -> Selected | None:
        """The inverse of `lift`; None for a placement of which this space lacks a row."""
        if self.origin is None:
            return selected
        copies, calls = self.origin.copy_rows, self.origin.call_rows
        if not all(
            row is None or row in rows for row, rows in zip(selected.copy_rows, copies, strict=True)
        ) or not all(
            chosen is None or chosen[1] in calls[call, chosen[0]]
            for call, chosen in enumerate(selected.call_rows)
        ):
            return None
        return replace(
            selected,
            copy_rows=tuple(
                None if row is None else int(np.searchsorted(rows, row))
                for row, rows in zip(selected.copy_rows, copies, strict=True)
            ),
            call_rows=tuple(
                None
                if chosen is None
                else (chosen[0], int(np.searchsorted(calls[call, chosen[0]], chosen[1])))
                for call, chosen in enumerate(selected.call_rows)
            ),
        )

    def lies_in_one_node(self, selected: Selected) -> bool:
        """True for a placement in one node, where that is priced otherwise than the others."""
        if not self.tables.differ_in_one_node:
            return False
        nodes = set()
        for index, first, last in self._spans(selected):
            per_node = self.problem.pools[index].gpus_per_node
            nodes |= {(index, first // per_node), (index, last // per_node)}
        return len(nodes) == 1

    def filling(self, capacity_bytes: Sequence[int]) -> "SearchSpace":
        """The space in which so many bytes [pool] of a GPU may be filled, where that is less."""
        pools = tuple(
            replace(pool, capacity_bytes=min(pool.capacity_bytes, most))
            for pool, most in zip(self.problem.pools, capacity_bytes, strict=True)
        )
        return replace(self, problem=replace(self.problem, pools=pools))

    def priced_as(self, selected: Selected) -> "SearchSpace":
        """The space with the prices of a placement that lies where the given one does."""
        if not self.lies_in_one_node(selected):
            return self
        return replace(self, tables=self.tables.in_one_node())

    def alone(self, selected: Selected) -> tuple[Problem, Assignment]:
        """The problem with one option for everything, that of a placement, and what takes it."""
        tables = self.priced_as(selected).tables
        problem = problem_of(self.problem, tables, rows_of_placement(tables, selected))
        assignment = Assignment(
            tuple(None if row is None else 0 for row in selected.copy_rows),
            selected.first_gpus,
            tuple(None if chosen is None else 0 for chosen in selected.call_rows),
        )
        return problem, assignment

    def timed(self, selected: Selected) -> Timing:
        """When everything happens if a placement keeps its order, at the prices of this space."""
        timing = selected.timing
        starts = [*timing.call_starts, *(start or 0.0 for start in timing.sync_starts)]
        stages = [*timing.call_stages, *timing.sync_stages]
        return exact_timing(*self.alone(selected), starts, stages)

    def touched_gpus(self, selected: Selected) -> tuple[int, ...]:
        """Per pool the GPUs of all nodes on which some copy lies."""
        nodes: list[set[int]] = [set() for _ in self.problem.pools]
        for index, first, last in self._spans(selected):
            per_node = self.problem.pools[index].gpus_per_node
            nodes[index] |= set(range(first // per_node, last // per_node + 1))
        return tuple(
            len(touched) * pool.gpus_per_node
            for touched, pool in zip(nodes, self.problem.pools, strict=True)
        )

    def price_per_second(self, sizes: tuple[int, ...]) -> float:
        """Price units per second of the nodes that the first `sizes` GPUs of every pool touch.

        A node is paid for as a whole.
        """
        return sum(
            -(-size // pool.gpus_per_node) * pool.gpus_per_node * pool.price_per_gpu_second
            for size, pool in zip(sizes, self.problem.pools, strict=True)
        )

    def reached_gpus(self, selected: Selected) -> tuple[int, ...]:
        """Per pool the usable GPUs up to the end of the last node on which some copy lies."""
        ends = [0] * len(self.problem.pools)
        for index, _, last in self._spans(selected):
            ends[index] = max(ends[index], last + 1)
        return tuple(
            min(-(-end // pool.gpus_per_node) * pool.gpus_per_node, pool.num_gpus)
            for end, pool in zip(ends, self.problem.pools, strict=True)
        )

    def shared_gpus(self, selected: Selected) -> frozenset[tuple[int, int]]:
        """The pairs of copies that share a GPU."""
        ranges = {
            index: Range(first, int(copy.layouts.num_gpus[row]))
            for index, (copy, row, first) in enumerate(
                zip(self.tables.copies, selected.copy_rows, selected.first_gpus, strict=True)
            )
            if row is not None and first is not None
        }
        return frozenset(
            (one, other)
            for one, other in combinations(ranges, 2)
            if ranges[one].overlaps(ranges[other])
        )

    def _spans(self, selected: Selected) -> list[tuple[int, int, int]]:
        """(pool, first and last GPU, counted in the pool) of every copy that is there."""
        spans = []
        for copy, row, first in zip(
            self.tables.copies, selected.copy_rows, selected.first_gpus, strict=True
        ):
            if row is not None and first is not None:
                index = int(copy.pool[row])
                start = first - self.problem.pools[index].first_gpu
                spans.append((index, start, start + int(copy.layouts.num_gpus[row]) - 1))
        return spans


def _on_gpus(tables: Tables, problem: Problem, sizes: tuple[int, ...]) -> SearchSpace:
    pools = tuple(
        replace(pool, num_gpus=size) if size else pool
        for pool, size in zip(problem.pools, sizes, strict=True)
    )
    nodes = (-(-n // pool.gpus_per_node) for n, pool in zip(sizes, pools, strict=True))
    if sum(nodes) == 1:
        tables = tables.in_one_node()
    return SearchSpace(tables, replace(problem, pools=pools), rows_up_to(tables, sizes))
