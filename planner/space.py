"""From priced tables to the placement problem: which rows become options, and back again."""

from dataclasses import dataclass

import numpy as np

from planner import memory, transition
from planner.bounds import Bounds, CallMinimum
from planner.dataflow import with_staleness
from planner.job import Job
from planner.problem import (
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    PoolSlice,
    Precedence,
    Problem,
    WeightSyncChoice,
)
from planner.pruning import SLACK
from planner.tables import BoolArray, CallTable, Tables

HOST_SHARE = 0.9
"""Share of a node's host memory that offloaded state may take; the rest is for the software."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows of the tables take part."""

    copies: list[BoolArray]
    calls: list[BoolArray]
    """Per call table."""


def all_rows(tables: Tables) -> Rows:
    """Every row."""
    return Rows(
        [np.ones(len(copy), dtype=bool) for copy in tables.copies],
        [np.ones(len(call), dtype=bool) for call in tables.calls],
    )


def rows_with_counts(tables: Tables, counts: set[int]) -> Rows:
    """The rows whose range has one of the given sizes."""
    wanted = np.array(sorted(counts), dtype=np.int64)
    copies = [np.isin(copy.layouts.num_gpus, wanted) for copy in tables.copies]
    return Rows(copies, [copies[call.copy][call.copy_row] for call in tables.calls])


def skeleton(job: Job, tables: Tables) -> Problem:
    """The problem without options: pools, dataflow, syncs and forced pairs."""
    dataflow = with_staleness(job.dataflow, job.spec.search.staleness)
    numbers = {call.id: index for index, call in enumerate(dataflow.calls)}
    precedences = tuple(
        Precedence(numbers[edge.source], numbers[edge.target], edge.distance)
        for edge in dataflow.edges
    )
    homes = {copy.role: i for i, copy in enumerate(tables.copies) if copy.shadow_of is None}
    constraints = job.spec.constraints
    return Problem(
        pools=tuple(_slices(job)),
        copies=tuple(
            CopyChoice(copy.id, copy.role, copy.shadow_of, ()) for copy in tables.copies
        ),
        calls=tuple(
            CallChoice(call.id, (), call.fixed_seconds or 0.0) for call in dataflow.calls
        ),
        precedences=precedences,
        syncs=tuple(_syncs(job, tables, precedences)),
        barrier=not job.spec.search.cyclic,
        colocate=tuple((homes[one], homes[other]) for one, other in constraints.colocate),
        separate=tuple(
            (first, second)
            for one, other in constraints.separate
            for first in _copies_of(tables, one)
            for second in _copies_of(tables, other)
        ),
    )


def _copies_of(tables: Tables, role: str) -> list[int]:
    return [index for index, copy in enumerate(tables.copies) if copy.role == role]


def _slices(job: Job) -> list[PoolSlice]:
    return [
        PoolSlice(
            name=pool.name,
            first_gpu=pool.first_gpu,
            num_gpus=pool.num_gpus - pool.kept_free_gpus,
            gpus_per_node=pool.gpus_per_node,
            capacity_bytes=memory.usable_bytes(pool),
            host_bytes=int(HOST_SHARE * pool.host_memory_bytes / pool.gpus_per_node),
            price_per_gpu_second=pool.price_per_gpu_hour / 3600.0,
        )
        for pool in job.pools
    ]


def _syncs(
    job: Job, tables: Tables, precedences: tuple[Precedence, ...]
) -> list[WeightSyncChoice]:
    """A shadow's sync follows its role's last train call, as far back as its rollout allows."""
    syncs = []
    for index, copy in enumerate(tables.copies):
        if copy.shadow_of is None:
            continue
        users = {table.call for table in tables.calls if table.copy == index}
        trains = {
            n
            for n, call in enumerate(job.dataflow.calls)
            if call.model == copy.role and call.kind == "train"
        }
        edge = next(e for e in precedences if e.source in trains and e.target in users)
        syncs.append(
            WeightSyncChoice(
                home=copy.shadow_of,
                shadow=index,
                train=edge.source,
                distance=edge.distance,
                bucket_bytes=transition.sync_bucket_bytes(),
            )
        )
    return syncs


def rows_within(tables: Tables, problem: Problem, upper_bound_seconds: float) -> Rows:
    """The rows that a solution no slower than the upper bound can use (see planner.bounds)."""
    rows, bounds = all_rows(tables), Bounds(problem)
    limit = upper_bound_seconds * (1 + SLACK)
    while True:
        before = sum(int(mask.sum()) for mask in rows.calls)
        minima = [_minimum(tables, problem, bounds, rows, call) for call in bounds.calls]
        for call in bounds.calls:
            if not any(table.call == call for table in tables.calls):
                continue
            offsets = bounds.offsets(minima, call)
            for number, table in enumerate(tables.calls):
                if table.call == call:
                    least = _least_period(tables, bounds, table, offsets)
                    rows.calls[number] &= least <= limit
        _drop_orphans(tables, rows)
        if sum(int(mask.sum()) for mask in rows.calls) == before:
            return rows


