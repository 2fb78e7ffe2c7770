"""The placement problem of a job: pools, dataflow, syncs and forced pairs; then its options."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import memory, transition
from automap.planner.dataflow.graph import Dataflow, weights_edge, with_staleness
from automap.planner.job.job import Job
from automap.planner.layout import OFFLOADS, IntArray
from automap.planner.search.candidates.tables import CallTable, Tables
from automap.planner.search.model.options import CallOptions, CallPart, CopyOptions
from automap.planner.search.model.problem import (
    CallChoice,
    CopyChoice,
    FormChoice,
    PoolSlice,
    Precedence,
    Problem,
    WeightSyncChoice,
)
from automap.planner.search.space.rows import Rows


def problem_structure(job: Job, copies: Sequence[CopyChoice]) -> Problem:
    """The problem of placing these copies; calls are as yet without options.

    Every role has its home among the copies, and of shadows only roles whose rollouts all follow
    the same training.
    """
    dataflow = with_staleness(job.dataflow, job.training_slack)
    numbers = {call.id: index for index, call in enumerate(dataflow.calls)}
    precedences = tuple(
        Precedence(
            numbers[edge.source],
            numbers[edge.target],
            edge.distance,
            job.spec.search.stream_chunks if edge.streamed else 0,
        )
        for edge in dataflow.edges
    )
    homes = {copy.role: index for index, copy in enumerate(copies) if copy.shadow_of is None}
    constraints = job.spec.constraints
    return Problem(
        pools=tuple(_slice(job, pool) for pool in job.pools),
        copies=tuple(copies),
        calls=tuple(CallChoice(call.id, (), call.fixed_seconds or 0.0) for call in dataflow.calls),
        precedences=precedences,
        syncs=tuple(_syncs(dataflow, copies)),
        barrier=not job.spec.search.cyclic,
        colocate=(
            *((homes[one], homes[other]) for one, other in constraints.colocate),
            *pairwise(index for role, index in homes.items() if role in job.target.process_roles),
        ),
        separate=(
            *(
                (first, second)
                for one, other in constraints.separate
                for first in _copies_of(copies, one)
                for second in _copies_of(copies, other)
            ),
            *_apart(job, copies),
        ),
        ranges=job.target.ranges,
        forms=tuple(_forms(job, homes)),
    )


def _forms(job: Job, homes: Mapping[str, int]) -> Iterator[FormChoice]:
    """The target's ways to share GPUs, without those that another one has in it."""
    trained = [role for role in homes if job.models[role].trainable]
    found = list[FormChoice]()
    for form in job.target.forms:
        if form.suits(homes, staleness=job.spec.search.staleness):
            together, separate = (
                frozenset((homes[one], homes[other]) for one, other in pairs)
                for pairs in (form.together(homes), form.separate(homes))
            )
            offloads = tuple(
                (homes[role], frozenset(OFFLOADS.index(name) for name in names))
                for role, names in form.offloads(homes, trained).items()
            )
            found.append(FormChoice(together, separate, form.apart, offloads))
    for choice in found:
        if not any(each is not choice and each.holds(choice) for each in found):
            yield choice


def _apart(job: Job, copies: Sequence[CopyChoice]) -> Iterator[tuple[int, int]]:
    """Shadows and all other copies, where rollouts have GPUs of their own.

    And then models that are served, and those that train.
    """
    target = job.target
    if not (target.shadows_apart or job.spec.search.continuous_rollouts):
        return
    for shadow, copy in enumerate(copies):
        if copy.shadow_of is not None:
            yield from ((shadow, other) for other in range(len(copies)) if other != shadow)
    homes = [n for n, copy in enumerate(copies) if copy.shadow_of is None]
    if target.stale_rollouts_apart and job.spec.search.staleness:
        served = [n for n in homes if copies[n].role in target.served_roles]
        yield from ((n, other) for n in served for other in homes if other not in served)


def _copies_of(copies: Sequence[CopyChoice], role: str) -> list[int]:
    return [index for index, copy in enumerate(copies) if copy.role == role]


def _slice(job: Job, pool: Pool) -> PoolSlice:
    """A pool on the GPU axis, with what a plan may use of it."""
    probability = job.max_out_of_memory_probability
    return PoolSlice(
        name=pool.name,
        first_gpu=pool.first_gpu,
        num_gpus=pool.usable_gpus,
        gpus_per_node=pool.gpus_per_node,
        capacity_bytes=memory.fillable_bytes(pool, max_out_of_memory_probability=probability),
        host_bytes=memory.usable_host_bytes(pool),
        price_per_gpu_second=pool.price_per_gpu_hour / 3600.0,
    )


def _syncs(dataflow: Dataflow, copies: Sequence[CopyChoice]) -> list[WeightSyncChoice]:
    """A shadow's sync follows its role's last train call, as far back as its rollouts allow."""
    numbers = {call.id: index for index, call in enumerate(dataflow.calls)}
    syncs = []
    for index, copy in enumerate(copies):
        if copy.shadow_of is None:
            continue
        edge = weights_edge(dataflow, copy.role)
        assert edge is not None, "no other role has a shadow"
        syncs.append(
            WeightSyncChoice(
                home=copy.shadow_of,
                shadow=index,
                train=numbers[edge.source],
                distance=edge.distance,
                bucket_bytes=transition.sync_bucket_bytes(),
            )
        )
    return syncs


def problem_of(problem: Problem, tables: Tables, rows: Rows) -> Problem:
    """The placement problem with an option for every row that takes part."""
    positions, copies = [], []
    for choice, copy, mask in zip(problem.copies, tables.copies, rows.copies, strict=True):
        numbers = np.flatnonzero(mask)
        position = np.full(len(copy), -1, dtype=np.int64)
        position[numbers] = np.arange(len(numbers))
        positions.append(position)
        options = CopyOptions(
            copy.pool[numbers],
            copy.layouts.num_gpus[numbers],
            copy.resident_bytes[numbers],
            copy.host_bytes[numbers],
            copy.sync_seconds[numbers],
            numbers,
        )
        copies.append(replace(choice, options=options))
    parts: list[list[CallPart]] = [[] for _ in problem.calls]
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        numbers = np.flatnonzero(mask)
        owners = positions[table.copy][table.copy_row[numbers]]
        parts[table.call].append(_part(tables, table, numbers, owners))
    calls = [
        replace(call, options=CallOptions(tuple(mine)))
        for call, mine in zip(problem.calls, parts, strict=True)
    ]
    return replace(problem, copies=tuple(copies), calls=tuple(calls))


def _part(tables: Tables, table: CallTable, numbers: IntArray, owners: IntArray) -> CallPart:
    """The options of a call on a copy: rows of its table, and the copy's options they belong to."""
    seconds, transient = table.seconds[numbers], table.transient_bytes[numbers]
    if table.chunk_ready_shares is None and table.tail is None:
        none = np.zeros((len(numbers), 0))
        return CallPart(table.copy, owners, seconds, transient, numbers, none, None, seconds)
    part = table.take(numbers)
    counts = tables.copies[table.copy].layouts.num_gpus[part.copy_row]
    fewer, main_phase = part.tails(counts)
    tails = None if part.tail is None else np.where(fewer < counts, fewer, 0)
    return CallPart(
        table.copy,
        owners,
        seconds,
        transient,
        numbers,
        part.chunk_ready_seconds(),
        tails,
        main_phase,
    )
