"""Seconds and transient bytes of an inference forward: log-probabilities, values, rewards."""

from dataclasses import replace

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants, memory
from automap.planner.cost.batches import SequenceLengths, micro_batches, sequence_lengths
from automap.planner.cost.estimates import BytesColumns, CallEstimates, SecondsColumns
from automap.planner.cost.layer.activations import forward_activation_bytes
from automap.planner.cost.layer.transformer_layer import KernelContext, agreement_seconds
from automap.planner.cost.operators.profile import Profile
from automap.planner.cost.shards import stage_parameters
from automap.planner.cost.slowest import slowest_gpu, token_waits
from automap.planner.cost.stacks import stack_of
from automap.planner.cost.training.optimizer_step import exposed, gathered_weights
from automap.planner.cost.training.pipeline import units, worst_stage
from automap.planner.cost.training.train_call import stage_hop
from automap.planner.cost.transition import reload_seconds
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray, IntArray, Layouts
from automap.planner.spec import WorkloadSpec


def price_forward(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
    rows: IntArray | None = None,
    dealt: bool = True,
) -> CallEstimates:
    """Price one full-sequence forward over prompt and response, one row per candidate.

    `rows`: the layout of each candidate, where several have the same; else each has its own.
    Micro-batches stream through the pipeline: m·slowest stage + (all stages − slowest). Weights
    on the host are reloaded first; fully sharded ones are gathered layer by layer. `dealt`: see
    `token_waits`.
    """
    rows = np.arange(len(layouts)) if rows is None else rows
    each = layouts.take(rows)
    lengths = sequence_lengths(workload)
    # Only backward passes differ between a trained and a frozen model.
    context = KernelContext(
        replace(model, trainable=False),
        pool,
        profile,
        workload.precision,
        lengths,
        product_precision=memory.product_precision(model, workload),
        stack=stack_of(workload),
    )
    per_rank, num_micro_batches = micro_batches(
        call.num_sequences,
        data_parallel_size=each.data_parallel_size,
        micro_batch_size=micro_batch_size,
    )
    blocks = units(context, each, micro_batch_size)
    stage = worst_stage(context, each, *blocks.forward())
    waits = token_waits(
        context.lengths,
        each,
        filled=context.stack.balances_tokens,
        dealt=dealt,
        sequences_per_rank=per_rank,
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
        in_step=each.sharding == memory.FULLY_SHARDED,
        pipeline_share=1.0,
    )
    hop = stage_hop(context, each, micro_batch_size)
    gather = gathered_weights(context, layouts, stage_parameters(model, layouts)).take(rows)
    sharded = each.sharding == memory.FULLY_SHARDED
    streamed = np.where(sharded, exposed(context, gather.seconds, stage.compute), 0.0)
    work, straggling = num_micro_batches * waits.work, slowest_gpu(each.num_gpus)
    # Rounding leaves a single stage a hair off zero.
    piped = each.pipeline_parallel_size > 1
    idle = stage.pipeline_total - stage.compute - stage.communication
    waiting = np.where(piped, np.maximum(idle, 0.0), 0.0)
    hops = each.pipeline_parallel_size - 1
    away, held = reloaded(model, workload, pool, layouts)
    zero = np.zeros(len(rows))
    seconds = SecondsColumns(
        compute=straggling * work * stage.compute,
        communication=work * (stage.communication + hop.seconds) + num_micro_batches * streamed,
        bubble=straggling * waits.ends * (waiting + hops * hop.seconds),
        optimizer=zero,
        transition=away[rows],
        overhead=context.host_work.scoring.seconds(
            num_layers=model.architecture.num_layers,
            stages=each.pipeline_parallel_size,
            micro_batches=num_micro_batches,
            micro_batch_size=micro_batch_size,
        )
        + agreement_seconds(context, each.num_gpus, times=constants.SCORING_AGREEMENTS),
        between=zero,
    )
    source = np.maximum(blocks.source, hop.source)
    source = np.where(sharded, np.maximum(source, gather.source), source)
    transient = _transient_bytes(model, workload, lengths, layouts, held, rows, micro_batch_size)
    return CallEstimates(seconds, transient, source)


def reloaded(
    model: Model, workload: WorkloadSpec, pool: Pool, layouts: Layouts
) -> tuple[FloatArray, BytesColumns]:
    """(seconds, bytes) that a forward takes for weights that its home keeps on the host."""
    if model.trainable:
        weights = memory.trained_weight_bytes(model, workload, layouts)
    else:
        weights = memory.weight_bytes(model, layouts, precision=workload.precision)
    away = np.where(layouts.offload == memory.OFFLOAD_WEIGHTS, weights, 0)
    return reload_seconds(away, pool), memory.bytes_columns(len(layouts), weights=away)


def _transient_bytes(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    held: BytesColumns,
    rows: IntArray,
    micro_batch_size: IntArray,
) -> BytesColumns:
    """Bytes per GPU that a forward adds: activations of one layer, logits, buffers, and weights.

    The weights are layers that full sharding gathers, and those reloaded from the host.
    """
    gathered, _ = memory.gathered_layer_bytes(model, workload, layouts)
    each = layouts.take(rows)
    activations, logits = forward_activation_bytes(
        model, workload, lengths, each, micro_batch_size=micro_batch_size
    )
    return memory.bytes_columns(
        len(rows),
        weights=(held.weights + gathered + memory.eight_bit_copies(model, workload, layouts))[rows],
        activations=activations,
        logits=logits,
        communication_buffers=memory.communication_buffer_bytes(
            model, workload, lengths, each, micro_batch_size=micro_batch_size
        ),
    )
