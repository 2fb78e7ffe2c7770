"""Seconds of an optimizer step beside the passes: gradients reduced, weights gathered, updated."""

from dataclasses import dataclass

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants, memory
from automap.planner.cost.communication import Collective
from automap.planner.cost.layer.transformer_layer import KernelContext, add, collective, scaled
from automap.planner.cost.operators.profile import Timed
from automap.planner.cost.shards import StageParameters, expert_shards
from automap.planner.cost.stacks import stack_of
from automap.planner.layout import FloatArray, IntArray, Layouts
from automap.planner.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of each part of an optimizer step by itself, with nothing to hide behind [row]."""

    gather: Timed
    scatter: Timed
    reduce: Timed
    optimizer: Timed

    def take(self, rows: IntArray) -> "Step":
        """The given rows."""
        parts = (self.gather, self.scatter, self.reduce, self.optimizer)
        return Step(*(part.take(rows) for part in parts))


def exposed(context: KernelContext, seconds: FloatArray, behind: FloatArray) -> FloatArray:
    """Seconds that a collective adds to the compute behind which it hides.

    Its first or last part never hides, and while both run, compute is slower. On a device that
    does one thing after the other nothing hides.
    """
    if context.in_turn:
        return seconds
    share = constants.DATA_OVERLAP_SHARE
    open_part = np.maximum(seconds - share * behind, (1.0 - share) * seconds)
    return open_part + constants.OVERLAP_SLOWDOWN * np.minimum(seconds, behind)


def whole_step(
    context: KernelContext, workload: WorkloadSpec, layouts: Layouts, parameters: StageParameters
) -> Step:
    """Price the parts of an optimizer step.

    They are the all-gather of weights, reduce-scatter and all-reduce of gradients, and the update.
    """
    adapters = context.model.trainable and context.model.lora_rank is not None
    trained = parameters.adapter if adapters else parameters.dense
    experts = None if adapters else parameters.expert
    gradient = context.stack.memory.gradient_bytes
    return Step(
        gather=gathered_weights(context, layouts, parameters),
        scatter=_over_repeated(context, layouts, "reduce_scatter", trained, experts, gradient),
        reduce=_over_repeated(context, layouts, "all_reduce", trained, experts, gradient),
        optimizer=optimizer_seconds(context, workload, layouts, parameters),
    )


def gathered_weights(
    context: KernelContext, layouts: Layouts, parameters: StageParameters
) -> Timed:
    """Seconds to all-gather the weights that products need, over the ranks that share them."""
    dense, experts = parameters.dense, parameters.expert
    size = context.product_bytes
    return _over_repeated(context, layouts, "all_gather", dense, experts, size)


def _over_repeated(
    context: KernelContext,
    layouts: Layouts,
    name: Collective,
    dense: IntArray,
    experts: IntArray | None,
    size: int,
) -> Timed:
    """Seconds of a collective of parameters of `size` bytes over the ranks on which they repeat.

    Dense weights repeat over data × context ranks, experts over what the expert group leaves.
    """
    tensor, architecture = layouts.tensor_parallel_size, context.model.architecture
    messages = architecture.num_layers + 1 if _by_layer(context) else 1
    each = dense * size / messages
    group = memory.data_shards(layouts)
    found = collective(context, name, each, group_size=group, stride=tensor)
    found = scaled(found, messages)
    if experts is None or not architecture.num_moe_layers:
        return found
    shards, _ = expert_shards(
        tensor_parallel_size=tensor, expert_parallel_size=layouts.expert_parallel_size
    )
    group = memory.expert_data_shards(layouts)
    other = collective(context, name, experts * size, group_size=group, stride=shards)
    return add(found, other)


def _by_layer(context: KernelContext) -> bool:
    """Whether it shows that FSDP moves each layer by itself, gradients in every micro-batch."""
    return context.in_turn and context.stack.host_work == "fsdp"


def data_parallel_seconds(
    context: KernelContext,
    step: Step,
    sharding: IntArray,
    num_micro_batches: IntArray,
    *,
    forward: FloatArray,
    backward: FloatArray,
) -> Timed:
    """Exposed seconds of gradient reduction and weight gathering in one optimizer step.

    none: all-reduce behind the last backward. optimizer: reduce-scatter there, all-gather behind
    the first forward. gradient: reduce-scatter in every micro-batch. full: gathers before both
    passes of every micro-batch as well. They hide behind the compute of a micro-batch.
    """
    gather, scatter, reduce = step.gather, step.scatter, step.reduce

    def behind(seconds: FloatArray, passes: FloatArray) -> FloatArray:
        return exposed(context, seconds, passes) if context.stack.overlaps_data else seconds

    updated = behind(gather.seconds, forward)
    reductions = num_micro_batches if _by_layer(context) else 1
    by_code = np.stack(
        [
            behind(reduce.seconds, backward),
            reductions * behind(scatter.seconds, backward) + updated,
            num_micro_batches * behind(scatter.seconds, backward) + updated,
            num_micro_batches * (behind(scatter.seconds + gather.seconds, backward) + updated),
        ]
    )
    rows = np.arange(len(sharding))
    source = np.where(sharding == 0, reduce.source, add(gather, scatter).source)
    return Timed(by_code[sharding, rows], source)


def optimizer_seconds(
    context: KernelContext, workload: WorkloadSpec, layouts: Layouts, parameters: StageParameters
) -> Timed:
    """Seconds of the memory traffic of one step over a GPU's shard, on it or on its host."""
    updated = memory.trained_parameters(
        context.model, parameters, layouts, since=memory.OPTIMIZER_SHARDED
    )
    if workload.optimizer_cpu_offload:
        on_gpu = context.profile.memory_bound(
            3 * stack_of(workload).memory.gradient_bytes * updated
        )
        return Timed(
            on_gpu.seconds + host_update_seconds(context.pool, workload, updated), on_gpu.source
        )
    return context.profile.memory_bound(optimizer_traffic_bytes(workload) * updated)


