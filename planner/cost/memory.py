"""Bytes per GPU: what copies hold through the iteration, and what calls add while they run."""

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS, KEPT_BYTES
from automap.planner.cost import constants
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.estimates import BytesColumns
from automap.planner.cost.intervals import largest_estimate
from automap.planner.cost.peaks import peak_tokens
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import (
    StageParameters,
    block_values_by_stage,
    expert_shards,
    padded_vocabulary,
    parameters_by_stage,
    stage_parameters,
)
from automap.planner.cost.stacks import stack_of
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import (
    OFFLOADS,
    SHARDINGS,
    BoolArray,
    FloatArray,
    IntArray,
    Layouts,
)
from automap.planner.spec import WorkloadSpec

OPTIMIZER_SHARDED = SHARDINGS.index("optimizer")
GRADIENT_SHARDED = SHARDINGS.index("gradient")
FULLY_SHARDED = SHARDINGS.index("full")
NEVER_SHARDED = len(SHARDINGS)
OFFLOAD_OPTIMIZER = OFFLOADS.index("optimizer")
OFFLOAD_WEIGHTS = OFFLOADS.index("weights")
NO_MARGIN = 0.5
"""Chance with which a peak exceeds its estimate; where it may be so large, nothing stays free."""


def bytes_columns(num_rows: int, **kinds: IntArray | FloatArray) -> BytesColumns:
    """Columns with the given kinds, rounded up; every other kind is zero."""
    zero = np.zeros(num_rows, dtype=np.int64)
    names = BytesColumns.__dataclass_fields__
    return BytesColumns(
        **{name: np.ceil(kinds[name]).astype(np.int64) if name in kinds else zero for name in names}
    )


def usable_bytes(pool: Pool) -> int:
    """Device memory that a plan may fill: all but the CUDA context and fragmentation."""
    usable = pool.gpu.memory_bytes * (1.0 - constants.FRAGMENTATION_SHARE)
    return max(int(usable) - constants.CONTEXT_BYTES, 0)


def fillable_bytes(pool: Pool, *, max_out_of_memory_probability: float) -> int:
    """Device memory that a searched plan may fill by estimate: the usable, less a margin.

    A peak of so many bytes exceeds what is usable with no more than the given chance, by the law
    of its interval.
    """
    usable = usable_bytes(pool)
    if max_out_of_memory_probability >= NO_MARGIN:
        return usable
    probability = max_out_of_memory_probability
    return int(largest_estimate(usable, "memory", probability=probability))


def usable_host_bytes(pool: Pool) -> int:
    """Host memory per GPU that a plan may fill."""
    return int(constants.HOST_SHARE * pool.host_memory_bytes / pool.gpus_per_node)


def data_shards(layouts: Layouts) -> IntArray:
    """Number of ranks [layout] over which dense weights repeat: data × context parallel size."""
    return layouts.data_parallel_size * layouts.context_parallel_size


