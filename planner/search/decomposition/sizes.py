"""The search over sizes: which range sizes can still beat the best plan, proven by relaxation.

The relaxed problem forgets memory, so that few layouts of a size are left that no other one beats.
Its optimum bounds all real plans, and there are so few options that it is proven in milliseconds. A
relaxed optimum names one size per copy; the real problem restricted to those sizes is small too and
is solved exactly. Then the sizes are ruled out and the next relaxed optimum asked for, until the
relaxation has nothing better to offer (combinatorial Benders decomposition; Codato and Fischetti
2006).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates.tables import CopyTable
from automap.planner.search.decomposition.symmetry import Interchange
from automap.planner.search.model.cp_sat import cp_model
from automap.planner.search.model.formulation import formulate
from automap.planner.search.model.problem import CallOption, CopyChoice, CopyOption, Problem, Tail
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import (
    FIRST_LIMIT_SECONDS,
    MOST_TICKS,
    TICK_SECONDS,
    Budget,
    rounding_seconds,
    run,
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

LEAST_PATIENCE = 0.03
"""Deterministic seconds that every attempt at a wider cut may take: those that hold take less."""
MOST_OPTIONS = 500
"""Call options up to which it is worth trying to widen a cut."""
LARGE = 300
"""Call options above which a relaxed problem is worth all of the solver's presolve."""
COARSE_PATIENCE = 16.0
"""Times as long the first try at a relaxed problem with memory may take: it has more options."""
Size = tuple[int, int]
"""(pool, GPUs) of a range."""
Sizes = dict[int, frozenset[Size]]
"""Copy → sizes it may have; none for a shadow that is absent. Copies left out are free."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Sizes with the least relaxed objective, and the bound that is proven for all sizes left."""

    sizes: Sizes | None
    """None: no sizes are left."""
    bound_seconds: float
    """Of the period, when that is what is minimised."""
    proven: bool


class SizeSearch:
    """The relaxed problem, from which sizes are ruled out one vector at a time."""

    def __init__(
        self,
        space: SearchSpace,
        rows: Rows,
        *,
        horizon_seconds: float,
        coarse: Problem | None = None,
        alike: Sequence[Interchange] = (),
    ) -> None:
        """`coarse` is a relaxed problem that counts memory (`decomposition.coarse`).

        Of sizes that an interchange maps onto each other only one side is looked at: the first copy
        that moves has no fewer GPUs than the one that takes its place. In every orbit this holds
        where the GPUs of all copies, in their order, are lexicographically largest.
        """
        self.problem = relaxed_problem(space, rows) if coarse is None else coarse
        self.formulation: Formulation = formulate(
            self.problem, tick_seconds=TICK_SECONDS, horizon_seconds=horizon_seconds
        )
        strengthen(self.formulation)
        only_values_of_options(self.formulation)
        if coarse is not None:
            strengthen_memory(self.formulation)
        options = sum(len(call.options) for call in self.problem.calls)
        self._large = options > LARGE
        self._first_limit = FIRST_LIMIT_SECONDS
        if coarse is not None and options > MOST_OPTIONS:
            self._first_limit *= COARSE_PATIENCE
        self._alike = alike
        for each in alike:
            first, image = (
                self.formulation.copies[c] for c in (each.first, each.copies[each.first])
            )
            self.formulation.model.add(first.count >= image.count)

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
        """No copy may have one of its sizes while all others have one of theirs, nor any image."""
        images = [{each.copies[c]: allowed for c, allowed in sizes.items()} for each in self._alike]
        for image in [sizes, *(image for image in images if image != sizes)]:
            self._rule_out(image)

    def _rule_out(self, sizes: Sizes) -> None:
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

    def best(self, budget: Budget) -> Relaxed:
        """The best sizes that are left."""
        done = run_restarting(
            self.formulation,
            budget,
            first_limit_seconds=self._first_limit,
            large=self._large,
        )
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

    def sizes_of(self, copy: int) -> list[Size]:
        """All sizes of a copy."""
        return list(dict.fromkeys((o.pool, o.num_gpus) for o in self.problem.copies[copy].options))


def mixed_problem(real: Problem, relaxed: Problem, kept: Sizes) -> Problem:
    """Real options for the kept copies, relaxed ones (all sizes, no memory) for the others."""
    copies = tuple(
        (real if index in kept else relaxed).copies[index] for index in range(len(real.copies))
    )
    calls = tuple(
        replace(
            call,
            options=tuple(
                option
                for options, wanted in ((call.options, True), (loose.options, False))
                for option in options
                if (option.copy in kept) == wanted
            ),
        )
        for call, loose in zip(real.calls, relaxed.calls, strict=True)
    )
    return replace(relaxed, copies=copies, calls=calls)


