"""Models of one process: the spaces in which all of them share its engine and sizes.

Some targets train and score several models in one process per GPU, whose parallel groups they
share. Every choice of engine and sizes is a space of its own. They come best bound first, and what
they have in common is decided one column after another, so most are never looked at.
"""

import heapq
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from automap.planner.layout import IntArray
from automap.planner.search.candidates.tables import FREE, BoolArray
from automap.planner.search.space.rows import Rows, Selected
from automap.planner.search.space.search_space import SearchSpace


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
        columns = [copy.process for copy in space.tables.copies if copy.process is not None]
        self._width = columns[0].shape[1] if columns else 0
        self._heap: list[ProcessSpace] = []
        bound = space.lower_bound() if space.is_complete() else None
        if bound is not None:
            whole = replace(space, origin=None)
            self._heap.append(ProcessSpace(bound, self._width, (), whole, None))

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


def _values(space: SearchSpace, column: int) -> list[int]:
    """What the models that take part may have in common there, FREE among it."""
    return sorted(
        {
            int(value)
            for copy, mask in zip(space.tables.copies, space.rows.copies, strict=True)
            if copy.process is not None
            for value in np.unique(copy.process[mask, column])
        }
    )


def _agreeing(space: SearchSpace, column: int, value: int) -> Rows:
    masks = {
        index: _goes_with(copy.process[:, column], value)
        for index, copy in enumerate(space.tables.copies)
        if copy.process is not None
    }
    return space.rows_where(masks)


def _goes_with(values: IntArray, value: int) -> BoolArray:
    return np.asarray((values == value) | (values == FREE))


def shared_by(space: SearchSpace, selected: Selected) -> tuple[int, ...] | None:
    """What the models of one process have in common in a placement; None: they disagree."""
    rows = [
        copy.process[row]
        for copy, row in zip(space.tables.copies, selected.copy_rows, strict=True)
        if copy.process is not None and row is not None
    ]
    shared = []
    for column in range(len(rows[0]) if rows else 0):
        values = {int(row[column]) for row in rows} - {FREE}
        if len(values) > 1:
            return None
        shared.append(values.pop() if values else FREE)
    return tuple(shared)


def of_process(space: SearchSpace, selected: Selected) -> SearchSpace:
    """The placements whose processes have the engine and sizes of the given one."""
    rows = space.rows
    for column, value in enumerate(shared_by(space, selected) or ()):
        rows = rows.both(_agreeing(space, column, value))
    return replace(space, rows=rows)
