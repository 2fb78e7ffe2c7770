"""A start for jobs of so many calls that sizes cannot be decided one vector at a time.

Solutions of the relaxed problem are list schedules drawn from the linear relaxation, improved by
neighbourhoods. What was found is solved again with memory and a few layouts of every size, as often
as that still shortens it.
"""

from functools import partial

from automap.planner.search.decomposition.master import relaxed_problem
from automap.planner.search.many_models.layout_sampling import rows_with_headroom, sampled_layouts
from automap.planner.search.many_models.linear_bound import relax
from automap.planner.search.many_models.list_schedules import shortest_list_schedule
from automap.planner.search.many_models.neighbourhood import (
    AT_ONCE,
    STEP,
    Structure,
    improved,
    shortest,
)
from automap.planner.search.model.problem import Problem, Solution
from automap.planner.search.model.pruning import SLACK, prune
from automap.planner.search.model.solve import Budget
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.rows import Rows, Selected, rows_of
from automap.planner.search.space.search_space import SearchSpace

MANY_CALLS = 12
"""Up to so many a search starts without it, and asks for it where the proof turns out hard."""
DRAWING_SECONDS = 0.05
"""Deterministic seconds that drawing list schedules counts as."""
ENOUGH_SECONDS = 1.5
"""Deterministic seconds after which the neighbourhoods of a list schedule gain less than another
list schedule with its own."""
MOST_LIST_SCHEDULES = 8
SHARE = 0.75
"""The share of the remaining budget that list schedules and their neighbourhoods may take, and then
the share of the rest that placing them with memory may take."""
PLACED = 12
"""Structures without memory that are solved with it."""
ATTEMPTS = (0.05, 1), (0.2, 2), (0.2, 5)
"""(share by which memory may lengthen a period, how far sizes may change), tried in turn."""
POLISH_FREED = 5
"""Roles that are freed at once to improve the best structure without memory."""
AGAIN = 2
"""How far sizes may change once there is a solution with memory."""
AGAIN_FREED = 4
"""Roles that are freed at once to improve a solution with memory."""
REAL_SECONDS = 0.3
"""Deterministic seconds of one solution with memory."""


def shorter_start(space: SearchSpace, limit_seconds: float, budget: Budget) -> Selected | None:
    """A placement below the limit, by list schedules and their neighbourhoods."""
    if not space.problem.barrier or not space.is_complete():
        return None
    found = large_start(space, space.rows, limit_seconds=limit_seconds, budget=budget)
    if found is None or found[1].timing.period >= limit_seconds:
        return None
    return rows_of(*found)


def large_start(
    space: SearchSpace, rows: Rows, *, limit_seconds: float, budget: Budget
) -> tuple[Problem, Solution] | None:
    """A solution shorter than the limit, and the problem whose options it takes."""
    with_headroom = rows_with_headroom(space, rows)
    problem = relaxed_problem(space, with_headroom)
    relaxation = relax(problem, cutoff_seconds=limit_seconds)
    shorter = partial(improved, bound_seconds=relaxation.bound_seconds, budget=budget)
    relaxed = partial(_relaxed, space, with_headroom)
    found: list[Structure] = []
    count = min(max(int(SHARE * budget.likely_left / ENOUGH_SECONDS) - 1, 1), MOST_LIST_SCHEDULES)
    with budget.share(SHARE):
        for number in range(count):
            with budget.share(1 / (count - number + (count > 1))):
                solution = shortest_list_schedule(
                    problem, relaxation, seed=budget.limits.seed + number
                )
                if solution is None:
                    return None
                budget.take(min(DRAWING_SECONDS, 0.5 * budget.left))
                found += shorter(relaxed, Structure.of(problem, solution), number=number)
        found.sort(key=lambda structure: structure.period)
        found = [*shorter(relaxed, found[0], number=count, at_once=POLISH_FREED)[:0:-1], *found]
    real = _real(space, rows, found, limit_seconds, budget)
    if real is None:
        return None
    with budget.share(SHARE):
        real = shorter(
            partial(_with_sampled_layouts, space, rows), real, near=AGAIN, at_once=AGAIN_FREED
        )[-1]
    return real.problem, real.solution


def _relaxed(space: SearchSpace, rows: Rows, seconds: float) -> Problem:
    """The relaxed problem, which ignores memory, with the rows that a period allows."""
    return relaxed_problem(
        space, rows_within(space.tables, space.problem, rows, seconds * (1 + SLACK))
    )


def _with_sampled_layouts(space: SearchSpace, rows: Rows, seconds: float) -> Problem:
    """The problem with memory and a few layouts of every size, with what a period allows."""
    rows = rows_within(space.tables, space.problem, rows, seconds)
    return prune(space.options(sampled_layouts(space, rows)), upper_bound_seconds=seconds).problem


def _real(
    space: SearchSpace, rows: Rows, found: list[Structure], limit_seconds: float, budget: Budget
) -> Structure | None:
    """The best of the structures with memory, on about their sizes; the most promising come first.

    How much memory lengthens a structure differs more than the structures do, so several are tried.
    """
    with budget.share(SHARE):
        for margin, near in ATTEMPTS:
            cutoff_seconds = min(found[0].period * (1 + margin), limit_seconds)
            problem, best = _with_sampled_layouts(space, rows, cutoff_seconds), None
            for first in range(0, min(len(found), PLACED), AT_ONCE):
                shorter = shortest(
                    problem,
                    [(each, set[str]()) for each in found[first : first + AT_ONCE]],
                    cutoff_seconds=cutoff_seconds,
                    budget=budget,
                    near=near,
                    most_seconds=REAL_SECONDS,
                )
                if shorter is not None:
                    best, cutoff_seconds = shorter, shorter.period * (1 - STEP)
                if budget.spent:
                    break
            if best is not None:
                return best
    return None
