"""A start for jobs of so many calls that sizes cannot be decided one vector at a time.

The relaxed problem is sketched by a population and improved by neighbourhoods. What was found is
solved again with memory and a few layouts of every size, as often as that still shortens it.
"""

from functools import partial

from planner.search.linear import relax
from planner.search.neighbourhood import STEP, Structure, improved, shortest
from planner.search.population import sketch
from planner.search.problem import Problem, Solution
from planner.search.pruning import SLACK, prune
from planner.search.sizes import relaxed_problem
from planner.search.solve import Budget
from planner.search.space import Arena, Rows, rows_within
from planner.search.thinning import thinned_layouts

MANY_CALLS = 12
"""Up to so many the search over sizes proves its plan without such a start."""
SKETCH_SECONDS = 0.7
"""Deterministic seconds that the population counts as."""
ENOUGH_SECONDS = 3.0
"""Deterministic seconds after which a sketch and its neighbourhoods gain less than another one."""
MOST_SKETCHES = 3
SHARE = 0.8
"""Of the limit: for sketches and their neighbourhoods."""
ATTEMPTS = (0.05, 1), (0.2, 2), (0.2, 5)
"""(by how much memory may lengthen the sketch, how far sizes may change), tried in turn."""
AGAIN = 2
"""How far sizes may change once there is a solution with memory."""
REAL_SECONDS = 0.3
"""Deterministic seconds of one solution with memory."""


def large_start(
    arena: Arena, rows: Rows, *, limit_seconds: float, budget: Budget
) -> tuple[Problem, Solution] | None:
    """A solution shorter than the limit, and the problem whose options it takes."""
    problem = relaxed_problem(arena, rows)
    relaxation = relax(problem, horizon_seconds=limit_seconds)
    found = []
    count = min(max(int(SHARE * budget.left / ENOUGH_SECONDS), 1), MOST_SKETCHES)
    with budget.share(SHARE):
        for number in range(count):
            with budget.share(1 / (count - number)):
                solution = sketch(problem, relaxation, seed=budget.limits.seed + number)
                if solution is None:
                    return None
                budget.take(min(SKETCH_SECONDS, 0.5 * budget.left))
                sketched = Structure.of(problem, solution)
                found.append(
                    improved(
                        partial(_relaxed, arena, rows),
                        sketched,
                        bound_seconds=relaxation.bound_seconds,
                        budget=budget,
                    )
                )
    # The best is placed; those after it only where memory has no room for it.
    for each in sorted(found, key=lambda structure: structure.period):
        real = _real(arena, rows, each, limit_seconds, budget)
        if real is not None:
            with budget.share(SHARE):
                real = improved(
                    partial(_thinned, arena, rows),
                    real,
                    bound_seconds=relaxation.bound_seconds,
                    budget=budget,
                    near=AGAIN,
                )
            return real.problem, real.solution
    return None


def _relaxed(arena: Arena, rows: Rows, seconds: float) -> Problem:
    """Without memory, what a period leaves."""
    return relaxed_problem(
        arena, rows_within(arena.tables, arena.problem, rows, seconds * (1 + SLACK))
    )


def _thinned(arena: Arena, rows: Rows, seconds: float) -> Problem:
    """With memory and a few layouts of every size, what a period leaves."""
    rows = rows_within(arena.tables, arena.problem, rows, seconds)
    return prune(arena.options(thinned_layouts(arena, rows)), upper_bound_seconds=seconds).problem


def _real(
    arena: Arena, rows: Rows, sketched: Structure, limit_seconds: float, budget: Budget
) -> Structure | None:
    """A sketch with memory: its structure on about its sizes, on ever wider horizons."""
    for margin, near in ATTEMPTS:
        horizon = min(sketched.period * (1 + margin), limit_seconds)
        problem = _thinned(arena, rows, horizon)
        solve = partial(shortest, problem, freed=[set()], budget=budget, most_seconds=REAL_SECONDS)
        best = None
        found = solve(structure=sketched, horizon_seconds=horizon, near=near)
        while found is not None:
            best, shorter = found, found.period * (1 - STEP)
            found = None if budget.spent else solve(structure=best, horizon_seconds=shorter, near=AGAIN)
        if best is not None:
            return best
    return None
