"""The best placement on given nodes: baselines, pruning, CP-SAT, and the proof.

A problem is split by which shadows exist: in each scenario fewer calls have a choice of copy, so
bounds are sharper and much more can be pruned. The best solution known so far bounds all of them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.baselines import STRATEGIES, DoesNotFit, Index
from planner.problem import Assignment, Problem, Solution, Timing
from planner.pruning import SLACK, prune
from planner.solve import Limits, minimise_period, pinned, settle_ties
from planner.space import Rows, all_rows, problem_of, rows_up_to, rows_with_counts, rows_within
from planner.tables import Tables

BASELINE_COUNTS = 20
"""Range sizes that baselines choose from; on larger clusters the sizes are thinned to so many."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A placement by rows of the tables, with its schedule."""

    copy_rows: tuple[int | None, ...]
    first_gpus: tuple[int | None, ...]
    call_rows: tuple[tuple[int, int] | None, ...]
    """Per call (copy, row of that call's table on that copy)."""
    timing: Timing


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a baseline came to: a placement, or the reason why there is none."""

    strategy: str
    selected: Selected | None
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """The best placement and what is proven about it."""

    selected: Selected | None
    lower_bound_seconds: float
    proven: bool
    options: int
    """Options that reached CP-SAT, over all scenarios."""
    warm_start: str | None = None


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
    return Arena(tables, replace(problem, pools=pools), rows_up_to(tables, sizes))


def attempt(
    arena: Arena, names: list[str], *, limits: Limits, most_counts: int = BASELINE_COUNTS
) -> list[Attempt]:
    """Place the named baselines and schedule each exactly."""
    problem = arena.options(arena.rows.both(_thinned(arena, most_counts)))
    index = Index(problem)
    attempts = []
    for name in names:
        try:
            assignment = STRATEGIES[name].place_indexed(index).assignment
        except DoesNotFit as reason:
            attempts.append(Attempt(name, None, reason.reason))
            continue
        solution = schedule(problem, assignment, limits=limits)
        placed = None if solution is None else rows_of(problem, solution)
        reason_ = "" if placed else "its placement leaves no feasible schedule"
        attempts.append(Attempt(name, placed, reason_))
    return attempts


def schedule(problem: Problem, assignment: Assignment, *, limits: Limits) -> Solution | None:
    """The shortest period of a fixed assignment."""
    fixed = pinned(problem, assignment)
    slowest = sum(
        max((option.seconds for option in call.options), default=call.fixed_seconds)
        for call in fixed.calls
    ) + sum(option.sync_seconds for copy in fixed.copies for option in copy.options)
    outcome = minimise_period(
        fixed, limits=limits, horizon_seconds=slowest + 1e-3, ranges=assignment.first_gpus
    )
    if outcome.solution is None:
        return None
    return replace(outcome.solution, assignment=assignment)


def search(
    arena: Arena,
    *,
    limits: Limits,
    incumbent: Selected | None,
    horizon_seconds: float | None = None,
) -> Found:
    """Least period; `horizon_seconds` caps it where no incumbent does."""
    best, options, proven, bounds = incumbent, 0, True, []
    for rows in _scenarios(arena):
        limit = _limit(best, horizon_seconds)
        if limit is not None:
            rows = rows_within(arena.tables, arena.problem, rows, limit)
        if not _complete(arena, rows):
            continue
        pruned = prune(arena.options(rows), upper_bound_seconds=limit)
        options += sum(len(call.options) for call in pruned.problem.calls)
        outcome = minimise_period(
            pruned.problem,
            limits=limits,
            horizon_seconds=limit if limit is not None else _slowest(pruned.problem),
        )
        proven &= outcome.proven
        if outcome.solution is not None:
            found = rows_of(pruned.problem, outcome.solution)
            if best is None or found.timing.period < best.timing.period:
                best = found
        if not outcome.proven or outcome.solution is not None:
            bounds.append(outcome.lower_bound_seconds)
    period = np.inf if best is None else best.timing.period
    return Found(best, float(min([period, *bounds])), proven, options)


def settled(arena: Arena, found: Found, *, limits: Limits) -> Selected:
    """Of all placements with the proven period one that does not depend on chance.

    Fewest GPUs over all copies, then lowest ranges, then first rows. Scenarios without shadows
    come first.
    """
    assert found.selected is not None
    limit = found.selected.timing.period * (1 + SLACK)
    for rows in _scenarios(arena):
        rows = rows_within(arena.tables, arena.problem, rows, limit)
        if not _complete(arena, rows):
            continue
        pruned = prune(arena.options(rows), upper_bound_seconds=limit)
        solution = settle_ties(pruned.problem, limits=limits, period_seconds=limit)
        if solution is not None:
            return rows_of(pruned.problem, solution)
    return found.selected


def rows_of(problem: Problem, solution: Solution) -> Selected:
    """A solution by table rows, which problems with other options can read too."""
    assignment = solution.assignment
    copies = tuple(
        None if option is None else copy.options[option].row
        for copy, option in zip(problem.copies, assignment.copy_options, strict=True)
    )
    calls = tuple(
        None if option is None else (call.options[option].copy, call.options[option].row)
        for call, option in zip(problem.calls, assignment.call_options, strict=True)
    )
    return Selected(copies, assignment.first_gpus, calls, solution.timing)


def _limit(best: Selected | None, horizon_seconds: float | None) -> float | None:
    limits = [] if best is None else [best.timing.period]
    return min([*limits, *([] if horizon_seconds is None else [horizon_seconds])], default=None)


def _slowest(problem: Problem) -> float:
    """A period that no sensible schedule exceeds: every call at its slowest, one by one."""
    calls = sum(
        max((option.seconds for option in call.options), default=call.fixed_seconds)
        for call in problem.calls
    )
    syncs = sum(
        max(o.sync_seconds for c in (sync.home, sync.shadow) for o in problem.copies[c].options)
        for sync in problem.syncs
        if problem.copies[sync.shadow].options
    )
    return calls + syncs + 1e-3


def _complete(arena: Arena, rows: Rows) -> bool:
    """Every home has a row, and every call with a table too."""
    homes = all(
        rows.copies[index].any()
        for index, copy in enumerate(arena.tables.copies)
        if copy.shadow_of is None
    )
    calls = {table.call for table in arena.tables.calls}
    served = {table.call for n, table in enumerate(arena.tables.calls) if rows.calls[n].any()}
    return homes and calls <= served


def _scenarios(arena: Arena) -> Iterator[Rows]:
    """Rows for every set of shadows that exist, none first.

    A shadow with a single call serves it wherever it exists: otherwise nothing would use it.
    """
    tables = arena.tables
    shadows = [i for i, copy in enumerate(tables.copies) if copy.shadow_of is not None]
    for present in itertools.product([False, True], repeat=len(shadows)):
        used = {shadow for shadow, there in zip(shadows, present, strict=True) if there}
        alone = {shadow for shadow in used if sum(t.copy == shadow for t in tables.calls) == 1}
        taken = {table.call for table in tables.calls if table.copy in alone}
        copies = [
            mask if tables.copies[i].shadow_of is None or i in used else np.zeros_like(mask)
            for i, mask in enumerate(arena.rows.copies)
        ]
        calls = []
        for table, mask in zip(tables.calls, arena.rows.calls, strict=True):
            shadow = tables.copies[table.copy].shadow_of is not None
            keep = table.copy in used if shadow else table.call not in taken
            calls.append(mask.copy() if keep else np.zeros_like(mask))
        yield Rows([mask.copy() for mask in copies], calls)


def _thinned(arena: Arena, most: int) -> Rows:
    """Rows of at most `most` sizes, evenly spread in ln(size), the largest among them."""
    sizes = sorted(
        {
            int(size)
            for copy, mask in zip(arena.tables.copies, arena.rows.copies, strict=True)
            for size in np.unique(copy.layouts.num_gpus[mask])
        }
    )
    if len(sizes) <= most:
        return all_rows(arena.tables)
    wanted = np.geomspace(max(sizes[-1] / 64, sizes[0]), sizes[-1], most)
    kept = {min(sizes, key=lambda size: abs(size - want)) for want in wanted}
    # Halves and quarters are what split placements use.
    kept |= {size for size in sizes if sizes[-1] % size == 0 and sizes[-1] // size <= 16}
    return rows_with_counts(arena.tables, kept)
