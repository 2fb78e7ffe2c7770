"""From the solver's rough order to exact seconds: the least period that keeps the order.

Nodes are the calls and the weight syncs that are there. With T = absolute start in the first
iteration, an edge (u, v, δ, l) demands T_v + δ P ≥ T_u + l, where l is u's duration, or less where
v takes what u makes in chunks. Two nodes on a shared GPU give one edge each way. The least P is the
largest cycle ratio Σ l / Σ δ, found by raising P to the ratio of a violated cycle until none is
left (Burns 1991); under the barrier it is the longest path.
"""

from dataclasses import dataclass

from automap.planner.search.model.problem import (
    Assignment,
    Problem,
    Range,
    Timing,
    call_seconds,
    chosen,
    copy_range,
    lag_seconds,
    sync_seconds,
)

Edge = tuple[int, int, int, float]
"""(source, target, distance, seconds from the one's start to the other's)"""


@dataclass(frozen=True, slots=True)
class Events:
    """Durations, GPU ranges and dataflow edges of calls, then of syncs (absent ones too)."""

    durations: list[float]
    ranges: list[list[Range]]
    edges: list[Edge]
    present: list[bool]
    tails: list[tuple[Range, float] | None]
    """Per node the GPUs that it holds to its end, and when it frees the others."""

    def frees_seconds(self, one: int, other: int) -> float:
        """From the start of a node until it has freed all GPUs of another."""
        tail = self.tails[one]
        if tail is None or any(tail[0].overlaps(needed) for needed in self.ranges[other]):
            return self.durations[one]
        return tail[1]


def events(problem: Problem, assignment: Assignment) -> Events:
    """The nodes and dataflow edges that an assignment leads to."""
    durations, ranges, tails = [], [], []
    for call in range(len(problem.calls)):
        option = chosen(problem, assignment, call)
        span = None if option is None else copy_range(problem, assignment, option.copy)
        durations.append(call_seconds(problem, assignment, call))
        ranges.append([] if span is None else [span])
        tail = None if option is None else option.tail
        held = None if tail is None or span is None else Range(span.first, tail.num_gpus)
        tails.append(None if tail is None or held is None else (held, tail.main_phase_seconds))
    present = [True] * len(durations)
    edges = [
        (edge.source, edge.target, edge.distance, lag_seconds(problem, assignment, edge))
        for edge in problem.precedences
    ]
    for sync in problem.syncs:
        node, seconds = len(durations), sync_seconds(problem, assignment, sync)
        present.append(seconds is not None)
        tails.append(None)
        durations.append(seconds or 0.0)
        sides = [copy_range(problem, assignment, copy) for copy in (sync.home, sync.shadow)]
        ranges.append([side for side in sides if side is not None and seconds is not None])
        if seconds is None:
            continue
        edges.append((sync.train, node, sync.distance, durations[sync.train]))
        for call in range(len(problem.calls)):
            option = chosen(problem, assignment, call)
            if option is not None and option.copy == sync.shadow:
                edges.append((node, call, 0, seconds))
    return Events(durations, ranges, edges, present, tails)


def exact_timing(
    problem: Problem, assignment: Assignment, starts: list[float], stages: list[int]
) -> Timing:
    """Earliest exact times in the order of the given rough starts (phases) and stages."""
    nodes = events(problem, assignment)
    edges = _resource_edges(nodes, starts, stages, barrier=problem.barrier)
    if problem.barrier:
        edges += [edge for edge in nodes.edges if edge[2] == 0]
        times = _longest_paths(nodes.durations, edges, 0.0)
        assert times is not None, "the solver's order has no cycle"
        period = max(t + d for t, d in zip(times, nodes.durations, strict=True))
        return _timing(problem, nodes, times, period, cyclic=False)
    edges += nodes.edges
    period, times = _least_period(nodes.durations, edges)
    return _timing(problem, nodes, times, period, cyclic=True)


def _resource_edges(
    nodes: Events, starts: list[float], stages: list[int], *, barrier: bool
) -> list[Edge]:
    """For two nodes on a shared GPU: who is first in the period, and the way around."""
    edges: list[Edge] = []
    count = len(nodes.durations)
    for u in range(count):
        for v in range(u + 1, count):
            if not any(a.overlaps(b) for a in nodes.ranges[u] for b in nodes.ranges[v]):
                continue
            first, second = (u, v) if (starts[u], u) <= (starts[v], v) else (v, u)
            ahead, length = stages[first] - stages[second], nodes.frees_seconds(first, second)
            edges.append((first, second, 0 if barrier else ahead, length))
            if not barrier:
                edges.append((second, first, 1 - ahead, nodes.frees_seconds(second, first)))
    return edges


def _longest_paths(durations: list[float], edges: list[Edge], period: float) -> list[float] | None:
    """Earliest times under a period; None when a cycle is violated."""
    times = [0.0] * len(durations)
    for _ in range(len(durations) + 1):
        changed = False
        for u, v, distance, seconds in edges:
            need = times[u] + seconds - distance * period
            if need > times[v] + 1e-9 * max(period, 1.0):
                times[v], changed = need, True
        if not changed:
            return times
    return None


def _least_period(durations: list[float], edges: list[Edge]) -> tuple[float, list[float]]:
    period = max(durations)
    while True:
        times = _longest_paths(durations, edges, period)
        if times is not None:
            return period, times
        cycle = _violated_cycle(durations, edges, period)
        seconds = sum(length for _, _, _, length in cycle)
        period = seconds / sum(distance for _, _, distance, _ in cycle)


def _violated_cycle(durations: list[float], edges: list[Edge], period: float) -> list[Edge]:
    """A cycle whose seconds exceed its periods (Bellman–Ford predecessors)."""
    times = [0.0] * len(durations)
    into: dict[int, Edge] = {}
    node = 0
    for _ in range(len(durations) + 1):
        for edge in edges:
            u, v, distance, seconds = edge
            need = times[u] + seconds - distance * period
            if need > times[v] + 1e-9 * max(period, 1.0):
                times[v], into[v], node = need, edge, v
    for _ in range(len(durations)):
        node = into[node][0]
    cycle, current = [], node
    while True:
        cycle.append(into[current])
        current = into[current][0]
        if current == node:
            return cycle


def _timing(
    problem: Problem, nodes: Events, times: list[float], period: float, *, cyclic: bool
) -> Timing:
    calls = len(problem.calls)
    stages = [int(time / period + 1e-9) if cyclic and period > 0 else 0 for time in times]
    phases = [max(time - stage * period, 0.0) for time, stage in zip(times, stages, strict=True)]
    return Timing(
        period=period,
        call_starts=tuple(phases[:calls]),
        call_stages=tuple(stages[:calls]),
        sync_starts=tuple(
            phase if there else None
            for phase, there in zip(phases[calls:], nodes.present[calls:], strict=True)
        ),
        sync_stages=tuple(stages[calls:]),
    )