def host_update_seconds(pool: Pool, workload: WorkloadSpec, updated: IntArray) -> FloatArray:
    """Seconds in which the host updates so many of a GPU's parameters [layout].

    Megatron-core's HybridDeviceOptimizer copies gradients to pinned memory, updates there with
    torch's fused AdamW, casts the masters, and copies the weights back. Its copies may go beside
    the update (overlap_cpu_optimizer_d2h_h2d), which is not counted on.
    """
    kept, weight = stack_of(workload).memory, constants.PRECISION_BYTES[workload.precision]
    moments = constants.NUM_MOMENTS[workload.optimizer] * kept.moment_bytes
    copied = kept.gradient_bytes + weight
    masters = constants.MASTER_BYTES
    moved = kept.gradient_bytes + 2 * masters + 2 * moments + masters + weight
    link = pool.host_link_bytes_per_second * constants.HOST_LINK_EFFICIENCY
    each = copied / link + moved / constants.HOST_UPDATE_BYTES_PER_SECOND
    return np.asarray(updated * each, dtype=np.float64)


def optimizer_traffic_bytes(workload: WorkloadSpec) -> int:
    """Bytes that one step moves per parameter it updates, of what the stack keeps.

    Norm and clipping read the gradient twice and write it once. The update reads gradient, masters
    and moments, writes masters and moments, and the weight from the master; without masters it
    reads the weight itself. Copies made at the step are written and read.
    """
    kept = stack_of(workload).memory
    weight = constants.PRECISION_BYTES[workload.precision]
    masters = memory.master_bytes(workload)
    moments = constants.NUM_MOMENTS[workload.optimizer] * kept.moment_bytes
    gradient = kept.accumulation_bytes or kept.gradient_bytes
    clipped = 3 * gradient
    updated = gradient + 2 * (masters or weight) + 2 * moments
    return clipped + updated + (weight if masters else 0) + 2 * kept.step_bytes
