"""The master problem of the decomposition: which range sizes can still beat the best placement.

Memory is forgotten, so few layouts of a size are left that no other one beats in seconds, and the
optimum, proven in milliseconds, is a lower bound on all placements. It proposes a size for every
copy; once these are solved with memory (`decomposition.benders`) a cut excludes them. After some
rounds a master problem with memory in coarse steps (`decomposition.coarse`) takes its place
(combinatorial Benders decomposition; Codato and Fischetti 2006).
"""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates.tables import CopyTable
from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.formulation import formulate
from automap.planner.search.model.problem import CallOption, CopyChoice, CopyOption, Problem, Tail
from automap.planner.search.model.solve import (
    TICK_SECONDS,
    Budget,
    rounding_seconds,
    run_restarting,
)
from automap.planner.search.model.strengthening import (
    only_values_of_options,
    strengthen,
    strengthen_memory,
)
from automap.planner.search.model.variables import Formulation, seconds_to_ticks
from automap.planner.search.space.rows import Rows
from automap.planner.search.space.search_space import SearchSpace

LARGE = 300
"""Call options above which a master problem is worth all of the solver's presolve."""
FIRST_LIMIT_SECONDS, LARGE_FIRST_LIMIT_SECONDS, COARSE_FIRST_LIMIT_SECONDS = 0.1, 0.5, 8.0
"""Deterministic seconds of the first try at a small, a large, and a large master problem with
memory, before the next seed: to begin again soon helps small ones and costs large ones too much."""
Size = tuple[int, int]
"""(pool, GPUs) of a range."""
Sizes = dict[int, frozenset[Size]]
"""Copy → sizes it may have; none for a shadow that is absent. Copies left out are free."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Sizes with the least relaxed objective, and the bound that is proven for all sizes left."""

    sizes: Sizes | None
    """The sizes of every copy; without them, none are left or the limit ended the search."""
    bound_seconds: float
    """Lower bound on the period of all sizes left, where the period is minimised."""
    proven: bool


class MasterProblem:
    """A relaxation of the placement problem, from which sizes are excluded by cuts."""

    def __init__(
        self, problem: Problem, *, cutoff_seconds: float, counts_memory: bool = False
    ) -> None:
        """`problem` is `relaxed_problem`, or `coarse_problem` where it counts memory."""
        self.problem, self.counts_memory = problem, counts_memory
        self.formulation: Formulation = formulate(
            problem, tick_seconds=TICK_SECONDS, cutoff_seconds=cutoff_seconds
        )
        strengthen(self.formulation)
        only_values_of_options(self.formulation)
        self.is_large = sum(len(call.options) for call in problem.calls) > LARGE
        self._first_limit = LARGE_FIRST_LIMIT_SECONDS if self.is_large else FIRST_LIMIT_SECONDS
        self._tries = 0
        """Tries at what is left, none of which proved anything."""
        if counts_memory:
            strengthen_memory(self.formulation)
            if self.is_large:
                self._first_limit = COARSE_FIRST_LIMIT_SECONDS

    def minimise_period(self) -> None:
        """Look for the shortest period."""
        self.formulation.model.minimize(self.formulation.period)

    def minimise_gpus(self) -> None:
        """Look for the fewest GPUs over all copies; of equals, small early copies."""
        total = [(4096 + index) * copy.count for index, copy in enumerate(self.formulation.copies)]
        self.formulation.model.minimize(cp_model.LinearExpr.sum(total))

    def no_shorter_than(self, seconds: float) -> None:
        """A bound that is proven for all sizes left."""
        ticks = seconds_to_ticks(seconds, self.formulation.tick_seconds)
        self.formulation.model.add(self.formulation.period >= ticks - 1)

    def shorter_than(self, seconds: float) -> None:
        """Only periods below `seconds` are of interest from now on."""
        ticks = seconds_to_ticks(seconds, self.formulation.tick_seconds)
        self.formulation.model.add(self.formulation.period <= ticks - 1)

    def rule_out(self, sizes: Sizes) -> None:
        """Add the cut: not every copy has one of its sizes."""
        self._tries = 0
        literals: list[cp_model.LiteralT] = []
        for copy, allowed in sizes.items():
            variables, options = self.formulation.copies[copy], self.problem.copies[copy].options
            if not allowed:
                literals.append(~variables.present)
            literals += [
                take
                for option, take in zip(options, variables.takes, strict=True)
                if (option.pool, option.num_gpus) in allowed
            ]
        self.formulation.model.add(cp_model.LinearExpr.sum(literals) <= len(sizes) - 1)

    def best(self, budget: Budget, *, tries: int | None = None) -> Relaxed:
        """The best sizes that are left.

        Args:
            budget: What it may take.
            tries: How many to make at most; until it is proven by default. Each is twice as long
                as the one before, also of the call before, until sizes are ruled out.
        """
        done = run_restarting(
            self.formulation,
            budget,
            first_limit_seconds=self._first_limit,
            large=self.is_large,
            after=self._tries,
            tries=tries,
        )
        self._tries += done.tries
        tick = self.formulation.tick_seconds
        if done.status == cp_model.INFEASIBLE:
            return Relaxed(None, self.formulation.horizon * tick, True)
        rounding = rounding_seconds(self.formulation)
        bound = max(done.best_objective_bound * tick - rounding, 0.0)
        if done.status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Relaxed(None, bound, False)
        return Relaxed(self._chosen(done.solver), bound, done.status == cp_model.OPTIMAL)

    def _chosen(self, solver: cp_model.CpSolver) -> Sizes:
        sizes: Sizes = {}
        for index, choice in enumerate(self.problem.copies):
            takes = self.formulation.copies[index].takes
            sizes[index] = frozenset(
                (option.pool, option.num_gpus)
                for option, take in zip(choice.options, takes, strict=True)
                if solver.value(take)
            )
        return sizes


