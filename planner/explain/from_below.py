"""A good placement soon: looked for a little above what is proven, then further and further off.

A limit on the period takes away every candidate whose bound exceeds it (planner/search/bounds.py).
Just above the bound few are left, and what is found there is close to the best. That nothing is
within such a limit is soon proven, and raises the bound.
"""

from planner.explain.solving import Solved
from planner.explain.study import Narrowed, Study
from planner.search.dominance import Undominated
from planner.search.pruning import prune
from planner.search.race import complete
from planner.search.selected import Selected, in_its_place, rows_of
from planner.search.sizes import MasterProblem, Relaxed, Sizes, relaxed_problem, rows_of_sizes
from planner.search.solve import Budget, minimise_period
from planner.search.space import Arena, Rows, all_rows, arena, compact, least_period, rows_within

STEPS = (0.02, 0.012, 0.015, 0.02, 0.03, 0.06, 0.12, 0.3)
"""Shares of the bound by which the limit is raised while there are no sizes for it."""
SOLVES = (0.012, 0.024, 0.045, 0.09, 0.2)
"""Shares above the relaxed period of the sizes below which a placement on them is looked for."""
BOUND_SHARE = 0.005
"""How closely the bound that candidates alone give is found, as a share of it."""
PART_OF_REST = 0.7
"""Of what is left of the budget: what the solver may take at once."""
ROUND_SECONDS = 0.002
"""Deterministic seconds that a problem is counted as besides the solver's: building it."""


def from_below(
    now: Study, limit: float, floor: float, budget: Budget, *, placing: Budget | None = None
) -> Solved:
    """Some placement within the limit, on the sizes whose relaxed period is the least.

    `placing` is the budget of the placement, where it is not what the sizes leave of the other.
    """
    near = narrowed(now, limit)
    if near is None:
        return Solved(None, limit, True)
    # What bounds a placement must hold wherever it lies.
    least = near.study.with_tables(near.study.tables.least_syncs())
    bound = max(floor, _least_seconds(least, limit))
    for share in STEPS:
        ceiling = min(bound * (1 + share), limit)
        relaxed = _sizes_within(least, ceiling, budget)
        # What a cut search proves may be less than what is known.
        bound = max(bound, min(relaxed.bound_seconds, ceiling))
        if relaxed.sizes is not None:
            found = _placed(near, relaxed.sizes, bound, limit, placing or budget)
            return Solved(found, bound, False)
        if budget.spent or not relaxed.proven or ceiling == limit:
            break
    return Solved(None, bound, bound >= limit)


def narrowed(now: Study, limit: float) -> Narrowed | None:
    """The candidates that a plan within the limit may have; None: there is no such plan."""
    every = all_rows(now.tables)
    whole = Arena(now.tables, now.problem, every)
    if not complete(whole, every):
        return None
    rows = rows_within(now.tables.least_syncs(), now.problem, every, limit)
    return Narrowed.of(now, rows) if complete(whole, rows) else None


def _least_seconds(near: Study, limit: float) -> float:
    """A bound from the candidates alone: the least limit under which none of them has to go."""
    part = arena(near.tables, near.problem)
    rows = part.rows
    low, high = least_period(part.tables, part.problem, rows) or 0.0, limit
    while high - low > BOUND_SHARE * low:
        middle = (low + high) / 2
        left = rows_within(part.tables, part.problem, rows, middle)
        if complete(part, left):
            part = compact(part, left).arena
            high, rows = middle, part.rows
        else:
            low = middle
    return low


def _sizes_within(near: Study, limit: float, budget: Budget) -> Relaxed:
    """The sizes of the least relaxed period, if that is within the limit."""
    few = narrowed(near, limit)
    if few is None:
        return Relaxed(None, limit, True)
    part = arena(few.study.tables, few.study.problem)
    master = MasterProblem(relaxed_problem(part, part.rows), horizon_seconds=limit)
    master.minimise_period()
    with budget.share(PART_OF_REST):
        relaxed = master.best(budget)
    budget.take(ROUND_SECONDS)
    return relaxed


def _placed(
    near: Narrowed, sizes: Sizes, bound: float, limit: float, budget: Budget
) -> Selected | None:
    """A placement on the given sizes, with a limit that rises until there is one."""
    whole = arena(near.study.tables, near.study.problem)
    some = rows_of_sizes(whole, whole.rows, sizes)
    part = Narrowed.of(near.study, some)
    few = arena(part.study.tables, part.study.problem)
    rows = Undominated(few, few.rows).of_sizes(few.rows, sizes)
    for share in SOLVES:
        ceiling = min(bound * (1 + share), limit)
        found = _solved(few, rows, ceiling, budget)
        if found is not None:
            found = in_its_place(few, found, budget.limits)
            assert found is not None
            return near.original(part.original(found))
        if budget.spent or ceiling == limit:
            return None
    return None


def _solved(part: Arena, rows: Rows, limit: float, budget: Budget) -> Selected | None:
    """The best of a few rows, if it is within the limit and found in time."""
    if complete(part, rows):
        rows = rows_within(part.tables, part.problem, rows, limit)
    if not complete(part, rows):
        return None
    pruned = prune(part.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return None
    with budget.share(PART_OF_REST):
        outcome = minimise_period(pruned.problem, limits=budget.rest(), horizon_seconds=limit)
        budget.take(outcome.deterministic_seconds)
    budget.take(ROUND_SECONDS)
    return None if outcome.solution is None else rows_of(pruned.problem, outcome.solution)
