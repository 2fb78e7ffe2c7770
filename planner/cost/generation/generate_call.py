"""Seconds and transient bytes of a generate call: prefill, then decode of a shrinking batch."""

from dataclasses import dataclass, fields, replace

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants, memory
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.estimates import BytesColumns, CallEstimates, SecondsColumns
from automap.planner.cost.generation.decode import (
    CACHE_POINTS,
    EngineShapes,
    StepTables,
    step_tables,
)
from automap.planner.cost.generation.decoding import BatchTimeline, Decoded, Running, Steps, decode
from automap.planner.cost.generation.kv_cache import (
    absent_processes,
    kv_bytes_per_token,
    response_process,
    slot_process,
    typical_tokens,
)
from automap.planner.cost.generation.prefill import prefill_seconds
from automap.planner.cost.layer.transformer_layer import KernelContext
from automap.planner.cost.operators.profile import Profile
from automap.planner.cost.rollout_engines import ENGINES, EngineProfile
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.cost.shards import padded_vocabulary
from automap.planner.cost.stacks import stack_of
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray, GenerationLayouts, IntArray
from automap.planner.spec import WorkloadSpec

PARTS = tuple(field.name for field in fields(SecondsColumns))


@dataclass(frozen=True, slots=True)
class GenerationPhases:
    """Prefill and decode of a generate call, and what they were priced with [candidate]."""

    prefill: SecondsColumns
    decode: SecondsColumns
    """Seconds of all decode steps; environment time that nothing hides is part of `overhead`."""
    running: Running
    source: IntArray
    tables: StepTables
    """Seconds of a decode step on the GPU, without the engine's host work."""
    engine: EngineProfile
    shape: IntArray
    """Index of the candidate's shape in `tables`."""
    prefill_tokens: FloatArray
    timeline: BatchTimeline

    @property
    def deviation_seconds(self) -> FloatArray:
        """Standard deviation of the decode seconds when lengths are drawn anew."""
        return self.timeline.deviation_seconds()


def price_generate(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    generation_layouts: GenerationLayouts,
    *,
    kv_cache_bytes: IntArray,
    max_sequences: int | None = None,
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
        generation_layouts,
        kv_cache_bytes=kv_cache_bytes,
        max_sequences=max_sequences,
    )
    prefill, decode = phase.prefill, phase.decode
    seconds = SecondsColumns(
        **{name: getattr(decode, name) + getattr(prefill, name) for name in PARTS}
    )
    transient = transient_bytes(
        model,
        generation_layouts,
        kv_cache_bytes=kv_cache_bytes,
        running_batch=phase.running.most_at_once,
        # A CPU captures no graphs.
        graph_bytes=0 if pool.gpu.is_core else constants.ENGINE_GRAPH_BYTES,
    )
    return CallEstimates(seconds, transient, phase.source)


def generation_phases(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    generation_layouts: GenerationLayouts,
    *,
    kv_cache_bytes: IntArray,
    max_sequences: int | None = None,
) -> GenerationPhases:
    """Prefill and decode of one iteration's generation, one row per candidate.

    An engine's data-parallel replicas share the sequences evenly (rounded up). Each prefills
    its prompts in chunks, a prompt once for all its responses, and decodes: as many run as the
    cache holds, those sent back for want of room being prefilled again, then the batch shrinks
    along the length distribution. The longest of the call's sequences ends it. A budget below
    `minimum_kv_cache_bytes` is priced as one sequence at a time; callers leave it out.
    With `max_sequences` no replica runs more at once, whatever its cache holds.
    """
    context = kernel_context(model, workload, pool, profile, max_sequences=max_sequences)
    columns = (
        generation_layouts.tensor_parallel_size,
        generation_layouts.pipeline_parallel_size,
        generation_layouts.expert_parallel_size,
    )
    first, shape = distinct_rows(*columns)
    shapes = EngineShapes(*(column[first] for column in columns))
    running = _running(
        model, call, workload, generation_layouts, context.engine, kv_cache_bytes=kv_cache_bytes
    )
    longest = workload.prompt_length.max_tokens + running.process.longest_tokens
    tables = step_tables(
        context,
        shapes,
        # Of any batch, so that no row is extrapolated whatever else is priced beside it.
        largest_batch=int(running.sequences.max(initial=1)),
        cache_lengths=np.linspace(context.lengths.mean_tokens, longest, CACHE_POINTS),
    )
    steps = Steps(tables, context.engine, shape, generation_layouts.pipeline_parallel_size)
    prefill = prefill_seconds(context, call, workload, shapes, shape, running.sequences)
    decoded = decode(steps, prefill, running, workload)
    again = 1.0 + decoded.evicted_tokens / prefill.tokens
    return GenerationPhases(
        prefill=prefill_columns(prefill.seconds, again),
        decode=_decode_columns(decoded),
        running=running,
        source=np.maximum(tables.source[shape], prefill.source),
        tables=tables,
        engine=context.engine,
        shape=shape,
        prefill_tokens=prefill.tokens * again,
        timeline=decoded.timeline,
    )