@dataclass(frozen=True, slots=True)
class _Fastest:
    """Per row of a copy the least of everything over the settings of a call there.

    Settings are told apart by how many of the GPUs their tail keeps. Infinite without any.
    """

    copy: int
    ratio: int
    """GPUs per GPU of the tail; 1 without one."""
    columns: FloatArray
    """[row, column]: seconds; those until each chunk is out; with a tail, of the main phase."""

    def options(self, counts: IntArray, positions: dict[int, int]) -> list[CallOption]:
        """Options on the rows that have a position, which are ranges of `counts` GPUs."""
        options = []
        for row, position in positions.items():
            seconds, *more = self.columns[row].tolist()
            if not np.isfinite(seconds):
                continue
            tail = None
            if self.ratio > 1:
                tail = Tail(int(counts[row]) // self.ratio, more.pop())
            options.append(CallOption(self.copy, position, seconds, 0, row, tuple(more), tail))
        return options


def relaxed_problem(space: SearchSpace, rows: Rows) -> Problem:
    """The problem without memory; layouts of one size that another one beats in seconds are gone.

    A lower bound on every row: each has one of its copy and size that is as fast for every call.
    """
    tables, problem = space.tables, space.problem
    copies = []
    calls: list[list[CallOption]] = [[] for _ in problem.calls]
    fastest_of = _fastest(space, rows)
    for index, (choice, copy, mask) in enumerate(
        zip(problem.copies, tables.copies, rows.copies, strict=True)
    ):
        mine = [(call, each) for call, each in fastest_of if each.copy == index]
        columns = [*(each.columns for _, each in mine), copy.sync_seconds[:, None]]
        numbers = fastest_rows(copy, np.flatnonzero(mask), np.concatenate(columns, axis=1))
        counts = copy.layouts.num_gpus
        options = tuple(
            CopyOption(pool, count, 0, 0, sync, row)
            for pool, count, sync, row in zip(
                copy.pool[numbers].tolist(),
                counts[numbers].tolist(),
                copy.sync_seconds[numbers].tolist(),
                numbers.tolist(),
                strict=True,
            )
        )
        copies.append(CopyChoice(choice.id, choice.role, choice.shadow_of, options))
        positions = {row: position for position, row in enumerate(numbers.tolist())}
        for call, each in mine:
            calls[call] += each.options(counts, positions)
    return replace(
        problem,
        copies=tuple(copies),
        calls=tuple(
            replace(call, options=tuple(options))
            for call, options in zip(problem.calls, calls, strict=True)
        ),
        syncs=tuple(replace(sync, bucket_bytes=0) for sync in problem.syncs),
    )


def _fastest(space: SearchSpace, rows: Rows) -> list[tuple[int, _Fastest]]:
    """Per call and copy, and per part of the GPUs that tails keep."""
    found = []
    for table, mask in zip(space.tables.calls, rows.calls, strict=True):
        copy = space.tables.copies[table.copy]
        part = table.take(mask)
        counts = copy.layouts.num_gpus[part.copy_row]
        fewer, main_phase = part.tails(counts)
        ratios = counts // np.maximum(fewer, 1)
        for ratio in np.unique(ratios).tolist():
            same = ratios == ratio
            columns = [part.seconds, *part.chunk_ready_seconds().T]
            if ratio > 1:
                columns.append(main_phase)
            least = np.full((len(columns), len(copy)), np.inf)
            for column, values in zip(least, columns, strict=True):
                np.minimum.at(column, part.copy_row[same], values[same])
            found.append((table.call, _Fastest(table.copy, ratio, least.T)))
    return found


def fastest_rows(copy: CopyTable, rows: IntArray, columns: FloatArray) -> IntArray:
    """The rows among `rows` that no other of their size matches everywhere; the first of equals."""
    values = columns[rows]
    total = np.where(np.isfinite(values), values, 1e9).sum(axis=1)
    pools, counts = copy.pool[rows], copy.layouts.num_gpus[rows]
    order = np.lexsort((rows, total, counts, pools))
    kept: list[IntArray] = []
    edges = np.flatnonzero(np.diff(pools[order]) | np.diff(counts[order])) + 1
    for left in np.split(order, edges):
        while len(left):
            kept.append(left[:1])
            left = left[(values[left] < values[left[0]]).any(axis=1)]
    first = np.concatenate(kept) if kept else order
    return np.sort(rows[first])


def rows_of_sizes(space: SearchSpace, rows: Rows, sizes: Sizes) -> Rows:
    """The rows among `rows` whose copy has one of its sizes; all rows of free copies."""
    copies = []
    for index, (copy, mask) in enumerate(zip(space.tables.copies, rows.copies, strict=True)):
        if index not in sizes:
            copies.append(mask)
            continue
        keep = np.zeros_like(mask)
        for pool, count in sizes[index]:
            keep |= mask & (copy.pool == pool) & (copy.layouts.num_gpus == count)
        copies.append(keep)
    calls = [
        mask & copies[table.copy][table.copy_row]
        for table, mask in zip(space.tables.calls, rows.calls, strict=True)
    ]
    return Rows(copies, calls)
