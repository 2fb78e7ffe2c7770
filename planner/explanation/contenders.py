"""A placement with its order of calls, timed under many errors at once.

A plan is a placement and, on every GPU, an order of calls; the runtime keeps both. With the order
fixed the period is the longest chain of calls (with a barrier) or the largest cycle ratio, so many
scenarios are timed in one go, without a solver. An error stretches a call as a whole: its chunks
are out and its bulk ends after the same shares of its seconds.
"""

from dataclasses import dataclass

import numpy as np

from automap.planner.explanation.factors import Factors
from automap.planner.explanation.periods import WHOLE, Edge, Order
from automap.planner.explanation.study import Study
from automap.planner.layout import FloatArray, IntArray
from automap.planner.search.candidates.tables import CallTable
from automap.planner.search.model.problem import (
    Assignment,
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    Precedence,
    Problem,
    Tail,
)
from automap.planner.search.model.timing import Events, events
from automap.planner.search.space.search_space import arena
from automap.planner.search.space.selected import Selected, as_placed


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A placement that may win under some errors."""

    selected: Selected
    order: Order
    """Edges of the dataflow and of shared GPUs."""
    cyclic: bool
    owners: list[tuple[int, int]]
    """Per call (its number, pool); then per sync (copy, pool) of its two sides, two nodes each."""
    work_seconds: FloatArray
    reshard_seconds: FloatArray

    def durations(self, factors: list[Factors]) -> FloatArray:
        """[factors, calls then syncs] seconds of every node."""
        calls = len(self.reshard_seconds)
        work = np.array([[f.work[o] for o in self.owners[:calls]] for f in factors])
        move = np.array([[f.reshard[o] for o in self.owners[:calls]] for f in factors])
        found = self.work_seconds[:calls] * work + self.reshard_seconds * move
        sides = self.owners[calls:]
        if not sides:
            return np.asarray(found)
        sync = np.array([[f.sync[o] for o in sides] for f in factors]) * self.work_seconds[calls:]
        slower = np.maximum(sync[:, 0::2], sync[:, 1::2])
        return np.asarray(np.concatenate([found, slower], axis=1))

    def periods(self, factors: list[Factors]) -> FloatArray:
        """[factors] seconds of an iteration with this order."""
        durations = self.durations(factors)
        find = self.order.least_periods if self.cyclic else self.order.makespans
        return find(durations)


def single(study: Study, selected: Selected) -> tuple[Problem, Assignment]:
    """The problem with one option for everything, and the assignment that takes it."""
    tables, problem = as_placed(arena(study.tables, study.problem), selected).tables, study.problem
    copies = tuple(
        CopyChoice(
            choice.id,
            choice.role,
            choice.shadow_of,
            ()
            if row is None
            else (
                CopyOption(
                    int(copy.pool[row]),
                    int(copy.layouts.num_gpus[row]),
                    int(copy.resident_bytes[row]),
                    int(copy.host_bytes[row]),
                    float(copy.sync_seconds[row]),
                    row,
                ),
            ),
        )
        for choice, copy, row in zip(problem.copies, tables.copies, selected.copy_rows, strict=True)
    )
    by_key = {(table.call, table.copy): table for table in tables.calls}
    calls = []
    for index, (choice, chosen) in enumerate(zip(problem.calls, selected.call_rows, strict=True)):
        options: tuple[CallOption, ...] = ()
        if chosen is not None:
            counts = tables.copies[chosen[0]].layouts.num_gpus
            options = (_option(by_key[index, chosen[0]], chosen[1], counts),)
        calls.append(CallChoice(choice.id, options, choice.fixed_seconds))
    fixed = Problem(
        problem.pools,
        copies,
        tuple(calls),
        problem.precedences,
        problem.syncs,
        problem.barrier,
    )
    assignment = Assignment(
        tuple(None if row is None else 0 for row in selected.copy_rows),
        selected.first_gpus,
        tuple(None if chosen is None else 0 for chosen in selected.call_rows),
    )
    return fixed, assignment


def _option(table: CallTable, row: int, counts: IntArray) -> CallOption:
    """A row as the only option; `counts` are the GPUs of the copy's rows."""
    part = table.take(np.array([row]))
    num_gpus = counts[part.copy_row]
    fewer, bulk = part.tails(num_gpus)
    return CallOption(
        table.copy,
        0,
        float(part.seconds[0]),
        int(part.transient_bytes[0]),
        row,
        tuple(part.releases()[0].tolist()),
        Tail(int(fewer[0]), float(bulk[0])) if fewer[0] < num_gpus[0] else None,
    )


def contender(study: Study, selected: Selected) -> Contender:
    """A placement of the study, with the order that its timing has."""
    problem, assignment = single(study, selected)
    nodes = events(problem, assignment)
    timing = selected.timing
    starts = [*timing.call_starts, *(start or 0.0 for start in timing.sync_starts)]
    stages = [*timing.call_stages, *timing.sync_stages]
    flow = [_flow_edge(problem, edge) for edge in problem.precedences]
    flow += [Edge(u, v, at) for u, v, at, _ in nodes.edges[len(flow) :]]
    edges = [edge for edge in flow if edge.distance == 0 or not problem.barrier]
    edges += _resource_edges(nodes, starts, stages, barrier=problem.barrier)
    tables = study.tables
    by_key = {(t.call, t.copy): n for n, t in enumerate(tables.calls)}
    owners: list[tuple[int, int]] = []
    work, moved = [], []
    for index, chosen in enumerate(selected.call_rows):
        pool, seconds, part = 0, problem.calls[index].fixed_seconds, 0.0
        if chosen is not None:
            number, row = by_key[index, chosen[0]], chosen[1]
            pool = int(tables.copies[chosen[0]].pool[tables.calls[number].copy_row[row]])
            seconds = float(tables.calls[number].seconds[row])
            moving = study.reshard_part(tables.calls[number], np.array([row]))
            part = 0.0 if moving is None else float(moving[0])
        owners.append((index, pool))
        work.append(seconds - part)
        moved.append(part)
    for sync in problem.syncs:
        for copy in (sync.home, sync.shadow):
            options = problem.copies[copy].options
            there = bool(problem.copies[sync.shadow].options)
            owners.append((copy, options[0].pool if options else 0))
            work.append(options[0].sync_seconds if there else 0.0)
    order = Order.of(edges, len(nodes.durations))
    return Contender(selected, order, not problem.barrier, owners, np.array(work), np.array(moved))


def _flow_edge(problem: Problem, edge: Precedence) -> Edge:
    """An edge of the dataflow: after the whole source, or for each of its chunks in time."""
    if not edge.streamed:
        return Edge(edge.source, edge.target, edge.distance)
    (option,) = problem.calls[edge.source].options
    shares = [*(release / option.seconds for release in option.releases), 1.0]
    parts = tuple((share, chunk / edge.chunks) for chunk, share in enumerate(shares))
    return Edge(edge.source, edge.target, edge.distance, parts)


def _resource_edges(
    nodes: Events, starts: list[float], stages: list[int], *, barrier: bool
) -> list[Edge]:
    """Of two nodes on a shared GPU who is first, and in a cycle the way around."""
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
