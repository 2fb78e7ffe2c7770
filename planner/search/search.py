"""The best placement on given nodes: pruning, CP-SAT, and the proof.

Sizes are decided first (`decomposition.benders`, `decomposition.master`). Where placements in one
node have prices of their own, these are a search of their own.
"""

from dataclasses import dataclass, field
from functools import partial
from math import inf
from operator import itemgetter

from automap.planner.search.decomposition.benders import BendersLoop, period_limit, slowest
from automap.planner.search.decomposition.master import relaxed_problem
from automap.planner.search.many_models.linear_bound import relax
from automap.planner.search.many_models.many_model_search import MANY_CALLS, large_start
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.solve import MOST_TICKS, TICK_SECONDS, Budget, Limits
from automap.planner.search.proven import Proven
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.one_node import spaces_of_nodes
from automap.planner.search.space.processes import ProcessSpaces
from automap.planner.search.space.rows import Selected, rows_of
from automap.planner.search.space.schedules import schedule_in_place
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies.attempts import Attempt

NODE_SHARE = 0.2
"""The share of the limit that the search within one node may take where there are several."""
PROCESS_SHARE = 0.5
"""The share of what is left that one choice of what a process shares may take."""


@dataclass(frozen=True, slots=True)
class SearchResult(Proven[Selected]):
    """The best placement under an objective, and what is proven about it."""

    objective_value: float = inf
    """The placement's seconds, price, or GPUs; infinite where there is no placement."""
    lower_bound_seconds: float = 0.0
    """No placement on the nodes that the objective chose has a shorter period."""
    options: int = 0
    """Options that reached CP-SAT, over all its runs."""
    warm_start: str | None = None
    """The strategy that the search started from."""
    weak_side: str | None = None
    """The placements, in words, of which least is proven; None: nothing is open, or not known."""
    is_simplified: bool = False
    """True: a simpler placement was taken than the best, which has the value of the bound."""
    attempts: list[Attempt] = field(default_factory=list)
    """Results, on the whole cluster, of the strategies that may start a search."""


def period_of(selected: Selected | None) -> float:
    """Seconds of an iteration; infinite where there is no placement."""
    return inf if selected is None else selected.timing.period


def solve(
    space: SearchSpace,
    *,
    limits: Limits,
    incumbent: Selected | None = None,
    cutoff_seconds: float | None = None,
) -> SearchResult:
    """The placement of the least period, within the limits' gap.

    With a gap only periods that are shorter by more than it are looked for, and the bound says so.
    Placements in one node have weight syncs of their own, and are searched by themselves.

    Args:
        space: What is searched; its rows may already be restricted.
        limits: How long, and how closely.
        incumbent: A known placement; only better ones are looked for.
        cutoff_seconds: Only shorter periods are looked for.
    """
    budget, best = Budget(limits), schedule_in_place(space, incumbent, limits)
    results: list[SearchResult] = []
    parts = [*spaces_of_nodes(space), space]
    for part in parts:
        with budget.share(1.0 if part is space else NODE_SHARE / (len(parts) - 1)):
            result = _solve_processes(part, budget.rest(), best, cutoff_seconds)
            budget.take(result.deterministic_seconds)
        results.append(result)
        best = result.solution
    best = schedule_in_place(space, best, limits)
    bound = min(result.lower_bound for result in results)
    bound = bound if best is None else min(bound, best.timing.period)
    undecided = [result for result in results if not result.is_proven]
    weakest = min(undecided, key=lambda result: result.lower_bound, default=None)
    return SearchResult(
        best,
        bound,
        is_proven=all(result.is_proven for result in results),
        deterministic_seconds=sum(result.deterministic_seconds for result in results),
        objective_value=period_of(best),
        lower_bound_seconds=bound,
        options=sum(result.options for result in results),
        weak_side=None if weakest is None else weakest.weak_side,
    )