@dataclass(frozen=True, slots=True)
class _Fastest:
    """Per row of a copy the least of everything over the settings of a call there.

    Settings are told apart by how many of the GPUs their tail keeps. Infinite without any.
    """

    copy: int
    ratio: int
    """GPUs per GPU of the tail; 1 without one."""
    columns: FloatArray
    """[row, column]: seconds; those until each chunk is out; with a tail, those of the bulk."""

    def options(self, counts: IntArray, positions: dict[int, int]) -> list[CallOption]:
        """Those on the rows that have a position, which are ranges of so many GPUs."""
        options = []
        for row, position in positions.items():
            seconds, *releases = self.columns[row].tolist()
            if not np.isfinite(seconds):
                continue
            tail = None
            if self.ratio > 1:
                tail = Tail(int(counts[row]) // self.ratio, releases.pop())
            options.append(CallOption(self.copy, position, seconds, 0, row, tuple(releases), tail))
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
        fewer, bulk = part.tails(counts)
        ratios = counts // np.maximum(fewer, 1)
        for ratio in np.unique(ratios).tolist():
            same = ratios == ratio
            columns = [part.seconds, *part.releases().T]
            if ratio > 1:
                columns.append(bulk)
            least = np.full((len(columns), len(copy)), np.inf)
            for column, values in zip(least, columns, strict=True):
                np.minimum.at(column, part.copy_row[same], values[same])
            found.append((table.call, _Fastest(table.copy, ratio, least.T)))
    return found


def fastest_rows(copy: CopyTable, rows: IntArray, columns: FloatArray) -> IntArray:
    """Of `rows` those of a size that no other is as fast as everywhere; of equals the first."""
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
    """Of `rows` those whose copy has one of its sizes; all rows of free copies."""
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


def cause(
    space: SearchSpace,
    rows_of: Callable[[Sizes], Rows],
    search: SizeSearch,
    sizes: Sizes,
    *,
    limit_seconds: float,
    budget: Budget,
    patience_seconds: float,
    widen: bool,
    thorough: bool = True,
) -> Sizes:
    """More sizes that exclude a period of at most the limit for the same reason as `sizes`.

    First copies are freed as far as the exclusion still holds with their relaxed options, then the
    kept ones are widened to all smaller, or all larger, sizes. One cut then serves many vectors.
    Where one cut is likely to be enough, widening is not worth its time (`widen`), and until a few
    were not, nor is freeing copies that train and shadows, which seldom succeeds (`thorough`).
    An attempt that takes more than `patience_seconds` (deterministic) has failed. `rows_of` gives
    the rows of sizes.
    """
    absent: Sizes = dict.fromkeys(sizes, frozenset())
    patience = patience_seconds
    refused: list[Sizes] = []

    def excluded(trial: Sizes) -> bool:
        nonlocal patience
        if any(_frees_more(trial, other) for other in refused):
            return False
        kept_rows = rows_of({**absent, **trial})
        if sum(int(mask.sum()) for mask in kept_rows.calls) > MOST_OPTIONS:
            return False
        real = space.options(kept_rows)
        problem = mixed_problem(real, search.problem, trial)
        before = budget.left
        found = is_excluded(
            problem, limit_seconds=limit_seconds, budget=budget, patience_seconds=patience
        )
        if found:
            # Later attempts resemble this one: what takes far longer will hardly succeed.
            patience = min(patience, max(4.0 * (before - budget.left), LEAST_PATIENCE))
        else:
            refused.append(trial)
        return found

    kept = dict(sizes)
    for group in _groups(search.problem, sizes, thorough=thorough):
        trial = {copy: allowed for copy, allowed in kept.items() if copy not in group}
        if trial and len(trial) < len(kept) and excluded(trial):
            kept = trial
    for copy in [copy for copy, allowed in kept.items() if allowed and widen]:
        (size,) = kept[copy]
        here = [other for other in search.sizes_of(copy) if other[0] == size[0]]
        for wider in ([o for o in here if o <= size], [o for o in here if o >= size]):
            trial = {**kept, copy: frozenset(wider) | kept[copy]}
            if trial != kept and excluded(trial):
                kept = trial
    return kept


def _frees_more(trial: Sizes, other: Sizes) -> bool:
    """True when every plan that `other` allows is one that `trial` allows, too."""
    return all(copy in other and other[copy] <= allowed for copy, allowed in trial.items())


def _groups(problem: Problem, sizes: Sizes, *, thorough: bool) -> list[list[int]]:
    """Copies to free: all homes that never train at once, then each; at last all others, too."""
    trains = {edge.source for edge in problem.precedences if edge.distance > 0}
    busy = {option.copy for call in trains for option in problem.calls[call].options}
    there = [copy for copy, allowed in sizes.items() if allowed]
    idle = [c for c in there if c not in busy and problem.copies[c].shadow_of is None]
    return [idle, *([copy] for copy in (there if thorough else idle))]


def is_excluded(
    problem: Problem, *, limit_seconds: float, budget: Budget, patience_seconds: float
) -> bool:
    """True when it is quickly proven that no period is as short as the limit."""
    pruned = prune(problem, upper_bound_seconds=limit_seconds)
    if pruned.hopeless:
        return True
    if budget.spent:
        return False
    limits = replace(budget.rest(), deterministic_seconds=min(patience_seconds, budget.left))
    tick = max(TICK_SECONDS, limit_seconds / MOST_TICKS)
    formulation = formulate(pruned.problem, tick_seconds=tick, horizon_seconds=limit_seconds)
    if tick > TICK_SECONDS:
        # Whole ticks may be beyond a limit that the seconds keep: what they hide is let pass.
        wider = limit_seconds + rounding_seconds(formulation) + tick
        formulation = formulate(pruned.problem, tick_seconds=tick, horizon_seconds=wider)
    strengthen(formulation)
    # Without an objective: any solution at all refutes it.
    done = run(formulation, limits)
    budget.take(done.deterministic_seconds)
    return done.status == cp_model.INFEASIBLE
