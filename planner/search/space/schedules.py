"""Exact schedules of placements that are fixed."""

from dataclasses import replace

from automap.planner.search.model.problem import Assignment, Problem, Solution
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import Limits, minimise_period, pinned
from automap.planner.search.space.rows import Rows, Selected, rows_of
from automap.planner.search.space.search_space import SearchSpace


def schedule(problem: Problem, assignment: Assignment, *, limits: Limits) -> Solution | None:
    """The shortest period of a fixed assignment; None where no order of its calls is feasible."""
    fixed = pinned(problem, assignment)
    cutoff_seconds = slowest_period(fixed)
    outcome = minimise_period(
        fixed, limits=limits, cutoff_seconds=cutoff_seconds, ranges=assignment.first_gpus
    )
    if outcome.solution is None:
        return None
    return replace(outcome.solution, assignment=assignment)


def slowest_period(problem: Problem) -> float:
    """A period that no sensible schedule exceeds: every call at its slowest, one by one."""
    calls = sum(
        max((option.seconds for option in call.options), default=call.fixed_seconds)
        for call in problem.calls
    )
    syncs = sum(
        max((option.sync_seconds for option in copy.options), default=0.0)
        for copy in problem.copies
    )
    return calls + syncs + 1e-3


def schedule_in_place(
    space: SearchSpace, selected: Selected | None, limits: Limits
) -> Selected | None:
    """A placement with the schedule that it has where it lies: in one node syncs are shorter."""
    if selected is None or not space.lies_in_one_node(selected):
        return selected
    found = schedule(*space.alone(selected), limits=limits)
    if found is None or found.timing.period >= selected.timing.period:
        return selected
    return replace(selected, timing=found.timing)


def solve_in_place(
    space: SearchSpace, placed: Selected, rows: Rows, *, limits: Limits, cutoff_seconds: float
) -> Selected | None:
    """The best settings and order on the ranges of a placement; None: none is within the cutoff.

    Args:
        space: Whose prices count.
        placed: Whose ranges are kept.
        rows: The rows that it may have there.
        limits: Of the solver.
        cutoff_seconds: No longer period is looked for.
    """
    pruned = prune(space.priced_as(placed).options(rows), upper_bound_seconds=cutoff_seconds)
    if pruned.hopeless:
        return None
    found = minimise_period(
        pruned.problem, limits=limits, cutoff_seconds=cutoff_seconds, ranges=placed.first_gpus
    )
    return None if found.solution is None else rows_of(pruned.problem, found.solution)
