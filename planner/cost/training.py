"""Seconds and transient bytes of a train call: forward, backward and optimizer of one iteration."""

from dataclasses import dataclass

import numpy as np

from planner.cluster import Pool
from planner.cost import constants, memory
from planner.cost.activations import FULL, SELECTIVE, activation_bytes
from planner.cost.batches import (
    micro_batch_tokens,
    micro_batches,
    sequence_lengths,
)
from planner.cost.communication import Collective, point_to_point_seconds
from planner.cost.estimates import BytesColumns, CallEstimates, SecondsColumns
from planner.cost.layer import Adapters, Setting, UnitSeconds, add, collective
from planner.cost.pipeline import StageSeconds, Units, units, worst_stage
from planner.cost.profile import Profile, Timed
from planner.cost.rows import ceil_div
from planner.cost.shards import StageParameters, expert_shards, stage_parameters
from planner.cost.stacks import STACKS
from planner.cost.transition import reload_seconds
from planner.dataflow import Call
from planner.job import Model
from planner.layout import FloatArray, IntArray, Layouts
from planner.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward and backward (recomputation included) of one micro-batch."""

    forward: StageSeconds
    backward: StageSeconds

    @property
    def compute(self) -> FloatArray:
        """Of both passes on the slowest stage."""
        return self.forward.compute + self.backward.compute

    @property
    def communication(self) -> FloatArray:
        """Of both passes on the slowest stage."""
        return self.forward.communication + self.backward.communication

    @property
    def elsewhere(self) -> FloatArray:
        """What both passes take on all other stages; rounding leaves a single one a hair off 0."""
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
    product_precision: str | None = None,
    adapters: Adapters = "all",
    drops_tokens: bool = False,
) -> CallEstimates:
    """Price the whole train call of one iteration, one row per candidate.

    Per optimizer step a data rank works through m micro-batches in a 1F1B pipeline: (m·slowest
    stage) + (all stages − slowest)/v; then reduces gradients and updates. Sequences are dealt
    evenly, rounded up; the slowest rank's surplus tokens follow from the length distribution.
    `product_precision`: of the layers' matrix products where a low-precision recipe changes it.
    `adapters`: which linear layers have one, where the model trains adapters. `drops_tokens`:
    experts take a fixed number of tokens.
    Source: Narayanan et al. 2021 (arXiv:2104.04473) for the bubble; docs/cost-model.md.
    """
    lengths = sequence_lengths(workload)
    setting = Setting(
        model,
        pool,
        profile,
        workload.precision,
        lengths,
        product_precision=product_precision,
        stack=STACKS[workload.training_stack],
        adapters=adapters,
        drops_tokens=drops_tokens,
    )
    updates = max(call.num_updates, 1)
    sequences = -(-(call.epochs * call.num_sequences + call.extra_forward_sequences) // updates)
    per_rank, num_micro_batches = micro_batches(
        sequences,
        data_parallel_size=layouts.data_parallel_size,
        micro_batch_size=micro_batch_size,
    )
    blocks = units(setting, layouts, micro_batch_size)
    passes = _passes(setting, layouts, blocks, recompute)
    slowest = setting.rank_imbalance(per_rank, layouts.data_parallel_size)
    hop = stage_hop(setting, layouts, micro_batch_size)
    work = updates * num_micro_batches * slowest
    chunks = layouts.virtual_pipeline_parallel_size
    parameters = stage_parameters(model, layouts)
    reduction = _data_parallel_seconds(setting, layouts, parameters, passes, num_micro_batches)
    optimizer = _optimizer_seconds(setting, workload, layouts, parameters)
    hops = layouts.pipeline_parallel_size - 1
    waiting = np.where(hops > 0, passes.elsewhere, 0.0) + 2.0 * hop.seconds * hops
    moved = passes.communication + _hops_in_steady_state(setting, layouts, hop, passes)
    seconds = SecondsColumns(
        compute=work * passes.compute,
        communication=work * moved + updates * reduction.seconds,
        bubble=updates * slowest * waiting / chunks,
        optimizer=updates * optimizer.seconds,
        transition=_offload_seconds(model, workload, pool, layouts),
        overhead=updates
        * setting.host_work.step.seconds(
            num_layers=model.architecture.num_layers,
            stages=layouts.pipeline_parallel_size,
            micro_batches=num_micro_batches,
            micro_batch_size=micro_batch_size,
        ),
    )
    source = np.maximum.reduce([blocks.source, hop.source, reduction.source, optimizer.source])
    transient = _transient_bytes(
        setting,
        workload,
        layouts,
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
        recompute=recompute,
    )
    return CallEstimates(seconds, transient, source)


def stage_hop(setting: Setting, layouts: Layouts, micro_batch_size: IntArray) -> Timed:
    """Activations of one micro-batch to the next stage; every GPU sends its 1/t of the tokens."""
    tokens = ceil_div(
        micro_batch_tokens(setting.lengths, micro_batch_size), layouts.context_parallel_size
    )
    arch = setting.model.architecture
    size = tokens * arch.hidden_size * setting.element_bytes / layouts.tensor_parallel_size
    crosses = layouts.num_gpus > setting.pool.nvlink_domain_gpus
    seconds, source = point_to_point_seconds(
        setting.pool, setting.profile, size, crosses_node=crosses
    )
    piped = layouts.pipeline_parallel_size > 1
    seconds = seconds * setting.stack.collective_slowdown
    return Timed(np.where(piped, seconds, 0.0), np.where(piped, source, 0))


def _hops_in_steady_state(
    setting: Setting, layouts: Layouts, hop: Timed, passes: Passes
) -> FloatArray:
    """What the messages between stages add to a micro-batch while the pipeline is full.

    1F1B waits for each of its two. Interleaved stages have another chunk to work on meanwhile,
    where the software overlaps them.
    """
    chunks = layouts.virtual_pipeline_parallel_size
    sent = 2.0 * chunks * hop.seconds
    if not setting.stack.overlaps_stages:
        return sent
    return np.where(chunks > 1, exposed(sent, passes.compute), sent)


def _passes(setting: Setting, layouts: Layouts, blocks: Units, recompute: IntArray) -> Passes:
    """Forward and backward of one micro-batch per stage; recomputation repeats forward work."""
    selective = recompute == SELECTIVE
    full = recompute == FULL

    def back(unit: UnitSeconds) -> tuple[FloatArray, FloatArray]:
        again = np.where(full, unit.forward, np.where(selective, unit.selective, 0.0))
        moved_again = np.where(full, unit.forward_communication, 0.0)
        return unit.backward + again, unit.backward_communication + moved_again

    dense, moe = back(blocks.dense), back(blocks.moe) if blocks.moe else (None, None)
    embedding, head = blocks.embedding, blocks.head
    forward = worst_stage(setting, layouts, *blocks.forward())
    backward = worst_stage(
        setting,
        layouts,
        (dense[0], moe[0], embedding.backward, head.backward),
        (dense[1], moe[1], embedding.backward_communication, head.backward_communication),
    )
    return Passes(forward, backward)


def exposed(seconds: FloatArray, behind: FloatArray) -> FloatArray:
    """What a collective adds to the compute behind which it hides.

    Its first or last part never hides, and while both run, compute is slower.
    """
    share = constants.DATA_OVERLAP_SHARE
    open_part = np.maximum(seconds - share * behind, (1.0 - share) * seconds)
    return open_part + constants.OVERLAP_SLOWDOWN * np.minimum(seconds, behind)


def gathered_weights(
    setting: Setting, layouts: Layouts, parameters: StageParameters, *, bytes_each: int
) -> tuple[Timed, Timed, Timed]:
    """(all-gather of weights, reduce-scatter and all-reduce of gradients) over repeated ranks.

    Dense weights repeat over data × context ranks, experts over what the expert group leaves.
    """
    model = setting.model
    tensor = layouts.tensor_parallel_size
    shards, _ = expert_shards(
        tensor_parallel_size=tensor, expert_parallel_size=layouts.expert_parallel_size
    )
    group, expert_group = memory.data_shards(layouts), memory.expert_data_shards(layouts)
    has_experts = model.architecture.num_moe_layers > 0
    adapters = model.trainable and model.lora_rank is not None
    trained = parameters.adapter if adapters else parameters.dense

    def over(name: Collective, dense: IntArray, size: int, *, experts: bool) -> Timed:
        found = collective(setting, name, dense * size, group_size=group, stride=tensor)
        if not (experts and has_experts):
            return found
        other = parameters.expert * size
        return add(found, collective(setting, name, other, group_size=expert_group, stride=shards))

    gradient = constants.GRADIENT_BYTES
    return (
        over("all_gather", parameters.dense, bytes_each, experts=True),
        over("reduce_scatter", trained, gradient, experts=not adapters),
        over("all_reduce", trained, gradient, experts=not adapters),
    )


def _data_parallel_seconds(
    setting: Setting,
    layouts: Layouts,
    parameters: StageParameters,
    passes: Passes,
    num_micro_batches: IntArray,
) -> Timed:
    """Exposed seconds of gradient reduction and weight gathering in one optimizer step.

    none: all-reduce behind the last backward. optimizer: reduce-scatter there, all-gather behind
    the first forward. gradient: reduce-scatter in every micro-batch. full: gathers before both
    passes of every micro-batch as well.
    """
    gather, scatter, reduce = gathered_weights(
        setting, layouts, parameters, bytes_each=setting.product_bytes
    )
    forward, backward = passes.forward.compute, passes.backward.compute
    updated = exposed(gather.seconds, forward)
    by_code = np.stack(
        [
            exposed(reduce.seconds, backward),
            exposed(scatter.seconds, backward) + updated,
            num_micro_batches * exposed(scatter.seconds, backward) + updated,
            num_micro_batches * (exposed(scatter.seconds + gather.seconds, backward) + updated),
        ]
    )
    rows = np.arange(len(layouts))
    source = np.where(layouts.sharding == 0, reduce.source, add(gather, scatter).source)
    return Timed(by_code[layouts.sharding, rows], source)


def _optimizer_seconds(
    setting: Setting, workload: WorkloadSpec, layouts: Layouts, parameters: StageParameters
) -> Timed:
    """Memory traffic of one optimizer step over this GPU's shard."""
    updated = memory.trained_parameters(
        setting.model, parameters, layouts, since=memory.OPTIMIZER_SHARDED
    )
    traffic = constants.OPTIMIZER_TRAFFIC_BYTES[workload.optimizer]
    return setting.profile.memory_bound(traffic * updated)


