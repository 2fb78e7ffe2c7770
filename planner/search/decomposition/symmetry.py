"""Copies that are interchangeable: identical models with identical calls and edges.

An interchange is a permutation of copies and calls that is its own inverse and maps the problem
onto itself: options row by row, calls, edges, weight syncs and forced pairs. It maps every
placement to one that is as long, so of two such placements it is enough to look at one; and what
rules out some sizes rules out their images.

Copies are first told apart by their own rows and their neighbours' (colour refinement); for each
two that are left with one colour an interchange is then looked for by backtracking.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates.tables import BoolArray, CallTable, CopyTable
from automap.planner.search.model.problem import Problem
from automap.planner.search.space.rows import Rows
from automap.planner.search.space.search_space import SearchSpace

MOST_STEPS = 2000
"""Of backtracking for one pair; identical copies are found in about as many as there are calls."""


@dataclass(frozen=True, slots=True)
class Interchange:
    """Per copy the one that takes its place."""

    copies: tuple[int, ...]

    @property
    def first(self) -> int:
        """The first copy that moves."""
        return next(copy for copy, other in enumerate(self.copies) if copy != other)


def interchanges(space: SearchSpace, rows: Rows) -> list[Interchange]:
    """For two interchangeable copies one interchange each, in which the earlier moves first."""
    graph = _graph(space, rows)
    number = len(space.tables.copies)
    found = []
    for one, other in combinations(range(number), 2):
        mapping = _Search(graph).interchange(one, other)
        if mapping is not None:
            each = Interchange(tuple(mapping[:number]))
            if each.first == one:
                found.append(each)
    return found


@dataclass(frozen=True, slots=True)
class _Graph:
    """Copies, then calls, as nodes with colours; arcs between them have labels."""

    colours: list[int]
    arcs: dict[tuple[int, int], Hashable]


def _graph(space: SearchSpace, rows: Rows) -> _Graph:
    problem, tables = space.problem, space.tables
    copies, calls = len(tables.copies), len(problem.calls)
    held = _numbered(
        [
            _contents(_copy_columns(copy, mask))
            for copy, mask in zip(tables.copies, rows.copies, strict=True)
        ]
    )
    settings = _numbered(
        [
            _contents(_call_columns(table, mask))
            for table, mask in zip(tables.calls, rows.calls, strict=True)
        ]
    )
    own: list[Hashable] = [
        (copy.shadow_of is None, number) for copy, number in zip(tables.copies, held, strict=True)
    ]
    own += [("call", call.fixed_seconds) for call in problem.calls]
    labels: dict[tuple[int, int], list[Hashable]] = {}
    for table, number in zip(tables.calls, settings, strict=True):
        labels.setdefault((copies + table.call, table.copy), []).append(("runs on", number))
    for edge in problem.precedences:
        arc = copies + edge.source, copies + edge.target
        labels.setdefault(arc, []).append(("before", edge.distance, edge.chunks))
    for arc, label in _between_copies(problem, copies):
        labels.setdefault(arc, []).append(label)
    arcs: dict[tuple[int, int], Hashable] = {
        arc: tuple(sorted(map(repr, every))) for arc, every in labels.items()
    }
    return _Graph(_refined(own, arcs, copies + calls), arcs)


def _between_copies(problem: Problem, copies: int) -> list[tuple[tuple[int, int], Hashable]]:
    found: list[tuple[tuple[int, int], Hashable]] = []
    for index, copy in enumerate(problem.copies):
        if copy.shadow_of is not None:
            found.append(((index, copy.shadow_of), "shadow of"))
    for sync in problem.syncs:
        terms = (sync.distance, sync.bucket_bytes)
        found.append(((sync.home, sync.shadow), ("sync", *terms)))
        found.append(((copies + sync.train, sync.shadow), ("train before sync", *terms)))
    for name, pairs in (("colocate", problem.colocate), ("separate", problem.separate)):
        for one, other in pairs:
            found += [((one, other), name), ((other, one), name)]
    return found


def _copy_columns(copy: CopyTable, mask: BoolArray) -> Sequence[BoolArray | IntArray | FloatArray]:
    counts = copy.layouts.num_gpus
    return mask, copy.pool, counts, copy.resident_bytes, copy.host_bytes, copy.sync_seconds


def _call_columns(table: CallTable, mask: BoolArray) -> Sequence[BoolArray | IntArray | FloatArray]:
    courses = (table.shares, table.tail, table.bulk_shares)
    optional = [course for course in courses if course is not None]
    return mask, table.copy_row, table.seconds, table.transient_bytes, *optional


def _contents(columns: Sequence[BoolArray | IntArray | FloatArray]) -> Hashable:
    """Equal for equal columns, and only for those."""
    return tuple((column.shape, column.tobytes()) for column in columns)


def _refined(own: list[Hashable], arcs: dict[tuple[int, int], Hashable], nodes: int) -> list[int]:
    """Colours that tell nodes apart by themselves and by the colours around them."""
    colours = _numbered(own)
    while True:
        around: list[list[Hashable]] = [[] for _ in range(nodes)]
        for (source, target), label in arcs.items():
            around[source].append(("to", label, colours[target]))
            around[target].append(("from", label, colours[source]))
        finer = _numbered(
            [(colours[node], tuple(sorted(map(repr, around[node])))) for node in range(nodes)]
        )
        if len(set(finer)) == len(set(colours)):
            return finer
        colours = finer


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


class _Search:
    """Looks for a permutation, its own inverse, under which every arc keeps its label."""

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self.image = [-1] * len(graph.colours)
        self.steps = 0

    def interchange(self, one: int, other: int) -> list[int] | None:
        """One that swaps two nodes; None where there is none, or none is found in time."""
        if self.graph.colours[one] != self.graph.colours[other] or not self._swap(one, other):
            return None
        return self.image if self._complete() else None

    def _complete(self) -> bool:
        self.steps += 1
        node = next((n for n, image in enumerate(self.image) if image < 0), None)
        if node is None:
            return True
        alike = [
            other
            for other, colour in enumerate(self.graph.colours)
            if colour == self.graph.colours[node] and self.image[other] < 0
        ]
        for other in alike:  # itself first: what can stay does
            if self.steps < MOST_STEPS and self._swap(node, other):
                if self._complete():
                    return True
                self.image[node] = self.image[other] = -1
        return False

    def _swap(self, one: int, other: int) -> bool:
        """Set the images of both, if all arcs to nodes with an image keep their labels."""
        self.image[one], self.image[other] = other, one
        arcs = self.graph.arcs
        for node in (one, other):
            for fixed, image in enumerate(self.image):
                if image >= 0 and (
                    arcs.get((node, fixed)) != arcs.get((self.image[node], image))
                    or arcs.get((fixed, node)) != arcs.get((image, self.image[node]))
                ):
                    self.image[one] = self.image[other] = -1
                    return False
        return True
