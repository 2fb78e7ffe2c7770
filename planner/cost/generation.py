"""Seconds and transient bytes of a generate call: prefill, then decode of a shrinking batch."""

from dataclasses import dataclass, fields

import numpy as np

from planner.cluster import Pool
from planner.cost import constants, memory
from planner.cost.batches import SequenceLengths
from planner.cost.decode import (
    CACHE_POINTS,
    EnginePass,
    EngineShapes,
    StepTables,
    engine_pass,
    step_tables,
)
from planner.cost.estimates import BytesColumns, CallEstimates, SecondsColumns
from planner.cost.host_work import HostWork
from planner.cost.kv_cache import (
    full_kv_cache_bytes,
    kv_bytes_per_token,
    minimum_kv_cache_bytes,
    prompt_tokens,
    response_process,
    tokens_held_once,
)
from planner.cost.layer import Setting, add, scaled
from planner.cost.profile import Profile, Timed
from planner.cost.rollout import Rollout, phases
from planner.cost.rows import ceil_div, distinct_rows
from planner.cost.shards import local_key_value_heads, padded_vocabulary
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

PARTS = tuple(field.name for field in fields(SecondsColumns))


@dataclass(frozen=True, slots=True)
class Running:
    """What one replica has to do and how much of it at once, one row per candidate."""

    sequences: IntArray
    slots: IntArray


@dataclass(frozen=True, slots=True)
class GenerationPhases:
    """Seconds of the two phases of a replica, one row per candidate."""

    prefill: SecondsColumns
    decode: SecondsColumns
    """Environment time included, as overhead."""
    running: Running
    source: IntArray


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
        running_batch=np.minimum(phase.running.slots, phase.running.sequences),
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
    its prompts in chunks, a prompt once for all its responses, and decodes: all slots that the
    cache allows are busy while sequences wait, then the batch shrinks along the length
    distribution. The longest of the call's sequences ends it. A budget below
    `minimum_kv_cache_bytes` is priced as one sequence at a time; callers leave it out.
    """
    process = response_process(call, workload)
    columns = (tensor_parallel_size, pipeline_parallel_size, expert_parallel_size)
    first, shape = distinct_rows(*columns)
    shapes = EngineShapes(*(column[first] for column in columns))
    precision = workload.rollout_precision or workload.precision
    lengths = _prompt_lengths(workload)
    setting = Setting(model, pool, profile, precision, lengths)
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
    longest = workload.prompt_length.max_tokens + process.cell_tokens * len(process.survival)
    tables = step_tables(
        setting,
        shapes,
        largest_batch=int(running.slots.max(initial=1)),
        cache_lengths=np.linspace(lengths.mean_tokens, longest, CACHE_POINTS),
    )
    compute, moved, overhead = _decode(
        tables,
        process,
        running,
        shape,
        pipeline_parallel_size,
        lengths.mean_tokens,
        profile.host_work(setting.stack.name),
    )
    prefill = _prefill(setting, call, workload, shapes, shape, running.sequences)
    waiting = workload.turns * workload.environment_seconds_per_turn
    zero = np.zeros(len(shape))
    return GenerationPhases(
        prefill=SecondsColumns(
            compute=prefill[0].seconds,
            communication=prefill[1].seconds,
            bubble=prefill[2],
            optimizer=zero,
            transition=zero,
            overhead=zero,
        ),
        decode=SecondsColumns(
            compute=compute,
            communication=moved,
            bubble=zero,
            optimizer=zero,
            transition=zero,
            overhead=overhead + waiting,
        ),
        running=running,
        source=np.maximum.reduce([tables.source[shape], prefill[0].source, prefill[1].source]),
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
    """Slots that the cache allows without preemption: all sequences, or a refilled share."""
    per_token = kv_bytes_per_token(
        model,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
    )
    sequences = ceil_div(call.num_sequences, data_parallel_size)
    capacity = kv_cache_bytes // per_token
    held = tokens_held_once(process, workload)
    refilled = np.floor(capacity / process.peak_tokens_refilled(prompt_tokens(workload))).astype(
        np.int64
    )
    fits = capacity >= np.ceil(sequences * held)
    slots = np.where(fits, sequences, np.clip(refilled, 1, sequences))
    return Running(sequences, slots)


def _decode(
    tables: StepTables,
    process: Rollout,
    running: Running,
    shape: IntArray,
    pipeline_parallel_size: IntArray,
    prompt_tokens: float,
    host: HostWork,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(compute, communication, engine overhead) of all decode steps of a replica."""
    # Many budgets and replica counts lead to the same slots and sequences.
    first, inverse = distinct_rows(shape, running.sequences, running.slots)
    slots, stages, which = running.slots[first], pipeline_parallel_size[first], shape[first]
    busy = phases(process, sequences=running.sequences[first], slots=slots)
    compute, moved = tables.at(
        which, np.maximum(slots / stages, 1.0), prompt_tokens + busy.busy_age_tokens
    )
    batch = np.maximum(busy.shrinking * slots[:, None], 1.0)
    late_compute, late_moved = tables.at(
        which[:, None],
        np.maximum(batch / stages[:, None], 1.0),
        prompt_tokens + busy.shrinking_age_tokens,
    )
    steps = process.cell_tokens
    all_steps = busy.busy_steps + steps * batch.shape[1]
    sequence_steps = busy.busy_steps * slots + steps * batch.sum(axis=1)
    overhead = host.engine_step_seconds * all_steps + host.engine_sequence_seconds * sequence_steps
    return (
        (compute * busy.busy_steps + steps * late_compute.sum(axis=1))[inverse],
        (moved * busy.busy_steps + steps * late_moved.sum(axis=1))[inverse],
        overhead[inverse],
    )


