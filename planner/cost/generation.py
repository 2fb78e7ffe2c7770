"""Seconds and transient bytes of a generate call: prefill, then decode of a shrinking batch."""

from dataclasses import dataclass, fields, replace

import numpy as np

from planner.cluster import Pool
from planner.cost import constants, memory
from planner.cost.batches import SequenceLengths
from planner.cost.decode import CACHE_POINTS, EngineShapes, StepTables, step_tables
from planner.cost.estimates import BytesColumns, CallEstimates, SecondsColumns
from planner.cost.kv_cache import (
    full_kv_cache_bytes,
    kv_bytes_per_token,
    minimum_kv_cache_bytes,
    response_process,
)
from planner.cost.layer import Setting
from planner.cost.prefill import prefill_seconds
from planner.cost.profile import Profile
from planner.cost.rollout import BUSY_CELLS, Phases, Rollout, phases
from planner.cost.rollout_engines import ENGINES, EngineProfile
from planner.cost.rows import ceil_div, distinct_rows
from planner.cost.shards import padded_vocabulary
from planner.cost.stacks import STACKS
from planner.dataflow import Call
from planner.job import Model
from planner.layout import FloatArray, IntArray
from planner.spec import WorkloadSpec

__all__ = [
    "full_kv_cache_bytes",
    "generation_phases",
    "minimum_kv_cache_bytes",
    "price_generate",
]

CAPACITY_LEVELS = 512
"""Per factor of 2: cache sizes that differ by less than 0.1 % count as one."""
PARTS = tuple(field.name for field in fields(SecondsColumns))


@dataclass(frozen=True, slots=True)
class Running:
    """What one replica has to do and what its cache holds, one row per candidate."""

    sequences: IntArray
    cache_tokens: IntArray
    num_sequences: int
    """Of all replicas."""
    most_at_once: IntArray
    """Before they have grown."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Seconds of all decode steps of a replica, and the tokens it has to prefill again."""

    compute: FloatArray
    communication: FloatArray
    overhead: FloatArray
    waiting: FloatArray
    """Environment time that nothing hides: while the cache is short, others run meanwhile."""
    evicted_tokens: FloatArray
    course: "Course"


@dataclass(frozen=True, slots=True)
class GenerationPhases:
    """Seconds of the two phases of a replica, one row per candidate."""

    prefill: SecondsColumns
    decode: SecondsColumns
    """Environment time included, as overhead."""
    running: Running
    source: IntArray
    tables: StepTables
    """What a decode step takes on the GPU."""
    engine: EngineProfile
    shape: IntArray
    """Which of the tables' shapes a row is."""
    prefill_tokens: FloatArray
    course: "Course"

    @property
    def deviation_seconds(self) -> FloatArray:
        """Standard deviation of the decode seconds when lengths are drawn anew."""
        return self.course.deviation_seconds()


@dataclass(frozen=True, slots=True)
class Course:
    """The distinct courses of the batch, and which of them is a candidate's."""

    process: Rollout
    phases: Phases
    phases_of: IntArray
    """[course]: row of the phases."""
    step_seconds: FloatArray
    """[course, cell]"""
    course_of: IntArray
    """[row]"""

    def deviation_seconds(self) -> FloatArray:
        """Per candidate."""
        mine = self.phases.take(self.phases_of)
        return mine.deviation_seconds(self.step_seconds, self.process)[self.course_of]


def price_generate(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    *,
    tensor_parallel_size: IntArray,
    pipeline_parallel_size: IntArray,
    expert_parallel_size: IntArray,
    data_parallel_size: IntArray,
    kv_cache_bytes: IntArray,
) -> CallEstimates:
    """Price the generation of one iteration without its reshard, one row per candidate.

    The seconds of `generation_phases` together, and what the engine holds beside its weights.
    """
    phase = generation_phases(
        model,
        call,
        workload,
        pool,
        profile,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        expert_parallel_size=expert_parallel_size,
        data_parallel_size=data_parallel_size,
        kv_cache_bytes=kv_cache_bytes,
    )
    prefill, decode = phase.prefill, phase.decode
    seconds = SecondsColumns(
        **{name: getattr(decode, name) + getattr(prefill, name) for name in PARTS}
    )
    transient = _transient_bytes(
        model,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        kv_cache_bytes=kv_cache_bytes,
        running_batch=phase.running.most_at_once,
        # A CPU captures no graphs.
        graph_bytes=0 if pool.gpu.generation == "none" else constants.ENGINE_GRAPH_BYTES,
    )
    return CallEstimates(seconds, transient, phase.source)


