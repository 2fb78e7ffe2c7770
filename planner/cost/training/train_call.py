"""Seconds and transient bytes of a train call: forward, backward and optimizer of one iteration."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants, memory
from automap.planner.cost.batches import micro_batch_tokens, micro_batches, sequence_lengths
from automap.planner.cost.communication import point_to_point_seconds
from automap.planner.cost.estimates import BytesColumns, CallEstimates, SecondsColumns
from automap.planner.cost.layer.activations import FULL, SELECTIVE, activation_bytes
from automap.planner.cost.layer.transformer_layer import (
    Adapters,
    KernelContext,
    UnitSeconds,
    agreement_seconds,
)
from automap.planner.cost.operators.profile import Profile, Timed
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import stage_parameters
from automap.planner.cost.slowest import Waits, slowest_gpu, token_waits
from automap.planner.cost.stacks import stack_of
from automap.planner.cost.training.optimizer_step import (
    Step,
    data_parallel_seconds,
    exposed,
    whole_step,
)
from automap.planner.cost.training.pipeline import Blocks, StageSeconds, units, worst_stage
from automap.planner.cost.transition import reload_seconds
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray, IntArray, Layouts
from automap.planner.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward and backward pass of one micro-batch [candidate]; recomputation is in backward."""

    forward: StageSeconds
    backward: StageSeconds
    source: IntArray

    @property
    def compute(self) -> FloatArray:
        """Compute seconds of both passes on the slowest stage."""
        return self.forward.compute + self.backward.compute

    @property
    def communication(self) -> FloatArray:
        """Communication seconds of both passes on the slowest stage."""
        return self.forward.communication + self.backward.communication

    @property
    def elsewhere(self) -> FloatArray:
        """Seconds of both passes on all stages but the slowest."""
        # Rounding leaves it a hair off 0 where there is a single stage.
        whole = self.forward.pipeline_total + self.backward.pipeline_total
        return np.maximum(whole - self.compute - self.communication, 0.0)