def _offload_seconds(
    model: Model, workload: WorkloadSpec, pool: Pool, layouts: Layouts
) -> FloatArray:
    """Reload before and store after the call of what the home keeps on the host."""
    _, host_bytes = memory.home_resident_bytes(model, workload, layouts)
    return 2.0 * reload_seconds(host_bytes, pool)


def _transient_bytes(
    setting: Setting,
    workload: WorkloadSpec,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
    num_micro_batches: IntArray,
    recompute: IntArray,
) -> BytesColumns:
    """Activations, logits, buffers, layers gathered under `full`, and the reloaded state."""
    model, lengths = setting.model, setting.lengths
    activations, logits = activation_bytes(
        model,
        workload,
        lengths,
        layouts,
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
        recompute=recompute,
    )
    weights, gradients, optimizer = memory.training_state(model, workload, layouts)
    state_away = layouts.offload >= memory.OFFLOAD_OPTIMIZER
    gathered, gathered_gradients = memory.gathered_layer_bytes(model, workload, layouts)
    return memory.bytes_columns(
        len(layouts),
        weights=np.where(layouts.offload == memory.OFFLOAD_WEIGHTS, weights, 0) + gathered,
        gradients=np.where(state_away, gradients, 0)
        + gathered_gradients
        + memory.step_bytes(model, workload, layouts),
        optimizer=np.where(state_away, optimizer, 0),
        activations=activations,
        logits=logits,
        communication_buffers=memory.communication_buffer_bytes(
            model, workload, lengths, layouts, micro_batch_size=micro_batch_size
        ),
    )