def expert_data_shards(layouts: Layouts) -> IntArray:
    """Number of ranks [layout] over which an expert's weights repeat.

    These are the GPUs of a pipeline stage divided by those over which its experts are split.
    """
    shards, _ = expert_shards(
        tensor_parallel_size=layouts.tensor_parallel_size,
        expert_parallel_size=layouts.expert_parallel_size,
    )
    stage_gpus = layouts.tensor_parallel_size * data_shards(layouts)
    return np.asarray(np.maximum(stage_gpus // shards, 1), dtype=np.int64)


def sharded_parameters(
    parameters: StageParameters, layouts: Layouts, *, since: int
) -> tuple[IntArray, IntArray]:
    """(dense, expert) parameters per GPU [layout], sharded where `sharding` is at least `since`.

    `since` is a code, an index into layout.SHARDINGS.
    """
    divide = layouts.sharding >= since
    dense = np.where(divide, ceil_div(parameters.dense, data_shards(layouts)), parameters.dense)
    spread = ceil_div(parameters.expert, expert_data_shards(layouts))
    return dense, np.where(divide, spread, parameters.expert)


def trained_parameters(
    model: Model, parameters: StageParameters, layouts: Layouts, *, since: int
) -> IntArray:
    """Parameters per GPU [layout] that have a gradient (or optimizer state) there.

    With LoRA these are the adapters alone. `since` is the sharding code from which on this kind of
    state is sharded.
    """
    if model.lora_rank is not None:
        spread = ceil_div(parameters.adapter, data_shards(layouts))
        return np.where(layouts.sharding >= since, spread, parameters.adapter)
    dense, expert = sharded_parameters(parameters, layouts, since=since)
    return dense + expert


def weight_bytes(model: Model, layouts: Layouts, *, precision: str) -> IntArray:
    """Bytes of weights per GPU [layout] on the fullest stage, adapters included."""
    if precision in BLOCK_FORMATS:
        return _block_weight_bytes(model, layouts, precision=precision)
    parameters = stage_parameters(model, layouts)
    dense, expert = sharded_parameters(parameters, layouts, since=FULLY_SHARDED)
    return constants.PRECISION_BYTES[precision] * (dense + expert + parameters.adapter)


def _block_weight_bytes(model: Model, layouts: Layouts, *, precision: str) -> IntArray:
    """Bytes per GPU [layout] of 4-bit weights, and of those beside them that keep 16 bits.

    The stage that holds most is not always the one with most parameters: an embedding or a head
    takes as many bytes as the layers of several billion weights.
    """
    sharded = layouts.sharding >= FULLY_SHARDED
    shards = data_shards(layouts), expert_data_shards(layouts)
    counts = parameters_by_stage(model, layouts)
    low_counts = block_values_by_stage(model.architecture, layouts, precision=precision)
    exists, total = counts[0] >= 0, np.zeros((3, len(layouts)), dtype=np.int64)
    for count, low, ranks in zip(counts, low_counts, shards, strict=True):
        spread = np.where(sharded, ranks, 1)
        kept = ceil_div(count - low, spread)
        total += BLOCK_FORMATS[precision].bytes_of(ceil_div(low, spread)) + KEPT_BYTES * kept
    fullest = np.where(exists, total, 0).max(axis=0)
    return np.asarray(fullest + KEPT_BYTES * stage_parameters(model, layouts).adapter)


def master_bytes(workload: WorkloadSpec) -> int:
    """Bytes per trained parameter of the optimizer's fp32 copy; 0 where weights are in fp32."""
    kept = stack_of(workload).memory
    return 0 if workload.precision == "fp32" else kept.master_bytes


def optimizer_bytes(workload: WorkloadSpec) -> int:
    """Bytes per trained parameter of optimizer state: the fp32 copy and the moments."""
    kept = stack_of(workload).memory
    return master_bytes(workload) + constants.NUM_MOMENTS[workload.optimizer] * kept.moment_bytes


def trained_weight_bytes(model: Model, workload: WorkloadSpec, layouts: Layouts) -> IntArray:
    """Bytes of weights per GPU [layout] of a copy that trains, without masters beside them.

    Fully sharded weights may be the masters themselves. In 8 bits are the weights of the layers;
    the embedding and the head keep their precision. Weights beside adapters are frozen.
    """
    held = weight_bytes(model, layouts, precision=workload.precision)
    if model.lora_rank is not None:
        return held
    kept = stack_of(workload).memory
    if kept.eight_bit_weights:
        parameters = stage_parameters(model, layouts)
        dense, expert = sharded_parameters(parameters, layouts, since=FULLY_SHARDED)
        sharded = layouts.sharding >= FULLY_SHARDED
        tables = parameters.tables // np.where(sharded, data_shards(layouts), 1)
        wide = constants.PRECISION_BYTES[workload.precision] - 1
        return np.asarray(dense + expert + wide * tables, dtype=np.int64)
    if _masters_are_weights(workload):
        masters = master_bytes(workload) * held // constants.PRECISION_BYTES[workload.precision]
        return np.where(layouts.sharding >= FULLY_SHARDED, masters, held)
    return held


def _masters_are_weights(workload: WorkloadSpec) -> bool:
    return stack_of(workload).memory.masters_are_weights and master_bytes(workload) > 0


def training_state(
    model: Model, workload: WorkloadSpec, layouts: Layouts
) -> tuple[IntArray, IntArray, IntArray]:
    """(weights, gradients, optimizer) bytes per GPU of a trained copy, wherever they are kept.

    Sharding none / optimizer / gradient / full is ZeRO stage 0 / 1 / 2 / 3 over data × context
    ranks (Rajbhandari et al., arXiv:1910.02054). Megatron-core has bf16 weights, fp32 gradients,
    masters and moments: 6 + 12/d bytes per parameter with a sharded optimizer. FSDP has 16/d, its
    masters being its weights. Gradients include the buffer in which they are summed.
    """
    parameters = stage_parameters(model, layouts)
    weights = trained_weight_bytes(model, workload, layouts)
    gradients = trained_parameters(model, parameters, layouts, since=GRADIENT_SHARDED)
    updated = trained_parameters(model, parameters, layouts, since=OPTIMIZER_SHARDED)
    kept = stack_of(workload).memory
    state = optimizer_bytes(workload) * updated
    if model.lora_rank is None and _masters_are_weights(workload):
        state -= np.where(layouts.sharding >= FULLY_SHARDED, master_bytes(workload) * updated, 0)
    return weights, (kept.gradient_bytes + kept.accumulation_bytes) * gradients, state


def step_bytes(model: Model, workload: WorkloadSpec, layouts: Layouts) -> IntArray:
    """Bytes per GPU [layout] that the optimizer's step adds: copies of gradients, and the bucket.

    Which copies a framework makes, and the buffer it reduces gradients through, are constants of
    its `StackMemory`.
    """
    kept = stack_of(workload).memory
    if not kept.step_bytes and not kept.bucket_bytes:
        return np.zeros(len(layouts), dtype=np.int64)
    parameters = stage_parameters(model, layouts)
    updated = trained_parameters(model, parameters, layouts, since=OPTIMIZER_SHARDED)
    trained = trained_parameters(model, parameters, layouts, since=NEVER_SHARDED)
    bucket = np.minimum(kept.bucket_bytes, kept.gradient_bytes * trained)
    added: IntArray = kept.step_bytes * updated + np.where(data_shards(layouts) > 1, bucket, 0)
    return added


def eight_bit_copies(model: Model, workload: WorkloadSpec, layouts: Layouts) -> IntArray:
    """Bytes per GPU [layout] of 8-bit copies of the weights while a trained model computes.

    Only the layers' products are in 8 bits. Under full sharding there is the copy of the layer in
    use, made from what was gathered for it.
    """
    kept = stack_of(workload).memory
    if product_precision(model, workload) != "fp8" or not kept.eight_bit_copy_bytes:
        return np.zeros(len(layouts), dtype=np.int64)
    parameters = stage_parameters(model, layouts)
    layers = parameters.dense + parameters.expert - parameters.tables
    in_use = np.where(layouts.sharding >= FULLY_SHARDED, parameters.largest_layer, layers)
    copied: IntArray = kept.eight_bit_copy_bytes * in_use
    return copied


def product_precision(model: Model, workload: WorkloadSpec) -> str:
    """Precision of the layers' matrix products in training and scoring.

    A frozen model computes in the precision of its weights.
    """
    return (model.trainable and workload.training_precision) or workload.precision


def call_precision(model: Model, call: Call, workload: WorkloadSpec) -> str:
    """Precision of the layers' matrix products in a call; of the weights, in generation."""
    if call.kind == "generate":
        return workload.rollout_precision or workload.precision
    return product_precision(model, workload)


def home_resident_bytes(
    model: Model, workload: WorkloadSpec, layouts: Layouts
) -> tuple[BytesColumns, IntArray]:
    """(bytes on the GPU by kind, bytes on the host), per GPU, of a home through the iteration.

    A copy that does not train holds weights alone. Offload `optimizer` keeps masters and moments
    on the host and frees the gradients, which are zero between calls; `weights` keeps the weights
    there too. An optimizer that updates on the host is never on the GPU.
    """
    if not model.trainable:
        weights = weight_bytes(model, layouts, precision=workload.precision)
        gradients = optimizer = np.zeros_like(weights)
    else:
        weights, gradients, optimizer = training_state(model, workload, layouts)
    state_away = layouts.offload >= OFFLOAD_OPTIMIZER
    optimizer_away = state_away | workload.optimizer_cpu_offload
    weights_away = layouts.offload == OFFLOAD_WEIGHTS
    resident = bytes_columns(
        len(layouts),
        weights=np.where(weights_away, 0, weights),
        gradients=np.where(state_away, 0, gradients),
        optimizer=np.where(optimizer_away, 0, optimizer),
    )
    host = np.where(optimizer_away, optimizer, 0) + np.where(weights_away, weights, 0)
    if model.trainable and workload.optimizer_cpu_offload:
        host = host + _host_gradient_bytes(model, workload, layouts)
    return resident, host


def _host_gradient_bytes(model: Model, workload: WorkloadSpec, layouts: Layouts) -> IntArray:
    """Bytes per GPU [layout] of pinned memory that gradients are copied to for their update."""
    parameters = stage_parameters(model, layouts)
    updated = trained_parameters(model, parameters, layouts, since=OPTIMIZER_SHARDED)
    gradients: IntArray = stack_of(workload).memory.gradient_bytes * updated
    return gradients


def shadow_resident_bytes(model: Model, workload: WorkloadSpec, layouts: Layouts) -> BytesColumns:
    """Bytes per GPU of a shadow copy for generation: weights in the rollout's precision.

    A shadow is never offloaded. LoRA adapters travel to it beside the base it keeps.
    """
    precision = workload.rollout_precision or workload.precision
    weights = weight_bytes(model, layouts, precision=precision)
    return bytes_columns(len(layouts), weights=weights)


def gathered_layer_bytes(
    model: Model, workload: WorkloadSpec, layouts: Layouts
) -> tuple[IntArray, IntArray]:
    """(weights, gradients) in bytes per GPU [layout] that training holds unsharded at a time.

    `full` gathers the layer in use and prefetches the next (or the vocabulary table, if larger);
    `gradient` and `full` hold one unreduced layer of gradients. Otherwise the embedding's new
    gradient, the largest, is there whole before it is added to the others.
    """
    parameters = stage_parameters(model, layouts)
    rows = padded_vocabulary(model.architecture, layouts.tensor_parallel_size)
    table = rows * model.architecture.hidden_size
    largest = np.maximum(parameters.largest_layer, table)
    element = constants.PRECISION_BYTES[workload.precision]
    several = data_shards(layouts) > 1
    two = 2 * element * largest
    if model.trainable and stack_of(workload).memory.eight_bit_weights:
        two = np.maximum(2 * parameters.largest_layer, 2 * element * table)
    weights = np.where(several & (layouts.sharding == FULLY_SHARDED), two, 0)
    if model.lora_rank is not None:
        return weights, np.zeros_like(weights)
    kept, reduced = stack_of(workload).memory, gradients_are_reduced(layouts)
    return weights, np.where(reduced, kept.gradient_bytes * largest, element * table)


def gradients_are_reduced(layouts: Layouts) -> BoolArray:
    """Where gradients [layout] are reduced layer by layer, each to the shard that a rank keeps."""
    return (data_shards(layouts) > 1) & (layouts.sharding >= GRADIENT_SHARDED)


def communication_buffer_bytes(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
) -> IntArray:
    """Bytes per GPU [candidate] of buffers for communication.

    NCCL's own, the gathered sequence of a tensor group, and what stages send each other.
    """
    peak = peak_tokens(workload, lengths, micro_batch_size)
    tokens = ceil_div(peak, layouts.context_parallel_size)
    element = constants.PRECISION_BYTES[workload.precision]
    whole = tokens * model.architecture.hidden_size * element
    gathered = np.where(layouts.tensor_parallel_size > 1, whole, 0)
    sends = np.where(
        layouts.pipeline_parallel_size > 1, 4 * whole // layouts.tensor_parallel_size, 0
    )
    total: IntArray = nccl_bytes(layouts) + gathered + sends
    return total


def nccl_bytes(layouts: Layouts) -> IntArray:
    """Bytes per GPU [layout] of NCCL's own buffers.

    There is one communicator for every kind of group that spans several GPUs.
    """
    spanning = np.zeros(len(layouts), dtype=np.int64)
    for size in (
        layouts.tensor_parallel_size,
        layouts.context_parallel_size,
        data_shards(layouts),
        layouts.pipeline_parallel_size,
        layouts.expert_parallel_size,
    ):
        spanning += size > 1
    return spanning * constants.COMMUNICATION_BUFFER_BYTES
