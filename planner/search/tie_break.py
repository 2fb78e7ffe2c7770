"""The tie-break: of equally good placements one that is always the same, however it was found.

It takes 0.02 to 0.2 s of a plan, and makes plans repeat over changes of the search.
"""

import numpy as np

from automap.planner.search.decomposition.race import complete
from automap.planner.search.decomposition.sizes import (
    MasterProblem,
    Sizes,
    relaxed_problem,
    rows_of_sizes,
)
from automap.planner.search.model.pruning import SLACK, prune
from automap.planner.search.model.solve import Budget, Limits, settle_ties
from automap.planner.search.space import one_node
from automap.planner.search.space.search_space import Arena, Rows, compact, rows_within
from automap.planner.search.space.selected import (
    Found,
    Selected,
    in_its_place,
    lies_in_one_node,
    original,
    rows_of,
)

TIE_TRIES = 3
"""Smaller sizes that are tried for a placement that is already proven."""


def settled(arena: Arena, found: Found, *, limits: Limits) -> Selected:
    """Of the placements with the proven period one that is always the same.

    Fewer GPUs where a few tries show that the found sizes can shrink, then lowest ranges, then
    first rows.
    """
    assert found.selected is not None
    if lies_in_one_node(arena, found.selected):
        pool = int(arena.tables.copies[0].pool[found.selected.copy_rows[0] or 0])
        return _settled(one_node.arena_of_pool(arena, pool), found, limits)
    chosen = in_its_place(arena, _settled(arena, found, limits), limits)
    assert chosen is not None
    return chosen


def _settled(arena: Arena, found: Found, limits: Limits) -> Selected:
    assert found.selected is not None
    limit = found.selected.timing.period
    budget = Budget(limits)
    sizes = _sizes(arena, found.selected)
    smaller = {
        copy: frozenset(
            (pool, int(count))
            for pool, largest in allowed
            for count in np.unique(arena.tables.copies[copy].layouts.num_gpus)
            if count <= largest
        )
        for copy, allowed in sizes.items()
    }
    rows = rows_of_sizes(arena, arena.rows, smaller)
    part = compact(arena, rows_within(arena.tables, arena.problem, rows, limit))
    arena, rows = part.arena, part.arena.rows
    if not complete(arena, rows):
        return found.selected
    master = MasterProblem(relaxed_problem(arena, rows), horizon_seconds=limit)
    master.minimise_gpus()
    for _ in range(TIE_TRIES):
        relaxed = master.best(budget)
        if relaxed.sizes is None or relaxed.sizes == sizes:
            break
        settled_ = _settled_on(arena, rows_of_sizes(arena, rows, relaxed.sizes), limit, budget)
        if settled_ is not None:
            return original(settled_, part)
        master.rule_out(relaxed.sizes)
    settled_ = _settled_on(arena, rows_of_sizes(arena, rows, sizes), limit, budget)
    return found.selected if settled_ is None else original(settled_, part)


def _sizes(arena: Arena, selected: Selected) -> Sizes:
    """The size of every copy of a placement."""
    sizes: Sizes = {}
    for index, (copy, row) in enumerate(zip(arena.tables.copies, selected.copy_rows, strict=True)):
        here = () if row is None else ((int(copy.pool[row]), int(copy.layouts.num_gpus[row])),)
        sizes[index] = frozenset(here)
    return sizes


def _settled_on(arena: Arena, rows: Rows, limit: float, budget: Budget) -> Selected | None:
    """The placement on fixed sizes that order decides; None when they cannot hold the limit."""
    rows = rows_within(arena.tables, arena.problem, rows, limit)
    if not complete(arena, rows):
        return None
    pruned = prune(arena.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return None
    solution = settle_ties(pruned.problem, limits=budget.rest(), period_seconds=limit)
    # A cyclic period may lie between two ticks, and the solver knows only the later one.
    if solution is None or solution.timing.period > limit * (1 + SLACK):
        return None
    return rows_of(pruned.problem, solution)
