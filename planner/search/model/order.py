"""Least periods of one order of calls under many durations at once, without a solver.

The method is that of `model.timing` with every operation on all scenarios: starts rise along the
edges until none does (the longest path, with a barrier); in a cyclic schedule a start that rises
without end lies behind a cycle whose seconds exceed its periods, and the period is raised to the
ratio of that cycle until there is none.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.model.problem import Assignment, Precedence, Problem, Timing
from automap.planner.search.model.timing import Events, events

WHOLE = ((1.0, 0.0),)
TOLERANCE = 1e-9
"""How much a start must rise to count as later, as a share of a period of at least a second."""


class Edge(NamedTuple):
    """Why one node starts after another."""

    source: int
    target: int
    distance: int
    """Iterations from the source's to the target's."""
    parts: tuple[tuple[float, float], ...] = WHOLE
    """(share of the source's seconds, share of the target's): from start to start at least the one
    less the other. One pair per chunk where the source is streamed; else one, for the whole source
    or its main phase.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The edges of a schedule as columns; behind the last stands one that never binds."""

    edges: list[Edge]
    """Precedences that the dataflow asks for, and those between nodes that share GPUs."""
    num_nodes: int
    """Calls, then weight syncs."""
    sources: IntArray
    distances: IntArray
    into: IntArray
    """[node, place] edges that end at a node; the one that never binds fills the gaps."""

    @staticmethod
    def of(edges: list[Edge], num_nodes: int) -> "Order":
        """The columns of some edges."""
        ending: list[list[int]] = [[] for _ in range(num_nodes)]
        for number, edge in enumerate(edges):
            ending[edge.target].append(number)
        places = max(1, *(len(each) for each in ending))
        into = [each + [len(edges)] * (places - len(each)) for each in ending]
        return Order(
            edges,
            num_nodes,
            np.array([*(edge.source for edge in edges), 0], dtype=np.int64),
            np.array([*(edge.distance for edge in edges), 0], dtype=np.int64),
            np.array(into, dtype=np.int64),
        )

    @staticmethod
    def of_schedule(problem: Problem, assignment: Assignment, timing: Timing) -> "Order":
        """The order in which the calls and syncs of a placement share GPUs.

        It keeps which of two calls on a GPU is first, whatever they take. Stretched, a call has its
        chunks out and its main phase ended after the same shares of its seconds.
        """
        nodes = events(problem, assignment)
        starts = [*timing.call_starts, *(start or 0.0 for start in timing.sync_starts)]
        stages = [*timing.call_stages, *timing.sync_stages]
        flow = [_flow_edge(problem, edge) for edge in problem.precedences]
        flow += [Edge(u, v, at) for u, v, at, _ in nodes.edges[len(flow) :]]
        edges = [edge for edge in flow if edge.distance == 0 or not problem.barrier]
        edges += _resource_edges(nodes, starts, stages, barrier=problem.barrier)
        return Order.of(edges, len(nodes.durations))

    def makespans(self, durations: FloatArray) -> FloatArray:
        """[scenarios] the longest path; `durations` are [scenarios, nodes]."""
        lags, starts = self._lags(durations), np.zeros_like(durations)
        for _ in range(self.num_nodes):
            risen = np.maximum(starts, self._arrivals(starts, lags).max(axis=2))
            if np.array_equal(risen, starts):
                break
            starts = risen
        return np.asarray((starts + durations).max(axis=1))

    def least_periods(self, durations: FloatArray) -> FloatArray:
        """[scenarios] the least period for which no cycle is violated."""
        lags = self._lags(durations)
        periods: FloatArray = durations.max(axis=1)
        left = np.arange(len(periods))
        while len(left):
            ratios = self._violated_ratios(lags[left], periods[left])
            left, ratios = left[ratios > periods[left]], ratios[ratios > periods[left]]
            periods[left] = ratios
        return periods

    def _lags(self, durations: FloatArray) -> FloatArray:
        """[scenarios, edges] seconds from the start of an edge's source to that of its target."""
        none = np.full((len(durations), 1), -np.inf)
        if not self.edges:
            return none
        parts = [(e.source, e.target, *part) for e in self.edges for part in e.parts]
        sources, targets, before, after = (np.array(c) for c in zip(*parts, strict=True))
        seconds = before * durations[:, sources] - after * durations[:, targets]
        firsts = np.cumsum([0, *(len(edge.parts) for edge in self.edges[:-1])])
        return np.hstack([np.maximum.reduceat(seconds, firsts, axis=1), none])

    def _arrivals(self, starts: FloatArray, lags: FloatArray) -> FloatArray:
        """[scenarios, nodes, places] the start that each edge into a node demands."""
        found: FloatArray = starts[:, self.sources[self.into]] + lags[:, self.into]
        return found

    def _violated_ratios(self, lags: FloatArray, periods: FloatArray) -> FloatArray:
        """[scenarios] seconds per iteration of a cycle that a period violates; 0: there is none.

        Each of as many rounds as there are nodes raises starts by one edge. What rises in the last
        of them was raised along a walk that passes some node twice, and each time it rose.
        """
        held = lags - self.distances * periods[:, None]
        starts = np.zeros((len(lags), self.num_nodes))
        least = TOLERANCE * np.maximum(periods, 1.0)[:, None]
        every, rounds = np.arange(self.num_nodes), []
        for _ in every:
            arrivals = self._arrivals(starts, held)
            place = arrivals.argmax(axis=2)
            latest = np.take_along_axis(arrivals, place[:, :, None], axis=2)[:, :, 0]
            rises = latest > starts + least
            if not rises.any():
                return np.zeros(len(lags))
            rounds.append(np.where(rises, self.into[every, place], len(self.edges)))
            starts = np.where(rises, latest, starts)
        ratios = np.zeros(len(lags))
        late = np.flatnonzero(rises.any(axis=1))
        raised = [each[late] for each in rounds]
        ratios[late] = self._ratios_behind(rises[late].argmax(axis=1), raised, lags[late])
        return ratios

    def _ratios_behind(
        self, nodes: IntArray, rounds: list[IntArray], lags: FloatArray
    ) -> FloatArray:
        """The largest ratio of a cycle on the walk that raised each scenario's node."""
        every = np.arange(len(nodes))
        walk, seconds, distance = [nodes], [np.zeros(len(nodes))], [np.zeros(len(nodes))]
        for raised in reversed(rounds):
            edge = raised[every, walk[-1]]
            walk.append(self.sources[edge])
            seconds.append(seconds[-1] + lags[every, edge])
            distance.append(distance[-1] + self.distances[edge])
        early, late = np.triu_indices(len(walk), 1)
        passed, took, far = (np.stack(each, axis=1) for each in (walk, seconds, distance))
        length = far[:, late] - far[:, early]
        cycle = (passed[:, early] == passed[:, late]) & (length > 0)
        ratio = (took[:, late] - took[:, early]) / np.where(cycle, length, 1.0)
        return np.asarray(np.where(cycle, ratio, 0.0).max(axis=1))


