"""The tie-break: of equally good placements one that is always the same, however it was found.

It takes 0.02 to 0.2 s of a plan, and makes plans repeat over changes of the search.
"""

import numpy as np

from automap.planner.search.decomposition.master import (
    MasterProblem,
    Sizes,
    relaxed_problem,
    rows_of_sizes,
)
from automap.planner.search.model.pruning import SLACK, prune
from automap.planner.search.model.solve import Budget, Limits, canonical_solution
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.one_node import space_of_node
from automap.planner.search.space.processes import of_process
from automap.planner.search.space.rows import Rows, Selected, rows_of
from automap.planner.search.space.schedules import schedule_in_place
from automap.planner.search.space.search_space import SearchSpace

TIE_TRIES = 3
"""Smaller sizes that are tried for a placement that is already proven."""


def break_ties(space: SearchSpace, best: Selected, *, limits: Limits) -> Selected:
    """The canonical one of the placements whose period is that of `best`, which is proven.

    It has fewer GPUs where a few tries show that its sizes can shrink, then the lowest ranges, then
    the first rows.
    """
    space = of_process(space, best)
    if space.lies_in_one_node(best):
        pool = int(space.tables.copies[0].pool[best.copy_rows[0] or 0])
        return _canonical(space_of_node(space, pool), best, limits)
    chosen = schedule_in_place(space, _canonical(space, best, limits), limits)
    assert chosen is not None
    return chosen


def _canonical(space: SearchSpace, best: Selected, limits: Limits) -> Selected:
    limit = best.timing.period
    budget = Budget(limits)
    sizes = _sizes(space, best)
    smaller = {
        copy: frozenset(
            (pool, int(count))
            for pool, largest in allowed
            for count in np.unique(space.tables.copies[copy].layouts.num_gpus)
            if count <= largest
        )
        for copy, allowed in sizes.items()
    }
    rows = rows_of_sizes(space, space.rows, smaller)
    part = space.restrict(rows_within(space.tables, space.problem, rows, limit))
    if not part.is_complete():
        return best
    master = MasterProblem(relaxed_problem(part, part.rows), cutoff_seconds=limit)
    master.minimise_gpus()
    for _ in range(TIE_TRIES):
        relaxed = master.best(budget)
        if relaxed.sizes is None or relaxed.sizes == sizes:
            break
        rows = rows_of_sizes(part, part.rows, relaxed.sizes)
        canonical = _canonical_on(part, rows, limit, budget)
        if canonical is not None:
            return part.lift(canonical)
        master.rule_out(relaxed.sizes)
    canonical = _canonical_on(part, rows_of_sizes(part, part.rows, sizes), limit, budget)
    return best if canonical is None else part.lift(canonical)


def _sizes(space: SearchSpace, selected: Selected) -> Sizes:
    """The size of every copy of a placement."""
    sizes: Sizes = {}
    for index, (copy, row) in enumerate(zip(space.tables.copies, selected.copy_rows, strict=True)):
        here = () if row is None else ((int(copy.pool[row]), int(copy.layouts.num_gpus[row])),)
        sizes[index] = frozenset(here)
    return sizes


def _canonical_on(space: SearchSpace, rows: Rows, limit: float, budget: Budget) -> Selected | None:
    """The placement on fixed sizes that order decides; None when they cannot hold the limit."""
    rows = rows_within(space.tables, space.problem, rows, limit)
    if not space.is_complete(rows):
        return None
    pruned = prune(space.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return None
    solution = canonical_solution(pruned.problem, limits=budget.rest(), period_seconds=limit)
    # A cyclic period may lie between two ticks, and the solver knows only the later one.
    if solution is None or solution.timing.period > limit * (1 + SLACK):
        return None
    return rows_of(pruned.problem, solution)
