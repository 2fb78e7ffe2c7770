"""A start for jobs of so many calls that sizes cannot be decided one vector at a time.

The relaxed problem is sketched by a population, improved by neighbourhoods, and what was found is
solved with all layouts and memory on its own ranges.
"""

from planner.search.dominance import Undominated
from planner.search.linear import relax
from planner.search.neighbourhood import Structure, improved, neighbour
from planner.search.population import sketch
from planner.search.problem import Problem, Solution
from planner.search.pruning import SLACK, prune
from planner.search.sizes import Sizes, relaxed_problem
from planner.search.solve import Budget
from planner.search.space import Arena, Rows, rows_within

MANY_CALLS = 12
"""Up to so many the search over sizes proves its plan without such a start."""
SKETCH_SECONDS = 1.0
"""Deterministic seconds that the population counts as."""
REAL_SECONDS = 1.0
"""Deterministic seconds for what was found, with all layouts and memory."""
MARGINS = (0.01, 0.03, 0.1)
"""By how much memory may lengthen it, tried in turn: the less, the fewer layouts are left."""
SHARE = 0.6
"""Of the limit that neighbourhoods may use."""


def large_start(
    arena: Arena, rows: Rows, *, limit_seconds: float, budget: Budget
) -> tuple[Problem, Solution] | None:
    """A solution shorter than the limit, and the problem whose options it takes."""
    problem = relaxed_problem(arena, rows)
    relaxation = relax(problem, horizon_seconds=limit_seconds)
    solution = sketch(problem, relaxation, seed=budget.limits.seed)
    if solution is None:
        return None
    budget.take(min(SKETCH_SECONDS, SHARE * budget.left))
    structure = Structure.of(problem, solution)
    # Within the sketch's period fewer options are left, and each neighbourhood is solved faster.
    period = min(structure.period * (1 + SLACK), limit_seconds)
    within = rows_within(arena.tables, arena.problem, rows, period)
    with budget.share(SHARE):
        structure = improved(
            relaxed_problem(arena, within),
            structure,
            bound_seconds=relaxation.bound_seconds,
            budget=budget,
        )
    for margin in MARGINS:
        horizon = min(structure.period * (1 + margin), limit_seconds)
        found = _real(arena, rows, _sizes(problem, structure), structure, horizon, budget)
        if found is not None:
            return found
    return None


def _sizes(problem: Problem, structure: Structure) -> Sizes:
    """Of every copy, on the only pool that a sketch knows."""
    sizes: Sizes = {copy: frozenset() for copy in range(len(problem.copies))}
    return sizes | {c: frozenset([(0, span.count)]) for c, span in structure.ranges.items()}


def _real(
    arena: Arena, rows: Rows, sizes: Sizes, structure: Structure, horizon: float, budget: Budget
) -> tuple[Problem, Solution] | None:
    """The sketched sizes and structure with all layouts and memory, within the horizon."""
    rows = rows_within(arena.tables, arena.problem, rows, horizon)
    real = arena.options(Undominated(arena, rows).of_sizes(rows, sizes))
    pruned = prune(real, upper_bound_seconds=horizon)
    if pruned.hopeless or any(
        copy.shadow_of is None and not copy.options for copy in pruned.problem.copies
    ):
        return None
    found = neighbour(
        pruned.problem,
        structure,
        set(),
        horizon_seconds=horizon,
        budget=budget,
        most_seconds=REAL_SECONDS,
    )
    return None if found is None else (pruned.problem, found)
