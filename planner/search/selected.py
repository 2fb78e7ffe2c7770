"""A placement by rows of the tables, and what is proven about it."""

from dataclasses import dataclass, replace

import numpy as np

from planner.search import one_node
from planner.search.problem import Assignment, Problem, Solution, Timing
from planner.search.solve import Limits, minimise_period, pinned
from planner.search.space import Arena, Compact, Rows, problem_of
from planner.search.tables import Tables


@dataclass(frozen=True, slots=True)
class Selected:
    """A placement by rows of the tables, with its schedule."""

    copy_rows: tuple[int | None, ...]
    first_gpus: tuple[int | None, ...]
    call_rows: tuple[tuple[int, int] | None, ...]
    """Per call (copy, row of that call's table on that copy)."""
    timing: Timing


@dataclass(frozen=True, slots=True)
class Found:
    """The best placement and what is proven about it."""

    selected: Selected | None
    lower_bound_seconds: float
    proven: bool
    options: int
    """Options that reached CP-SAT, over all sets of shadows."""
    warm_start: str | None = None
    deterministic_seconds: float = 0.0
    """What the solver took."""


def rows_of(problem: Problem, solution: Solution) -> Selected:
    """A solution by table rows, which problems with other options can read too."""
    assignment = solution.assignment
    copies = tuple(
        None if option is None else copy.options[option].row
        for copy, option in zip(problem.copies, assignment.copy_options, strict=True)
    )
    calls = tuple(
        None if option is None else (call.options[option].copy, call.options[option].row)
        for call, option in zip(problem.calls, assignment.call_options, strict=True)
    )
    return Selected(copies, assignment.first_gpus, calls, solution.timing)


def original(selected: Selected, part: Compact) -> Selected:
    """A placement by the rows of the whole tables."""
    return replace(
        selected,
        copy_rows=tuple(
            None if row is None else int(rows[row])
            for row, rows in zip(selected.copy_rows, part.copy_rows, strict=True)
        ),
        call_rows=tuple(
            None if chosen is None else (chosen[0], int(part.call_rows[call, chosen[0]][chosen[1]]))
            for call, chosen in enumerate(selected.call_rows)
        ),
    )


def schedule(problem: Problem, assignment: Assignment, *, limits: Limits) -> Solution | None:
    """The shortest period of a fixed assignment."""
    fixed = pinned(problem, assignment)
    slowest = sum(
        max((option.seconds for option in call.options), default=call.fixed_seconds)
        for call in fixed.calls
    ) + sum(option.sync_seconds for copy in fixed.copies for option in copy.options)
    outcome = minimise_period(
        fixed, limits=limits, horizon_seconds=slowest + 1e-3, ranges=assignment.first_gpus
    )
    if outcome.solution is None:
        return None
    return replace(outcome.solution, assignment=assignment)


def in_its_place(arena: Arena, selected: Selected | None, limits: Limits) -> Selected | None:
    """A placement with the schedule that it has where it lies: in one node syncs are shorter."""
    if selected is None or not lies_in_one_node(arena, selected):
        return selected
    tables = as_placed(arena, selected).tables
    problem = problem_of(arena.problem, tables, _own_rows(tables, selected))
    assignment = Assignment(
        tuple(None if row is None else 0 for row in selected.copy_rows),
        selected.first_gpus,
        tuple(None if chosen is None else 0 for chosen in selected.call_rows),
    )
    found = schedule(problem, assignment, limits=limits)
    if found is None or found.timing.period >= selected.timing.period:
        return selected
    return replace(selected, timing=found.timing)


def as_placed(arena: Arena, selected: Selected) -> Arena:
    """The arena with the prices of a placement that lies where the given one does."""
    if not lies_in_one_node(arena, selected):
        return arena
    return replace(arena, tables=arena.tables.in_one_node())


def lies_in_one_node(arena: Arena, selected: Selected) -> bool:
    """True for a placement in one node, where that is priced otherwise than the others."""
    return one_node.lies_in_one(arena, selected.copy_rows, selected.first_gpus)


def _own_rows(tables: Tables, selected: Selected) -> Rows:
    """The rows of a placement alone."""
    copies = [
        np.arange(len(copy)) == (-1 if row is None else row)
        for copy, row in zip(tables.copies, selected.copy_rows, strict=True)
    ]
    calls = []
    for table in tables.calls:
        copy, row = selected.call_rows[table.call] or (-1, -1)
        calls.append(np.arange(len(table)) == (row if copy == table.copy else -1))
    return Rows(copies, calls)