def _least_period(
    tables: Tables, bounds: Bounds, table: CallTable, offsets: CallMinimum
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Per row of a call table the least period with that row."""
    copy = tables.copies[table.copy]
    pool, count = copy.pool[table.copy_row], copy.layouts.num_gpus[table.copy_row]
    keys, inverse = np.unique(np.stack([pool, count]), axis=1, return_inverse=True)
    shares = np.array([bounds.shares(int(p), int(n)) for p, n in keys.T])[inverse.reshape(-1)]
    weighted = shares * table.seconds[:, None] + np.array(offsets.weights)
    return np.maximum(table.seconds + offsets.seconds, weighted.max(axis=1))


def _minimum(
    tables: Tables, problem: Problem, bounds: Bounds, rows: Rows, call: int
) -> CallMinimum:
    """Least seconds and least weights of a call over its rows that are left."""
    seconds, weights = [], []
    for number, table in enumerate(tables.calls):
        if table.call != call or not rows.calls[number].any():
            continue
        mask, copy = rows.calls[number], tables.copies[table.copy]
        pool = copy.pool[table.copy_row[mask]]
        count = copy.layouts.num_gpus[table.copy_row[mask]]
        keys, inverse = np.unique(np.stack([pool, count]), axis=1, return_inverse=True)
        fastest = np.full(keys.shape[1], np.inf)
        np.minimum.at(fastest, inverse.reshape(-1), table.seconds[mask])
        shares = np.array([bounds.shares(int(p), int(n)) for p, n in keys.T])
        seconds.append(fastest.min())
        weights.append((shares * fastest[:, None]).min(axis=0))
    if not seconds:
        zeros = (0.0,) * len(bounds.shares(0, 1))
        return CallMinimum(problem.calls[call].fixed_seconds, zeros)
    return CallMinimum(float(min(seconds)), tuple(map(float, np.min(weights, axis=0))))


def _drop_orphans(tables: Tables, rows: Rows) -> None:
    """A copy row needs a setting for every call that has no other copy; settings need a copy."""
    while True:
        before = sum(int(mask.sum()) for mask in rows.copies)
        for index, copy in enumerate(tables.copies):
            users = [n for n, table in enumerate(tables.calls) if table.copy == index]
            served = np.zeros(len(copy), dtype=bool)
            for number in users:
                table, has = tables.calls[number], np.zeros(len(copy), dtype=bool)
                has[table.copy_row[rows.calls[number]]] = True
                served |= has
                elsewhere = any(
                    other.call == table.call and other.copy != index and rows.calls[n].any()
                    for n, other in enumerate(tables.calls)
                )
                if not elsewhere:
                    rows.copies[index] &= has
            if copy.shadow_of is not None:
                rows.copies[index] &= served
            for number in users:
                rows.calls[number] &= rows.copies[index][tables.calls[number].copy_row]
        if sum(int(mask.sum()) for mask in rows.copies) == before:
            return


def problem_of(problem: Problem, tables: Tables, rows: Rows) -> Problem:
    """The skeleton with an option for every row that takes part."""
    positions, copies = [], []
    for choice, copy, mask in zip(problem.copies, tables.copies, rows.copies, strict=True):
        numbers = np.flatnonzero(mask)
        position = np.full(len(copy), -1, dtype=np.int64)
        position[numbers] = np.arange(len(numbers))
        positions.append(position)
        columns = (copy.pool, copy.layouts.num_gpus, copy.resident_bytes, copy.host_bytes)
        options = [
            CopyOption(*values)
            for values in zip(
                *(column[numbers].tolist() for column in columns),
                copy.sync_seconds[numbers].tolist(),
                numbers.tolist(),
                strict=True,
            )
        ]
        copies.append(CopyChoice(choice.id, choice.role, choice.shadow_of, tuple(options)))
    calls: list[list[CallOption]] = [[] for _ in problem.calls]
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        numbers = np.flatnonzero(mask)
        owners = positions[table.copy][table.copy_row[numbers]].tolist()
        seconds, transient = table.seconds[numbers], table.transient_bytes[numbers]
        calls[table.call] += [
            CallOption(table.copy, *values)
            for values in zip(
                owners, seconds.tolist(), transient.tolist(), numbers.tolist(), strict=True
            )
        ]
    return Problem(
        pools=problem.pools,
        copies=tuple(copies),
        calls=tuple(
            CallChoice(call.id, tuple(options), call.fixed_seconds)
            for call, options in zip(problem.calls, calls, strict=True)
        ),
        precedences=problem.precedences,
        syncs=problem.syncs,
        barrier=problem.barrier,
        colocate=problem.colocate,
        separate=problem.separate,
    )