def price_train(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
    recompute: IntArray,
    rows: IntArray | None = None,
    adapters: Adapters = "all",
    drops_tokens: bool = False,
    dealt: bool = True,
    state_pool: Pool | None = None,
) -> CallEstimates:
    """Price the whole train call of one iteration, one row per candidate.

    `rows`: the layout of each candidate, where several have the same; else each has its own.
    Sequences are dealt evenly, rounded up; the slowest rank's surplus tokens follow from the length
    distribution. `adapters`: which linear layers have one, where the model trains adapters.
    `drops_tokens`: experts take a fixed number of tokens. `dealt`: see `token_waits`.
    """
    context = KernelContext(
        model,
        pool,
        profile,
        workload.precision,
        sequence_lengths(workload),
        product_precision=memory.product_precision(model, workload),
        stack=stack_of(workload),
        adapters=adapters,
        drops_tokens=drops_tokens,
    )
    rows = np.arange(len(layouts)) if rows is None else rows
    each = layouts.take(rows)
    updates = max(call.num_updates, 1)
    sequences = -(-(call.epochs * call.num_sequences + call.extra_forward_sequences) // updates)
    per_rank, num_micro_batches = micro_batches(
        sequences,
        data_parallel_size=each.data_parallel_size,
        micro_batch_size=micro_batch_size,
    )
    step, source = _step_seconds(
        context,
        each,
        _passes(context, each, micro_batch_size, recompute),
        whole_step(context, workload, layouts, stage_parameters(model, layouts)).take(rows),
        hop=stage_hop(context, each, micro_batch_size),
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
        waits=token_waits(
            context.lengths,
            each,
            filled=context.stack.balances_tokens,
            dealt=dealt,
            sequences_per_rank=per_rank,
            micro_batch_size=micro_batch_size,
            num_micro_batches=num_micro_batches,
            in_step=each.sharding >= memory.GRADIENT_SHARDED,
            pipeline_share=constants.PIPELINE_WAIT_SHARE,
        ),
    )
    away, held = offloaded(model, workload, state_pool or pool, layouts)
    seconds = replace(step.times(updates), transition=away[rows])
    transient = _transient_bytes(
        context,
        workload,
        layouts,
        held,
        rows,
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
        recompute=recompute,
    )
    return CallEstimates(seconds, transient, source)


def _step_seconds(
    context: KernelContext,
    layouts: Layouts,
    passes: Passes,
    whole: Step,
    *,
    hop: Timed,
    micro_batch_size: IntArray,
    num_micro_batches: IntArray,
    waits: Waits,
) -> tuple[SecondsColumns, IntArray]:
    """(seconds, provenance) of one optimizer step; `waits`: for sequences of unequal lengths.

    All wait for the slowest GPU, too.
    A data rank works through m micro-batches in a 1F1B pipeline: (m·slowest stage) + (all stages −
    slowest)/v (Narayanan et al. 2021, arXiv:2104.04473); then reduces gradients and updates.
    """
    reduction = data_parallel_seconds(
        context,
        whole,
        layouts.sharding,
        num_micro_batches,
        forward=passes.forward.compute,
        backward=passes.backward.compute,
    )
    hops = layouts.pipeline_parallel_size - 1
    waiting = np.where(hops > 0, passes.elsewhere, 0.0) + 2.0 * hop.seconds * hops
    moved = passes.communication + _hops_in_steady_state(context, layouts, hop, passes)
    work = num_micro_batches * waits.work
    straggling, zero = slowest_gpu(layouts.num_gpus), np.zeros(len(layouts))
    seconds = SecondsColumns(
        compute=straggling * work * passes.compute,
        communication=work * moved + reduction.seconds,
        bubble=straggling * waits.ends * waiting / layouts.virtual_pipeline_parallel_size,
        optimizer=whole.optimizer.seconds,
        transition=zero,
        overhead=context.host_work.step.seconds(
            num_layers=context.model.architecture.num_layers,
            stages=layouts.pipeline_parallel_size,
            micro_batches=num_micro_batches,
            micro_batch_size=micro_batch_size,
        )
        + agreement_seconds(context, layouts.num_gpus, times=constants.STEP_AGREEMENTS),
        between=zero,
    )
    sources = [passes.source, hop.source, reduction.source, whole.optimizer.source]
    source: IntArray = np.maximum.reduce(sources)
    return seconds, source


def stage_hop(context: KernelContext, layouts: Layouts, micro_batch_size: IntArray) -> Timed:
    """Seconds to send a micro-batch's activations to the next stage.

    Every GPU of the tensor group sends its 1/t of the tokens.
    """
    tokens = ceil_div(
        micro_batch_tokens(context.lengths, micro_batch_size), layouts.context_parallel_size
    )
    arch = context.model.architecture
    size = tokens * arch.hidden_size * context.element_bytes / layouts.tensor_parallel_size
    crosses = layouts.num_gpus > context.pool.nvlink_domain_gpus
    seconds, source = point_to_point_seconds(
        context.pool, context.profile, size, crosses_node=crosses
    )
    piped = layouts.pipeline_parallel_size > 1
    seconds = seconds * context.collective_slowdown
    return Timed(np.where(piped, seconds, 0.0), np.where(piped, source, 0))


def _hops_in_steady_state(
    context: KernelContext, layouts: Layouts, hop: Timed, passes: Passes
) -> FloatArray:
    """Seconds that messages between stages add to a micro-batch while the pipeline is full.

    1F1B waits for each of its two. Interleaved stages have another chunk to work on meanwhile,
    where the software overlaps them.
    """
    chunks = layouts.virtual_pipeline_parallel_size
    sent = 2.0 * chunks * hop.seconds
    if not context.stack.overlaps_stages:
        return sent
    return np.where(chunks > 1, exposed(context, sent, passes.compute), sent)


def _passes(
    context: KernelContext, layouts: Layouts, micro_batch_size: IntArray, recompute: IntArray
) -> Passes:
    """Price forward and backward of one micro-batch; recomputation repeats forward work."""
    blocks = units(context, layouts, micro_batch_size)
    selective = recompute == SELECTIVE
    full = recompute == FULL

    def back(unit: UnitSeconds) -> tuple[FloatArray, FloatArray]:
        again = np.where(full, unit.forward, np.where(selective, unit.selective, 0.0))
        part = np.where(selective, unit.selective_communication, 0.0)
        moved_again = np.where(full, unit.forward_communication, part)
        return unit.backward + again, unit.backward_communication + moved_again

    layers = [back(layer) for layer in blocks.layers]
    embedding, head = blocks.embedding, blocks.head
    forward = worst_stage(context, layouts, *blocks.forward())
    backward = worst_stage(
        context,
        layouts,
        Blocks(tuple(layer[0] for layer in layers), embedding.backward, head.backward),
        Blocks(
            tuple(layer[1] for layer in layers),
            embedding.backward_communication,
            head.backward_communication,
        ),
    )
    return Passes(forward, backward, blocks.source)


def offloaded(
    model: Model, workload: WorkloadSpec, pool: Pool, layouts: Layouts
) -> tuple[FloatArray, BytesColumns]:
    """(seconds, bytes per GPU) that a train call takes for what its home keeps on the host.

    It is reloaded before and stored after the call; freed gradients are there meanwhile. What an
    optimizer on the host has stays there.
    """
    weights, gradients, optimizer = memory.training_state(model, workload, layouts)
    state_away = layouts.offload >= memory.OFFLOAD_OPTIMIZER
    weights_away = layouts.offload == memory.OFFLOAD_WEIGHTS
    held = memory.bytes_columns(
        len(layouts),
        weights=np.where(weights_away, weights, 0),
        gradients=np.where(state_away, gradients, 0),
        optimizer=np.where(state_away, 0 if workload.optimizer_cpu_offload else optimizer, 0),
    )
    return 2.0 * reload_seconds(held.weights + held.optimizer, pool), held


def _beside(gradients: IntArray, activations: IntArray, logits: IntArray) -> tuple[IntArray, ...]:
    """(activations, logits) in bytes beyond the gradients, in whose place they are kept."""
    left = np.maximum(gradients - activations, 0)
    return np.maximum(activations - gradients, 0), np.maximum(logits - left, 0)


def _transient_bytes(
    context: KernelContext,
    workload: WorkloadSpec,
    layouts: Layouts,
    held: BytesColumns,
    rows: IntArray,
    *,
    micro_batch_size: IntArray,
    num_micro_batches: IntArray,
    recompute: IntArray,
) -> BytesColumns:
    """Bytes per GPU that a train call adds [candidate].

    They are activations, logits, buffers, layers gathered under `full`, and the reloaded state.
    """
    model, lengths, each = context.model, context.lengths, layouts.take(rows)
    activations, logits = activation_bytes(
        model,
        workload,
        lengths,
        each,
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
        recompute=recompute,
    )
    gathered, gathered_layer = memory.gathered_layer_bytes(model, workload, layouts)
    gathered_gradients = gathered_layer[rows]
    if context.stack.memory.gradients_on_demand:
        # With one micro-batch activations go as gradients come, so that the larger of them counts,
        # and there is no sum to which the embedding's gradient would be added.
        _, gradients, _ = memory.training_state(model, workload, layouts)
        alone = num_micro_batches == 1
        activations, logits = _beside(np.where(alone, gradients[rows], 0), activations, logits)
        summed = ~alone | (each.sharding >= memory.GRADIENT_SHARDED)
        gathered_gradients = np.where(summed, gathered_gradients, 0)
    return memory.bytes_columns(
        len(rows),
        weights=(held.weights + gathered + memory.eight_bit_copies(model, workload, layouts))[rows],
        gradients=(held.gradients + memory.step_bytes(model, workload, layouts))[rows]
        + gathered_gradients,
        optimizer=held.optimizer[rows],
        activations=activations,
        logits=logits,
        communication_buffers=memory.communication_buffer_bytes(
            model, workload, lengths, each, micro_batch_size=micro_batch_size
        ),
    )