def _solve_processes(
    space: SearchSpace, limits: Limits, incumbent: Selected | None, cutoff_seconds: float | None
) -> SearchResult:
    """`_solve`, where models of one process share its engine and sizes: for each of these."""
    if all(copy.process is None for copy in space.tables.copies):
        return _solve(space, limits, incumbent, cutoff_seconds)
    choices, budget, best = ProcessSpaces(space), Budget(limits), incumbent
    results: list[SearchResult] = []
    while not budget.spent:
        limit = period_limit(best, cutoff_seconds, limits.gap)
        choice = choices.next(inf if limit is None else limit)
        if choice is None:
            break
        with budget.share(PROCESS_SHARE):
            result = _solve(choice.space, budget.rest(), best, cutoff_seconds)
            budget.take(result.deterministic_seconds)
        results.append(result)
        if result.solution is not None and result.solution is not best:
            best = choice.lift(result.solution)
    limit = period_limit(best, cutoff_seconds, limits.gap)
    open_sides = [(each.lower_bound, each.weak_side) for each in results if not each.is_proven]
    if choices.least_seconds < (inf if limit is None else limit):
        open_sides.append((choices.least_seconds, "with layouts that were not searched"))
    weakest = min(open_sides, key=itemgetter(0), default=(inf, None))
    bound = min(period_of(best) * (1.0 - limits.gap), weakest[0])
    if not space.problem.barrier:
        bound = max(bound - TICK_SECONDS, 0.0)  # as of one choice alone
    return SearchResult(
        best,
        bound,
        is_proven=not open_sides,
        deterministic_seconds=limits.deterministic_seconds - budget.left,
        options=sum(each.options for each in results),
        weak_side=weakest[1],
    )


def _solve(
    space: SearchSpace, limits: Limits, incumbent: Selected | None, cutoff_seconds: float | None
) -> SearchResult:
    """The best placement at one price for every weight sync, wherever it lies."""
    limit = period_limit(incumbent, cutoff_seconds, limits.gap)
    rows = space.rows
    if limit is not None:
        rows = rows_within(space.tables, space.problem, rows, limit)
    is_possible = space.is_complete(rows)
    part = space.restrict(rows) if is_possible else space
    budget = Budget(limits)
    shorter, first = partial(_shorter, part), None
    if limit is not None and len(space.problem.calls) > MANY_CALLS:
        first = shorter(limit, budget)
    loop = BendersLoop(part, budget, first or incumbent, cutoff_seconds, shorter)
    if is_possible:
        loop.run()
    bound = float(min([loop.cutoff_seconds, *loop.open_bounds.values()]))
    if loop.open_bounds and space.problem.barrier:
        bound = max(bound, _linear_bound(part, loop.limit))
    if not space.problem.barrier:
        # Only whole ticks were ruled out, and a cyclic period may lie between two.
        bound = max(bound - TICK_SECONDS, 0.0)
    longest = slowest(part, part.rows) if limit is None else limit
    bound = max(bound - _hidden_seconds(space.problem, longest), 0.0)
    best = loop.best
    if best is not None and best is not incumbent:
        best = part.lift(best)
    return SearchResult(
        best,
        bound,
        is_proven=not loop.open_bounds or bound >= loop.cutoff_seconds,
        deterministic_seconds=limits.deterministic_seconds - loop.budget.left,
        options=loop.options,
        weak_side=min(loop.open_bounds, key=loop.open_bounds.__getitem__, default=None),
    )


def _shorter(space: SearchSpace, limit: float, budget: Budget) -> Selected | None:
    """A placement below the limit, by list schedules and their neighbourhoods."""
    if not space.problem.barrier or not space.is_complete():
        return None
    found = large_start(space, space.rows, limit_seconds=limit, budget=budget)
    return rows_of(*found) if found is not None and found[1].timing.period < limit else None


def _hidden_seconds(problem: Problem, longest: float) -> float:
    """Seconds by which a period may be shorter than its whole ticks, where these are coarse.

    A call's seconds, its main phase and the times of its chunks are rounded up.
    """
    tick = longest / MOST_TICKS
    rounded = 3 * len(problem.calls) + len(problem.syncs) + len(problem.precedences)
    return tick * rounded if tick > TICK_SECONDS else 0.0


def _linear_bound(space: SearchSpace, limit: float | None) -> float:
    """A bound on all periods, at most the limit, that needs no search."""
    rows = space.rows
    if limit is not None:
        rows = rows_within(space.tables, space.problem, rows, limit)
    if not space.is_complete(rows):
        return 0.0 if limit is None else limit
    cutoff_seconds = slowest(space, rows) if limit is None else limit
    relaxation = relax(relaxed_problem(space, rows), cutoff_seconds=cutoff_seconds)
    return min(relaxation.bound_seconds, cutoff_seconds)