def _prefill(
    setting: Setting,
    call: Call,
    workload: WorkloadSpec,
    shapes: EngineShapes,
    shape: IntArray,
    sequences: IntArray,
) -> tuple[Timed, Timed, FloatArray]:
    """(compute, communication, bubble) of all prompts of a replica, in chunks.

    Responses of one prompt share its prefill. Chunks stream through the pipeline.
    """
    shared = max(call.num_sequences // workload.prompts_per_iteration, 1)
    prompts = ceil_div(sequences, min(shared, workload.responses_per_prompt))
    tokens = prompts * setting.lengths.mean_tokens
    chunk = np.minimum(constants.PREFILL_CHUNK_TOKENS, tokens)
    chunk_size = np.ceil(chunk).astype(np.int64)
    first, inverse = distinct_rows(shape, chunk_size)
    which = shape[first]
    rows = EnginePass(
        shapes.tensor_parallel_size[which],
        shapes.pipeline_parallel_size[which],
        shapes.expert_parallel_size[which],
        chunk_size[first],
    )
    arch = setting.model.architecture
    compute, moved = engine_pass(setting, rows)
    one = setting.profile.prefill_attention(
        batch_size=1,
        sequence_length=setting.lengths.points[None, :],
        num_attention_heads=ceil_div(arch.num_attention_heads, rows.tensor_parallel_size)[:, None],
        num_key_value_heads=local_key_value_heads(arch, rows.tensor_parallel_size)[:, None],
        head_dim=arch.head_dim,
    )
    in_chunk = rows.tokens / setting.lengths.mean_tokens
    attention = Timed(one.seconds @ setting.lengths.weights * in_chunk, one.source.max(axis=1))
    compute = add(compute, scaled(attention, arch.num_layers))
    stages = shapes.pipeline_parallel_size[shape]
    chunks = tokens / chunk
    each = (compute.seconds + moved.seconds)[inverse] / stages
    return (
        Timed(compute.seconds[inverse] * chunks / stages, compute.source[inverse]),
        Timed(moved.seconds[inverse] * chunks / stages, moved.source[inverse]),
        each * (stages - 1),
    )


def _transient_bytes(
    model: Model,
    *,
    tensor_parallel_size: IntArray,
    pipeline_parallel_size: IntArray,
    kv_cache_bytes: IntArray,
    running_batch: IntArray,
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
        workspace=np.full(len(tensor), constants.ENGINE_GRAPH_BYTES),
    )
