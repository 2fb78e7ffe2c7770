"""Rows of the tables that take part in a search, and a placement by such rows."""

from dataclasses import dataclass
from math import inf

import numpy as np

from automap.planner.search.candidates.tables import BoolArray, Tables
from automap.planner.search.model.problem import Problem, Solution, Timing


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows of the tables take part in a search: one mask per table."""

    copies: list[BoolArray]
    calls: list[BoolArray]
    """Per call table, a mask of its rows."""

    def both(self, other: "Rows") -> "Rows":
        """The rows that are in both."""
        return Rows(
            [a & b for a, b in zip(self.copies, other.copies, strict=True)],
            [a & b for a, b in zip(self.calls, other.calls, strict=True)],
        )


@dataclass(frozen=True, slots=True)
class Selected:
    """A placement by rows of the tables, with its schedule."""

    copy_rows: tuple[int | None, ...]
    """Per copy its layout's row; None: an absent shadow."""
    first_gpus: tuple[int | None, ...]
    """Per copy the first GPU of its range on the axis of all pools."""
    call_rows: tuple[tuple[int, int] | None, ...]
    """Per call (copy, row of that call's table on that copy); None: a call without GPUs."""
    timing: Timing


def period_of(selected: Selected | None) -> float:
    """Seconds of an iteration; infinite where there is no placement."""
    return inf if selected is None else selected.timing.period


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


def rows_of_placement(tables: Tables, selected: Selected) -> Rows:
    """The rows of one placement alone."""
    copies = [
        np.arange(len(copy)) == (-1 if row is None else row)
        for copy, row in zip(tables.copies, selected.copy_rows, strict=True)
    ]
    calls = []
    for table in tables.calls:
        copy, row = selected.call_rows[table.call] or (-1, -1)
        calls.append(np.arange(len(table)) == (row if copy == table.copy else -1))
    return Rows(copies, calls)


def all_rows(tables: Tables) -> Rows:
    """Every row."""
    return Rows(
        [np.ones(len(copy), dtype=bool) for copy in tables.copies],
        [np.ones(len(call), dtype=bool) for call in tables.calls],
    )


def rows_up_to(tables: Tables, sizes: tuple[int, ...]) -> Rows:
    """The rows whose range has at most so many GPUs of its pool."""
    most = np.array(sizes, dtype=np.int64)
    copies = [copy.layouts.num_gpus <= most[copy.pool] for copy in tables.copies]
    return Rows(copies, [copies[call.copy][call.copy_row] for call in tables.calls])


def rows_with_counts(tables: Tables, counts: set[int]) -> Rows:
    """The rows whose range has one of the given sizes."""
    wanted = np.array(sorted(counts), dtype=np.int64)
    copies = [np.isin(copy.layouts.num_gpus, wanted) for copy in tables.copies]
    return Rows(copies, [copies[call.copy][call.copy_row] for call in tables.calls])


def rows_without_tails(tables: Tables) -> Rows:
    """The rows whose generation ends on all of its GPUs."""
    rows = all_rows(tables)
    calls = [
        mask if table.tail is None else table.tail == 0
        for table, mask in zip(tables.calls, rows.calls, strict=True)
    ]
    return Rows(rows.copies, calls)
