"""ReaL's simulator: list scheduling of several iterations, calls on shared GPUs one at a time.

A ready call starts as soon as its GPUs are free; of several the one that was ready first. Each
weight sync is a node of its own between training and the rollouts on a shadow.
"""

import heapq
from dataclasses import dataclass

from automap.planner.search.model.problem import Problem

Spans = list[tuple[int, int] | None]
"""Per copy its first GPU and one past the last; None: absent."""

ITERATIONS = 5
"""Simulated, so that overlap across iterations counts; under a barrier all are alike."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Calls, then weight syncs, of several iterations, and what waits for what."""

    nodes: int
    """Calls and syncs of one iteration."""
    iterations: int
    waits: tuple[tuple[tuple[int, ...], ...], ...]
    """Per iteration and node what comes after it, by number: iteration × nodes + node."""
    indegree: tuple[int, ...]

    @staticmethod
    def of(problem: Problem) -> "Graph":
        """The graph of a problem: one iteration under a barrier, else several."""
        calls = len(problem.calls)
        nodes = calls + len(problem.syncs)
        edges = [(edge.source, edge.target, edge.distance) for edge in problem.precedences]
        for number, sync in enumerate(problem.syncs):
            edges.append((sync.train, calls + number, sync.distance))
            edges += [
                (calls + number, call, 0)
                for call, choice in enumerate(problem.calls)
                if any(option.copy == sync.shadow for option in choice.options)
            ]
        iterations = 1 if problem.barrier else ITERATIONS
        after: list[list[int]] = [[] for _ in range(iterations * nodes)]
        indegree = [0] * (iterations * nodes)
        for at in range(iterations):
            for source, target, distance in edges:
                if at + distance < iterations:
                    after[at * nodes + source].append((at + distance) * nodes + target)
                    indegree[(at + distance) * nodes + target] += 1
        waits = tuple(
            tuple(tuple(after[at * nodes + node]) for node in range(nodes))
            for at in range(iterations)
        )
        return Graph(nodes, iterations, waits, tuple(indegree))


def simulated_seconds(graph: Graph, durations: list[float], busy: list[list[int]]) -> float:
    """Seconds per iteration.

    `busy` has per node the nodes that share a GPU with it; an absent sync has 0 seconds and none.
    """
    nodes = graph.nodes
    missing = list(graph.indegree)
    free = [0.0] * nodes
    """Per node: when all its GPUs are free."""
    ready = [(0.0, number) for number, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    ready_at = [0.0] * len(missing)
    end = 0.0
    while ready:
        at, number = heapq.heappop(ready)
        iteration, node = divmod(number, nodes)
        finish = max(at, free[node]) + durations[node]
        end = max(end, finish)
        for other in busy[node]:
            free[other] = max(free[other], finish)
        for later in graph.waits[iteration][node]:
            ready_at[later] = max(ready_at[later], finish)
            missing[later] -= 1
            if missing[later] == 0:
                heapq.heappush(ready, (ready_at[later], later))
    return end / graph.iterations


def overlaps(spans: Spans) -> list[list[bool]]:
    """Whether two copies share a GPU; a copy that is there does with itself."""
    return [
        [
            one is not None and other is not None and one[0] < other[1] and other[0] < one[1]
            for other in spans
        ]
        for one in spans
    ]


def sharing(nodes: list[tuple[int, ...]], overlapping: list[list[bool]]) -> list[list[int]]:
    """Per node the nodes with which it shares a GPU, itself included."""
    on: list[list[int]] = [[] for _ in overlapping]
    for number, copies in enumerate(nodes):
        for copy in copies:
            on[copy].append(number)
    near = [
        [node for other, shares in enumerate(row) if shares for node in on[other]]
        for row in overlapping
    ]
    return [
        near[copies[0]] if len(copies) == 1 else [node for copy in copies for node in near[copy]]
        for copies in nodes
    ]