def kernel_context(
    model: Model,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    *,
    max_sequences: int | None = None,
) -> KernelContext:
    """What the kernels of an engine that generates depend on, beside its shape.

    With `max_sequences` no replica runs more at once.
    """
    host_work = profile.host_work(stack_of(workload).host_work)
    engine = host_work.of_engine(ENGINES[workload.rollout_engine])
    if max_sequences is not None:
        engine = replace(engine, max_sequences=max_sequences)
    return KernelContext(
        model,
        pool,
        profile,
        workload.rollout_precision or workload.precision,
        _prompt_lengths(workload),
        engine=engine,
        cache_precision=workload.rollout_cache_precision,
    )


def prefill_columns(once: SecondsColumns, again: FloatArray) -> SecondsColumns:
    """Seconds of the prefill with evicted tokens passing again; the pipeline fills only once."""
    return replace(
        once,
        compute=once.compute * again,
        communication=once.communication * again,
        overhead=once.overhead * again,
    )


def _decode_columns(decoded: Decoded) -> SecondsColumns:
    zero = np.zeros(len(decoded.compute))
    return SecondsColumns(
        compute=decoded.compute,
        communication=decoded.communication,
        bubble=zero,
        optimizer=zero,
        transition=zero,
        overhead=decoded.overhead + decoded.waiting,
        between=zero,
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
    generation_layouts: GenerationLayouts,
    engine: EngineProfile,
    *,
    kv_cache_bytes: IntArray,
) -> Running:
    """Sequences of each candidate's replicas, and the tokens their cache holds."""
    process = response_process(call, workload)
    per_token = kv_bytes_per_token(
        model,
        generation_layouts,
        tokens=typical_tokens(workload),
        precision=workload.rollout_cache_precision,
    )
    sequences = ceil_div(call.num_sequences, generation_layouts.data_parallel_size)
    capacity = kv_cache_bytes // per_token
    started = np.maximum((capacity / process.prompt_tokens).astype(np.int64), 1)
    slots = engine_slots(engine, generation_layouts)
    return Running(
        process,
        absent_processes(call, workload),
        sequences,
        capacity,
        call.num_sequences,
        most_at_once=np.minimum(
            sequences, started if slots is None else np.minimum(started, slots)
        ),
        slots=slots,
        in_slots=None if slots is None else slot_process(call, workload),
    )


def engine_slots(engine: EngineProfile, layouts: GenerationLayouts) -> IntArray | None:
    """Most sequences [candidate] that a replica runs at once by its engine's settings."""
    tensor, stages = layouts.tensor_parallel_size, layouts.pipeline_parallel_size
    limits = []
    if engine.max_sequences is not None:
        limits.append(np.full_like(tensor, engine.max_sequences))
    if engine.max_sequences_per_gpu is not None:
        limits.append(engine.max_sequences_per_gpu * tensor * stages)
    return np.minimum.reduce(limits) if limits else None


def transient_bytes(
    model: Model,
    generation_layouts: GenerationLayouts,
    *,
    kv_cache_bytes: IntArray,
    running_batch: IntArray,
    graph_bytes: int,
) -> BytesColumns:
    """Bytes per GPU [candidate] that a generate call adds to its weights.

    The cache as given; the engine's graphs and workspace, a prefill chunk, logits of the batch.
    """
    arch, tensor = model.architecture, generation_layouts.tensor_parallel_size
    width = arch.intermediate_size
    if arch.num_moe_layers:
        width = max(width, arch.num_experts_per_token * arch.moe_intermediate_size)
    per_token = (
        4 * arch.hidden_size + (arch.query_size + 2 * arch.key_value_size + 3 * width) / tensor
    )
    logits = running_batch * (
        arch.vocab_size * 4 + padded_vocabulary(arch, tensor) * constants.PRECISION_BYTES["bf16"]
    )
    parallel = tensor * generation_layouts.pipeline_parallel_size > 1
    return memory.bytes_columns(
        len(tensor),
        activations=2 * per_token * constants.PREFILL_CHUNK_TOKENS,
        logits=logits,
        kv_cache=kv_cache_bytes,
        communication_buffers=np.where(parallel, constants.COMMUNICATION_BUFFER_BYTES, 0),
        workspace=np.full(len(tensor), graph_bytes),
    )
