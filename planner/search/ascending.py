"""A good placement soon, by an ascending lower bound: looked for just above what is proven.

A limit on the period takes away every candidate whose bound exceeds it (`search.model.bounds`).
Just above the bound few are left, and what is found there is close to the best. That nothing is
within such a limit is soon proven, and raises the bound.
"""

from automap.planner.search.decomposition.dominance import DominanceFilter
from automap.planner.search.decomposition.master import (
    MasterProblem,
    Relaxed,
    Sizes,
    relaxed_problem,
    rows_of_sizes,
)
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import Budget, minimise_period
from automap.planner.search.proven import Proven
from automap.planner.search.space.bounds_filter import least_period, rows_within
from automap.planner.search.space.processes import shared_by
from automap.planner.search.space.rows import Rows, Selected, rows_of
from automap.planner.search.space.schedules import schedule_in_place
from automap.planner.search.space.search_space import SearchSpace

STEPS = (0.02, 0.012, 0.015, 0.02, 0.03, 0.06, 0.12, 0.3)
"""Shares of the bound by which the limit is raised while there are no sizes for it."""
SOLVES = (0.012, 0.024, 0.045, 0.09, 0.2)
"""Shares above the relaxed period of the sizes below which a placement on them is looked for."""
BOUND_SHARE = 0.005
"""How closely the bound that candidates alone give is found, as a share of it."""
PART_OF_REST = 0.7
"""The share of the remaining budget that one run of the solver may take."""
ROUND_SECONDS = 0.002
"""Deterministic seconds that a problem is counted as besides the solver's: building it."""


def solve_ascending(
    space: SearchSpace,
    *,
    cutoff_seconds: float,
    floor: float,
    budget: Budget,
    placing: Budget | None = None,
) -> Proven[Selected]:
    """Some placement within the cutoff, on the sizes whose relaxed period is the least.

    Args:
        space: What is searched.
        cutoff_seconds: Only periods up to this are looked for.
        floor: Seconds that no period is below, as is known already.
        budget: What the search may take.
        placing: The budget of the placement, where it is not what the sizes leave of the other.
    """
    near = space.within(cutoff_seconds)
    if near is None:
        return Proven(None, cutoff_seconds, is_proven=True)
    # What bounds a placement must hold wherever it lies.
    least = near.with_tables(near.tables.least_syncs())
    bound = max(floor, _least_seconds(least, cutoff_seconds))
    for share in STEPS:
        trial_seconds = min(bound * (1 + share), cutoff_seconds)
        relaxed = _sizes_within(least, trial_seconds, budget)
        # What a cut search proves may be less than what is known.
        bound = max(bound, min(relaxed.bound_seconds, trial_seconds))
        if relaxed.sizes is not None:
            found = _placed(near, relaxed.sizes, bound, cutoff_seconds, placing or budget)
            if found is not None and shared_by(near, found) is None:
                found = None
            best = None if found is None else near.lift(found)
            return Proven(best, bound, is_proven=False)
        if budget.spent or not relaxed.proven or trial_seconds == cutoff_seconds:
            break
    return Proven(None, bound, is_proven=bound >= cutoff_seconds)


def _least_seconds(space: SearchSpace, limit: float) -> float:
    """A bound from the candidates alone: the least limit under which none of them has to go."""
    low, high = least_period(space.tables, space.problem, space.rows) or 0.0, limit
    while high - low > BOUND_SHARE * low:
        middle = (low + high) / 2
        left = rows_within(space.tables, space.problem, space.rows, middle)
        if space.is_complete(left):
            space, high = space.restrict(left), middle
        else:
            low = middle
    return low


def _sizes_within(space: SearchSpace, limit: float, budget: Budget) -> Relaxed:
    """The sizes of the least relaxed period, if that is within the limit."""
    few = space.within(limit)
    if few is None:
        return Relaxed(None, limit, True)
    master = MasterProblem(relaxed_problem(few, few.rows), cutoff_seconds=limit)
    master.minimise_period()
    with budget.share(PART_OF_REST):
        relaxed = master.best(budget)
    budget.take(ROUND_SECONDS)
    return relaxed


def _placed(
    space: SearchSpace, sizes: Sizes, bound: float, limit: float, budget: Budget
) -> Selected | None:
    """A placement on the given sizes, with a limit that rises until there is one."""
    few = space.restrict(rows_of_sizes(space, space.rows, sizes))
    rows = DominanceFilter(few, few.rows).of_sizes(few.rows, sizes)
    for share in SOLVES:
        trial_seconds = min(bound * (1 + share), limit)
        found = _solved(few, rows, trial_seconds, budget)
        if found is not None:
            found = schedule_in_place(few, found, budget.limits)
            assert found is not None
            return few.lift(found)
        if budget.spent or trial_seconds == limit:
            return None
    return None


def _solved(space: SearchSpace, rows: Rows, limit: float, budget: Budget) -> Selected | None:
    """The best of a few rows, if it is within the limit and found in time."""
    if space.is_complete(rows):
        rows = rows_within(space.tables, space.problem, rows, limit)
    if not space.is_complete(rows):
        return None
    pruned = prune(space.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return None
    with budget.share(PART_OF_REST):
        outcome = minimise_period(pruned.problem, limits=budget.rest(), cutoff_seconds=limit)
        budget.take(outcome.deterministic_seconds)
    budget.take(ROUND_SECONDS)
    return None if outcome.solution is None else rows_of(pruned.problem, outcome.solution)
