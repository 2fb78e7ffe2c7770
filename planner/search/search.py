"""The best placement on given nodes: pruning, CP-SAT, and the proof.

Sizes are decided first (planner.search.race, planner.search.sizes). Where placements in one node
have prices of their own, these are a search of their own.
"""

from planner.search import one_node
from planner.search.large import MANY_CALLS
from planner.search.linear import relax
from planner.search.problem import Problem
from planner.search.race import BendersLoop, complete, period_limit, slowest
from planner.search.selected import Found, Selected, in_its_place, original
from planner.search.sizes import relaxed_problem
from planner.search.solve import MOST_TICKS, TICK_SECONDS, Budget, Limits
from planner.search.space import Arena, compact, rows_within

NODE_SHARE = 0.2
"""Of the limit: what the search for placements in one node may take where there are several."""


def search(
    arena: Arena,
    *,
    limits: Limits,
    incumbent: Selected | None,
    horizon_seconds: float | None = None,
) -> Found:
    """Least period, within the gap; `horizon_seconds` caps it where no incumbent does.

    With a gap only periods that are shorter by more are looked for, and the bound says so.
    Placements in one node have weight syncs of their own, and are searched by themselves.
    """
    budget, best = Budget(limits), in_its_place(arena, incumbent, limits)
    found, parts = [], [*one_node.arenas(arena), arena]
    for part in parts:
        with budget.share(1.0 if part is arena else NODE_SHARE / (len(parts) - 1)):
            done = _search(part, budget.rest(), best, horizon_seconds)
            budget.take(done.deterministic_seconds)
        found.append(done)
        best = done.selected
    best = in_its_place(arena, best, limits)
    bound = min(each.lower_bound_seconds for each in found)
    return Found(
        best,
        bound if best is None else min(bound, best.timing.period),
        all(each.proven for each in found),
        sum(each.options for each in found),
        deterministic_seconds=sum(each.deterministic_seconds for each in found),
    )


def _search(
    arena: Arena, limits: Limits, incumbent: Selected | None, horizon_seconds: float | None
) -> Found:
    """The same with one price for every weight sync, wherever it is."""
    limit = period_limit(incumbent, horizon_seconds, limits.gap)
    rows = arena.rows
    if limit is not None:
        rows = rows_within(arena.tables, arena.problem, rows, limit)
    part = compact(arena, rows)
    loop = BendersLoop(part.arena, Budget(limits), incumbent, horizon_seconds)
    if limit is not None and arena.problem.barrier and len(arena.problem.calls) > MANY_CALLS:
        loop.start_large(limit)
    loop.run()
    cutoff = loop.cutoff_seconds
    bound = float(min([cutoff, *loop.open_bounds]))
    if loop.open_bounds and arena.problem.barrier:
        bound = max(bound, _linear_bound(part.arena, loop.limit))
    if not arena.problem.barrier:
        # Only whole ticks were ruled out, and a cyclic period may lie between two.
        bound = max(bound - TICK_SECONDS, 0.0)
    longest = slowest(part.arena, part.arena.rows) if limit is None else limit
    bound = max(bound - _hidden_seconds(arena.problem, longest), 0.0)
    best = loop.best
    if best is not None and best is not incumbent:
        best = original(best, part)
    used = limits.deterministic_seconds - loop.budget.left
    proven = not loop.open_bounds or bound >= cutoff
    return Found(best, bound, proven, loop.options, deterministic_seconds=used)


def _hidden_seconds(problem: Problem, longest: float) -> float:
    """By how much shorter a period may be than its whole ticks, where these are coarse.

    Of a call its seconds, its bulk and what comes out before the end are rounded up.
    """
    tick = longest / MOST_TICKS
    rounded = 3 * len(problem.calls) + len(problem.syncs) + len(problem.precedences)
    return tick * rounded if tick > TICK_SECONDS else 0.0


def _linear_bound(arena: Arena, limit: float | None) -> float:
    """A bound on all periods, at most the limit, that needs no search."""
    rows = arena.rows
    if limit is not None:
        rows = rows_within(arena.tables, arena.problem, rows, limit)
    if not complete(arena, rows):
        return 0.0 if limit is None else limit
    horizon = slowest(arena, rows) if limit is None else limit
    relaxation = relax(relaxed_problem(arena, rows), horizon_seconds=horizon)
    return min(relaxation.bound_seconds, horizon)