def _flow_edge(problem: Problem, edge: Precedence) -> Edge:
    """An edge of the dataflow: after the whole source, or for each of its chunks in time."""
    if not edge.streamed:
        return Edge(edge.source, edge.target, edge.distance)
    (option,) = problem.calls[edge.source].options
    shares = [*(ready / option.seconds for ready in option.chunk_ready_seconds), 1.0]
    parts = tuple((share, chunk / edge.chunks) for chunk, share in enumerate(shares))
    return Edge(edge.source, edge.target, edge.distance, parts)


def _resource_edges(
    nodes: Events, starts: list[float], stages: list[int], *, barrier: bool
) -> list[Edge]:
    """For every two nodes that share a GPU, the edge from the first to the second.

    Without a barrier, iterations overlap: a second edge holds the next iteration's first node back
    until the second node has freed the GPUs.
    """
    edges: list[Edge] = []
    for u in range(len(nodes.ranges)):
        for v in range(u + 1, len(nodes.ranges)):
            if not any(a.overlaps(b) for a in nodes.ranges[u] for b in nodes.ranges[v]):
                continue
            first, second = (u, v) if (starts[u], u) <= (starts[v], v) else (v, u)
            ahead = 0 if barrier else stages[first] - stages[second]
            edges.append(Edge(first, second, ahead, _freed(nodes, first, second)))
            if not barrier:
                edges.append(Edge(second, first, 1 - ahead, _freed(nodes, second, first)))
    return edges


def _freed(nodes: Events, one: int, other: int) -> tuple[tuple[float, float], ...]:
    """The part of a node after which it has freed all GPUs of another."""
    seconds = nodes.durations[one]
    freed = nodes.frees_seconds(one, other)
    return WHOLE if freed >= seconds else ((freed / seconds, 0.0),)
