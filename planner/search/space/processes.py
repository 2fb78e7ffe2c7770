"""Models of one process: the spaces in which all of them share its engine and sizes.

Some targets train and score several models in one process per GPU, whose parallel groups they
share, or have one engine for all generations of a model, or a few ways in which models share GPUs.
Every choice of such a way, of engine and sizes is a space of its own. They come best bound first,
and what they have in common is decided one column after another, so most are never looked at.
"""

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

import numpy as np

from automap.planner.layout import IntArray
from automap.planner.search.candidates.tables import FREE, BoolArray, CallTable, Tables
from automap.planner.search.model.problem import FormChoice
from automap.planner.search.space.rows import Rows, Selected
from automap.planner.search.space.search_space import SearchSpace

Kind = Literal["copies", "calls"]


@dataclass(frozen=True, order=True, slots=True)
class ProcessSpace:
    """Placements whose models in one process agree on the first columns."""

    bound_seconds: float
    """No period is shorter."""
    undecided: int
    """Columns on which they need not agree yet: of equal bounds the most decided comes first."""
    values: tuple[int, ...]
    """What they agree on."""
    space: SearchSpace = field(compare=False)
    within: "ProcessSpace | None" = field(compare=False)

    def lift(self, selected: Selected) -> Selected:
        """A placement of this space by the rows of the whole."""
        lifted = self.space.lift(selected)
        return lifted if self.within is None else self.within.lift(lifted)


class ProcessSpaces:
    """The spaces of all engines and sizes that models of one process may share."""

    def __init__(self, space: SearchSpace) -> None:
        self._width = _width(space.tables)
        self._heap: list[ProcessSpace] = []
        for whole in _by_form(replace(space, origin=None)):
            bound = whole.lower_bound() if whole.is_complete() else None
            if bound is not None:
                heapq.heappush(self._heap, ProcessSpace(bound, self._width, (), whole, None))

    @property
    def least_seconds(self) -> float:
        """No period in what is left is shorter; infinite where nothing is."""
        return self._heap[0].bound_seconds if self._heap else inf

    def next(self, most_seconds: float) -> ProcessSpace | None:
        """The next space that may hold so short a period; None: there is none."""
        while self._heap and self.least_seconds <= most_seconds:
            found = heapq.heappop(self._heap)
            if not found.undecided:
                return found
            self._open(found)
        return None

    def _open(self, parent: ProcessSpace) -> None:
        """One space for each value of the next column."""
        space, column = parent.space, len(parent.values)
        for value in _values(space, column):
            rows = _agreeing(space, column, value)
            if not space.is_complete(rows):
                continue
            part = space.restrict(rows)
            bound = part.lower_bound()
            if bound is not None:
                bound = max(bound, parent.bound_seconds)
                values = (*parent.values, value)
                heapq.heappush(
                    self._heap,
                    ProcessSpace(bound, self._width - len(values), values, part, parent),
                )


def _by_form(space: SearchSpace) -> Iterator[SearchSpace]:
    """The space in each of the ways to share GPUs; itself where there is no such choice."""
    if not space.problem.forms:
        yield space
    for form in space.problem.forms:
        yield _in_form(space, form)


def _in_form(space: SearchSpace, form: FormChoice) -> SearchSpace:
    problem, tables = space.problem, space.tables
    problem = replace(
        problem,
        colocate=(*problem.colocate, *sorted(form.colocate)),
        separate=(*problem.separate, *sorted(form.separate)),
        forms=(),
    )
    copies = {
        number: np.isin(tables.copies[number].layouts.offload, sorted(codes))
        for number, codes in form.offloads
    }
    shadows = [n for n, copy in enumerate(tables.copies) if copy.shadow_of is not None]
    calls = dict[int, BoolArray]()
    if form.apart:
        served = {table.call for table in tables.calls if table.copy in shadows}
        for number, table in enumerate(tables.calls):
            if table.copy not in shadows and _is_generation(tables, table, served):
                calls[number] = np.zeros(len(table), dtype=np.bool_)
    else:
        copies |= {n: np.zeros(len(tables.copies[n]), dtype=np.bool_) for n in shadows}
    return replace(space, problem=problem, rows=space.rows_where(copies, calls))


