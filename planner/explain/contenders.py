"""A placement with its order of calls, timed under many errors at once.

A plan is a placement and, on every GPU, an order of calls; the runtime keeps both. With the order
fixed the period is the longest chain of calls (with a barrier) or the largest cycle ratio, so many
scenarios are timed in one go, without a solver.
"""

from dataclasses import dataclass

import numpy as np

from planner.explain.factors import Factors
from planner.explain.study import Study
from planner.layout import FloatArray
from planner.search.problem import (
    Assignment,
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    Problem,
    Range,
)
from planner.search.search import Selected
from planner.search.timing import events

BISECTIONS = 50


Edge = tuple[int, int, int]
"""(source, target, distance): the target waits for the whole source."""


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A placement that may win under some errors."""

    selected: Selected
    edges: list[Edge]
    """(first, second, iterations between them), of the dataflow and of shared GPUs."""
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
        if not self.cyclic:
            starts = _longest_paths(durations, self.edges, np.zeros(len(durations)))
            return np.asarray((starts + durations).max(axis=1))
        return _least_periods(durations, self.edges)


def single(study: Study, selected: Selected) -> tuple[Problem, Assignment]:
    """The problem with one option for everything, and the assignment that takes it."""
    tables, problem = study.tables, study.problem
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
            table, row = by_key[index, chosen[0]], chosen[1]
            transient = int(table.transient_bytes[row])
            options = (CallOption(chosen[0], 0, float(table.seconds[row]), transient, row),)
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


def contender(study: Study, selected: Selected) -> Contender:
    """A placement of the study, with the order that its timing has."""
    problem, assignment = single(study, selected)
    nodes = events(problem, assignment)
    timing = selected.timing
    starts = [*timing.call_starts, *(start or 0.0 for start in timing.sync_starts)]
    stages = [*timing.call_stages, *timing.sync_stages]
    # Nothing is streamed, so every target waits for its whole source.
    edges = [(u, v, at) for u, v, at, _ in nodes.edges if at == 0 or not problem.barrier]
    edges += _resource_edges(nodes.ranges, starts, stages, barrier=problem.barrier)
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
            part = float(study.reshard_part(tables.calls[number], np.array([row]))[0])
        owners.append((index, pool))
        work.append(seconds - part)
        moved.append(part)
    for sync in problem.syncs:
        for copy in (sync.home, sync.shadow):
            options = problem.copies[copy].options
            there = bool(problem.copies[sync.shadow].options)
            owners.append((copy, options[0].pool if options else 0))
            work.append(options[0].sync_seconds if there else 0.0)
    return Contender(selected, edges, not problem.barrier, owners, np.array(work), np.array(moved))


def _resource_edges(
    ranges: list[list[Range]], starts: list[float], stages: list[int], *, barrier: bool
) -> list[Edge]:
    """Of two nodes on a shared GPU who is first, and in a cycle the way around."""
    edges: list[Edge] = []
    for u in range(len(ranges)):
        for v in range(u + 1, len(ranges)):
            if not any(a.overlaps(b) for a in ranges[u] for b in ranges[v]):
                continue
            first, second = (u, v) if (starts[u], u) <= (starts[v], v) else (v, u)
            if barrier:
                edges.append((first, second, 0))
            else:
                ahead = stages[first] - stages[second]
                edges += [(first, second, ahead), (second, first, 1 - ahead)]
    return edges


def _longest_paths(durations: FloatArray, edges: list[Edge], periods: FloatArray) -> FloatArray:
    """[scenarios, nodes] earliest starts; where they never settle, they end above any period."""
    starts = np.zeros_like(durations)
    for _ in range(durations.shape[1] + 1):
        before = starts.copy()
        for u, v, distance in edges:
            need = starts[:, u] + durations[:, u] - distance * periods
            np.maximum(starts[:, v], need, out=starts[:, v])
        if np.all(starts <= before + 1e-12):
            break
    return starts


def _least_periods(durations: FloatArray, edges: list[Edge]) -> FloatArray:
    """[scenarios] least period for which no cycle of edges is violated, by bisection."""
    low, high = durations.max(axis=1), durations.sum(axis=1)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        starts = _longest_paths(durations, edges, middle)
        late = np.zeros(len(middle), dtype=bool)
        for u, v, distance in edges:
            need = starts[:, u] + durations[:, u] - distance * middle
            late |= need > starts[:, v] + 1e-9
        low, high = np.where(late, middle, low), np.where(late, high, middle)
    return np.asarray(high)