def generation_phases(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    *,
    tensor_parallel_size: IntArray,
    pipeline_parallel_size: IntArray,
    expert_parallel_size: IntArray,
    data_parallel_size: IntArray,
    kv_cache_bytes: IntArray,
) -> GenerationPhases:
    """Prefill and decode of one iteration's generation, one row per candidate.

    `data_parallel_size` engine replicas share the sequences evenly (rounded up). Each prefills
    its prompts in chunks, a prompt once for all its responses, and decodes: as many run as the
    cache holds, those sent back for want of room being prefilled again, then the batch shrinks
    along the length distribution. The longest of the call's sequences ends it. A budget below
    `minimum_kv_cache_bytes` is priced as one sequence at a time; callers leave it out.
    """
    process = response_process(call, workload)
    columns = (tensor_parallel_size, pipeline_parallel_size, expert_parallel_size)
    first, shape = distinct_rows(*columns)
    shapes = EngineShapes(*(column[first] for column in columns))
    precision = workload.rollout_precision or workload.precision
    lengths = _prompt_lengths(workload)
    host_work = profile.host_work(STACKS[workload.training_stack].host_work)
    engine = host_work.of_engine(ENGINES[workload.rollout_engine])
    setting = Setting(
        model,
        pool,
        profile,
        precision,
        lengths,
        engine=engine,
        cache_precision=workload.rollout_cache_precision,
    )
    running = _running(
        model,
        call,
        workload,
        process,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        data_parallel_size=data_parallel_size,
        kv_cache_bytes=kv_cache_bytes,
    )
    longest = workload.prompt_length.max_tokens + process.longest_tokens
    tables = step_tables(
        setting,
        shapes,
        # Of any batch, so that no row is extrapolated whatever else is priced beside it.
        largest_batch=int(running.sequences.max(initial=1)),
        cache_lengths=np.linspace(lengths.mean_tokens, longest, CACHE_POINTS),
    )
    decoded = _decode(tables, engine, process, running, shape, pipeline_parallel_size, workload)
    prefill = prefill_seconds(setting, call, workload, shapes, shape, running.sequences)
    again = 1.0 + decoded.evicted_tokens / prefill.tokens
    zero = np.zeros(len(shape))
    return GenerationPhases(
        prefill=replace(
            prefill.seconds,
            compute=prefill.seconds.compute * again,
            communication=prefill.seconds.communication * again,
            overhead=prefill.seconds.overhead * again,
        ),
        decode=SecondsColumns(
            compute=decoded.compute,
            communication=decoded.communication,
            bubble=zero,
            optimizer=zero,
            transition=zero,
            overhead=decoded.overhead + decoded.waiting,
        ),
        running=running,
        source=np.maximum(tables.source[shape], prefill.source),
        tables=tables,
        engine=engine,
        shape=shape,
        prefill_tokens=prefill.tokens * again,
        course=decoded.course,
    )


def _prompt_lengths(workload: WorkloadSpec) -> SequenceLengths:
    points, weights = workload.prompt_length.discretised(4)
    return SequenceLengths(
        np.asarray(points, dtype=np.float64), weights, workload.prompt_length.max_tokens
    )


def _running(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    process: Rollout,
    *,
    tensor_parallel_size: IntArray,
    pipeline_parallel_size: IntArray,
    data_parallel_size: IntArray,
    kv_cache_bytes: IntArray,
) -> Running:
    """What the cache of each candidate's replicas holds."""
    per_token = kv_bytes_per_token(
        model,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        precision=workload.rollout_cache_precision,
    )
    sequences = ceil_div(call.num_sequences, data_parallel_size)
    capacity = kv_cache_bytes // per_token
    started = np.maximum((capacity / process.prompt_tokens).astype(np.int64), 1)
    return Running(sequences, capacity, call.num_sequences, np.minimum(sequences, started))