def _is_generation(tables: Tables, table: CallTable, served: Collection[int]) -> bool:
    return table.call in served or tables.dataflow_calls[table.call].kind == "generate"


def _form_of(space: SearchSpace, selected: Selected) -> FormChoice | None:
    """The first way to share GPUs that a placement has."""
    ranges = [
        None if row is None else (first, int(copy.layouts.num_gpus[row]))
        for copy, row, first in zip(
            space.tables.copies, selected.copy_rows, selected.first_gpus, strict=True
        )
    ]
    shared = space.shared_gpus(selected)
    apart = any(
        row is not None and copy.shadow_of is not None
        for copy, row in zip(space.tables.copies, selected.copy_rows, strict=True)
    )
    for form in space.problem.forms:
        hosts = all(
            int(space.tables.copies[number].layouts.offload[selected.copy_rows[number] or 0])
            in codes
            for number, codes in form.offloads
        )
        joined = all(ranges[one] == ranges[other] for one, other in form.colocate)
        crossed = any(tuple(sorted(pair)) in shared for pair in form.separate)
        if hosts and joined and not crossed and form.apart == apart:
            return form
    return None


def _width(tables: Tables) -> int:
    """Columns that models of one process have in common, then those of generations."""
    return max((first + own.shape[1] for _, _, own, first in _members(tables)), default=0)


def _members(tables: Tables) -> Iterator[tuple[Kind, int, IntArray, int]]:
    """(kind, number of the table, its own columns, number of the first of them in all)."""
    width = 0
    for number, copy in enumerate(tables.copies):
        if copy.process is not None:
            yield "copies", number, copy.process, 0
            width = copy.process.shape[1]
    for number, call in enumerate(tables.calls):
        if call.process is not None:
            yield "calls", number, call.process, width


def _of_column(space: SearchSpace, column: int) -> Iterator[tuple[Kind, int, IntArray]]:
    """(kind, number, values of the rows) of the tables that have a column."""
    for kind, number, own, first in _members(space.tables):
        if first <= column < first + own.shape[1]:
            yield kind, number, own[:, column - first]


def _values(space: SearchSpace, column: int) -> list[int]:
    """What the rows that take part may have in common there, FREE among it."""
    return sorted(
        {
            int(value)
            for kind, number, own in _of_column(space, column)
            for value in np.unique(own[getattr(space.rows, kind)[number]])
        }
    )


def _agreeing(space: SearchSpace, column: int, value: int) -> Rows:
    masks: dict[Kind, dict[int, BoolArray]] = {"copies": {}, "calls": {}}
    for kind, number, own in _of_column(space, column):
        masks[kind][number] = _goes_with(own, value)
    return space.rows_where(masks["copies"], masks["calls"])


def _goes_with(values: IntArray, value: int) -> BoolArray:
    return np.asarray((values == value) | (values == FREE))


def shared_by(space: SearchSpace, selected: Selected) -> tuple[int, ...] | None:
    """What there is in common in a placement, column by column; None: something differs.

    None also where it shares GPUs in another way than it may.
    """
    if space.problem.forms and _form_of(space, selected) is None:
        return None
    shared = [FREE] * _width(space.tables)
    for kind, number, own, first in _members(space.tables):
        row = _row_of(space.tables, kind, number, selected)
        for column, value in enumerate(() if row is None else own[row].tolist(), first):
            if FREE not in (value, shared[column]) and value != shared[column]:
                return None
            shared[column] = shared[column] if value == FREE else value
    return tuple(shared)


def _row_of(tables: Tables, kind: Kind, number: int, selected: Selected) -> int | None:
    """The row that a placement has of a table; None: it has none of it."""
    if kind == "copies":
        return selected.copy_rows[number]
    table = tables.calls[number]
    copy, row = selected.call_rows[table.call] or (None, None)
    return row if copy == table.copy else None


def of_process(space: SearchSpace, selected: Selected) -> SearchSpace:
    """The placements whose processes have the engine and sizes of the given one.

    They share GPUs in the way that it does, where there are several.
    """
    form = _form_of(space, selected)
    if form is not None:
        space = _in_form(space, form)
    rows = space.rows
    for column, value in enumerate(shared_by(space, selected) or ()):
        rows = rows.both(_agreeing(space, column, value))
    return replace(space, rows=rows)