def _decode(
    tables: StepTables,
    engine: EngineProfile,
    process: Rollout,
    running: Running,
    shape: IntArray,
    pipeline_parallel_size: IntArray,
    workload: WorkloadSpec,
) -> Decoded:
    """All decode steps of a replica; the slowest of the replicas counts."""
    # Many layouts, budgets and replica counts lead to the same course of the batch.
    level = np.ceil(CAPACITY_LEVELS * np.log2(running.cache_tokens / running.sequences + 1.0))
    alike, course_of = distinct_rows(running.sequences, level.astype(np.int64))
    sequences = running.sequences[alike]
    # The level's own size: whatever else is priced beside it, a row has the same seconds.
    cache_tokens = sequences * (np.exp2(level[alike] / CAPACITY_LEVELS) - 1.0)
    course = phases(
        process,
        sequences=sequences,
        cache_tokens=cache_tokens,
        num_sequences=running.num_sequences,
    )
    first, inverse = distinct_rows(shape, course_of)
    stages, which, rows = pipeline_parallel_size[first, None], shape[first, None], course_of[first]
    steps, batch = course.steps[rows], course.batch[rows]
    cached = process.prompt_tokens + course.age_tokens[rows]
    if workload.environment_seconds_per_turn:
        alone = (steps * sum(tables.at(which, np.maximum(batch / stages, 1.0), cached))).sum(axis=1)
        batch = _less_those_away(batch, process.variation, alone, workload)
    compute, moved = tables.at(which, np.maximum(batch / stages, 1.0), cached)
    overhead = engine.step_seconds + engine.sequence_seconds * batch
    evicted = course.evicted_tokens[course_of]
    short = evicted / (process.mean_tokens * running.sequences)
    again = (workload.turns - 1) * (process.prompt_tokens + process.mean_tokens / 2)
    waits = short + workload.turns * (1.0 - short)
    return Decoded(
        compute=(compute * steps).sum(axis=1)[inverse],
        communication=(moved * steps).sum(axis=1)[inverse],
        overhead=(overhead * steps).sum(axis=1)[inverse],
        waiting=waits * workload.environment_seconds_per_turn,
        evicted_tokens=evicted + short * again * running.sequences,
        course=Course(process, course, rows, compute + moved + overhead, inverse),
    )


def _less_those_away(
    batch: FloatArray, variation: float, decode_seconds: FloatArray, workload: WorkloadSpec
) -> FloatArray:
    """The shrinking batch without the sequences that wait for their environment.

    Sequences that leave in step return in step, and none decodes meanwhile; the more their turns
    differ, the more of them decode while others are away.
    """
    each, turns = workload.environment_seconds_per_turn, workload.turns
    away = turns * each / (turns * each + decode_seconds)
    mixed = np.minimum(variation * decode_seconds / (turns * each), 1.0) * (1.0 - 1.0 / turns)
    fewer = batch.copy()
    fewer[:, BUSY_CELLS:] *= (1.0 - away * mixed)[:, None]
    return np.maximum(fewer, 1.0)


def _transient_bytes(
    model: Model,
    *,
    tensor_parallel_size: IntArray,
    pipeline_parallel_size: IntArray,
    kv_cache_bytes: IntArray,
    running_batch: IntArray,
    graph_bytes: int,
) -> BytesColumns:
    """Cache as given; the engine's graphs and workspace, a prefill chunk, logits of the batch."""
    arch, tensor = model.architecture, tensor_parallel_size
    width = arch.intermediate_size
    if arch.num_moe_layers:
        width = max(width, arch.num_experts_per_token * arch.moe_intermediate_size)
    per_token = (
        4 * arch.hidden_size + (arch.query_size + 2 * arch.key_value_size + 3 * width) / tensor
    )
    logits = running_batch * (
        arch.vocab_size * 4 + padded_vocabulary(arch, tensor) * constants.PRECISION_BYTES["bf16"]
    )
    parallel = tensor * pipeline_parallel_size > 1
    return memory.bytes_columns(
        len(tensor),
        activations=2 * per_token * constants.PREFILL_CHUNK_TOKENS,
        logits=logits,
        kv_cache=kv_cache_bytes,
        communication_buffers=np.where(parallel, constants.COMMUNICATION_BUFFER_BYTES, 0),
        workspace=np.full(len(tensor), graph_bytes),
    )
