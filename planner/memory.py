"""Bytes per GPU: what copies hold through the iteration, and what calls add while they run."""

import numpy as np

from planner import constants
from planner.architecture import ModelArchitecture
from planner.batches import SequenceLengths, peak_tokens
from planner.cluster import Pool
from planner.estimates import BytesColumns
from planner.job import Model
from planner.layout import OFFLOADS, RECOMPUTES, SHARDINGS, FloatArray, IntArray, Layouts
from planner.rows import ceil_div
from planner.shards import (
    StageParameters,
    expert_shards,
    local_key_value_heads,
    padded_vocabulary,
    stage_layers,
    stage_parameters,
)
from planner.spec import WorkloadSpec

OPTIMIZER_SHARDED = SHARDINGS.index("optimizer")
GRADIENT_SHARDED = SHARDINGS.index("gradient")
FULLY_SHARDED = SHARDINGS.index("full")
OFFLOAD_OPTIMIZER = OFFLOADS.index("optimizer")
OFFLOAD_WEIGHTS = OFFLOADS.index("weights")
SELECTIVE = RECOMPUTES.index("selective")
FULL = RECOMPUTES.index("full")


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


def data_shards(layouts: Layouts) -> IntArray:
    """Ranks over which dense weights repeat: data × context parallel."""
    return layouts.data_parallel_size * layouts.context_parallel_size


def expert_data_shards(layouts: Layouts) -> IntArray:
    """Ranks over which one expert's weights repeat: the stage's GPUs over the expert group."""
    shards, _ = expert_shards(
        tensor_parallel_size=layouts.tensor_parallel_size,
        expert_parallel_size=layouts.expert_parallel_size,
    )
    stage_gpus = layouts.tensor_parallel_size * data_shards(layouts)
    return np.asarray(np.maximum(stage_gpus // shards, 1), dtype=np.int64)


def sharded_parameters(
    parameters: StageParameters, layouts: Layouts, *, since: int
) -> tuple[IntArray, IntArray]:
    """(dense, expert) parameters per GPU once `sharding` is at least the code `since`."""
    divide = layouts.sharding >= since
    dense = np.where(divide, ceil_div(parameters.dense, data_shards(layouts)), parameters.dense)
    spread = ceil_div(parameters.expert, expert_data_shards(layouts))
    return dense, np.where(divide, spread, parameters.expert)


def trained_parameters(
    model: Model, parameters: StageParameters, layouts: Layouts, *, since: int
) -> IntArray:
    """Parameters per GPU that gradients (or optimizer) are kept for; adapters alone with LoRA."""
    if model.lora_rank is not None:
        spread = ceil_div(parameters.adapter, data_shards(layouts))
        return np.where(layouts.sharding >= since, spread, parameters.adapter)
    dense, expert = sharded_parameters(parameters, layouts, since=since)
    return dense + expert


def weight_bytes(model: Model, layouts: Layouts, *, precision: str) -> IntArray:
    """Weights per GPU on the fullest stage, adapters included."""
    parameters = stage_parameters(model, layouts)
    dense, expert = sharded_parameters(parameters, layouts, since=FULLY_SHARDED)
    return constants.PRECISION_BYTES[precision] * (dense + expert + parameters.adapter)


def optimizer_bytes(workload: WorkloadSpec) -> int:
    """Bytes per trained parameter of masters and moments."""
    master = 0 if workload.precision == "fp32" else constants.MASTER_BYTES
    return master + constants.MOMENT_BYTES[workload.optimizer]


def training_state(
    model: Model, workload: WorkloadSpec, layouts: Layouts
) -> tuple[IntArray, IntArray, IntArray]:
    """(weights, gradients, optimizer) bytes per GPU of a trained copy, wherever they are kept.

    Sharding none / optimizer / gradient / full is ZeRO stage 0 / 1 / 2 / 3 over data × context
    ranks (Rajbhandari et al., arXiv:1910.02054), with bf16 weights, fp32 gradients, masters and
    moments: 6 + 12/d bytes per parameter with a sharded optimizer (Megatron-LM).
    """
    parameters = stage_parameters(model, layouts)
    weights = weight_bytes(model, layouts, precision=workload.precision)
    gradients = trained_parameters(model, parameters, layouts, since=GRADIENT_SHARDED)
    updated = trained_parameters(model, parameters, layouts, since=OPTIMIZER_SHARDED)
    return weights, constants.GRADIENT_BYTES * gradients, optimizer_bytes(workload) * updated


def home_resident_bytes(
    model: Model, workload: WorkloadSpec, layouts: Layouts
) -> tuple[BytesColumns, IntArray]:
    """What a home holds through the iteration: on the GPU by kind, and on the host, per GPU.

    A copy that does not train holds weights alone. Offload `optimizer` keeps masters and moments
    on the host and frees the gradients, which are zero between calls; `weights` keeps the weights
    there too.
    """
    if not model.trainable:
        weights = weight_bytes(model, layouts, precision=workload.precision)
        gradients = optimizer = np.zeros_like(weights)
    else:
        weights, gradients, optimizer = training_state(model, workload, layouts)
    state_away = layouts.offload >= OFFLOAD_OPTIMIZER
    weights_away = layouts.offload == OFFLOAD_WEIGHTS
    resident = bytes_columns(
        len(layouts),
        weights=np.where(weights_away, 0, weights),
        gradients=np.where(state_away, 0, gradients),
        optimizer=np.where(state_away, 0, optimizer),
    )
    return resident, np.where(state_away, optimizer, 0) + np.where(weights_away, weights, 0)


def shadow_resident_bytes(
    model: Model, workload: WorkloadSpec, layouts: Layouts
) -> tuple[BytesColumns, IntArray]:
    """What a shadow copy for generation holds: weights in the rollout's precision; host bytes.

    A shadow is never offloaded. LoRA adapters travel to it beside the base it keeps.
    """
    precision = workload.rollout_precision or workload.precision
    weights = weight_bytes(model, layouts, precision=precision)
    return bytes_columns(len(layouts), weights=weights), np.zeros_like(weights)


def layer_activation_bytes(
    arch: ModelArchitecture,
    *,
    tensor_parallel_size: IntArray,
    recompute: IntArray,
    moe: bool,
    element_bytes: int = 2,
) -> FloatArray:
    """Bytes per token that one layer keeps for its backward pass, on one GPU.

    Korthikanti et al. 2022 (arXiv:2205.05198), section 4, with sequence parallelism, carried over
    to flash attention (no s² term), grouped heads, gated MLPs, experts, and no dropout: per token
    inputs of both norms 2h, inputs of both projections 2h, queries, keys and values, the
    attention output, the MLP's pre-activation and activation. For GPT that is 32·h bytes (their
    34·h less two dropout masks). `selective` drops norm outputs and activations, `full` keeps
    the layer's input alone.
    """
    tensor = tensor_parallel_size
    key_value = 2 * arch.head_dim * local_key_value_heads(arch, tensor)
    attention = 2 * arch.query_size / tensor + key_value
    copies = arch.num_experts_per_token if moe else 1
    width = arch.moe_intermediate_size if moe else arch.intermediate_size
    hidden_width = copies * width + (arch.shared_expert_intermediate_size if moe else 0)
    before = (2 if arch.gated_mlp else 1) * hidden_width / tensor
    after = hidden_width / tensor
    # Each chosen expert has its own copy of the token at its input and at its output.
    dispatched = 2 * copies * arch.hidden_size / tensor if moe else np.zeros(len(tensor))
    norms = 2 * arch.hidden_size / tensor
    none = 2 * arch.hidden_size / tensor + norms + attention + before + after + dispatched
    kept = np.where(recompute == SELECTIVE, none - norms - after, none)
    return element_bytes * np.where(recompute == FULL, arch.hidden_size / tensor, kept)


def micro_batches_in_flight(layouts: Layouts, num_micro_batches: IntArray) -> FloatArray:
    """Micro-batches whose activations the first stage holds, in units of its whole stage.

    1F1B: min(p, m). Interleaved with v chunks: p·(1 + (p − 1)/(p·v)) (Korthikanti 2022, 4.2.3).
    """
    stages = layouts.pipeline_parallel_size.astype(np.float64)
    chunks = layouts.virtual_pipeline_parallel_size
    interleaved = stages + (stages - 1) / chunks
    depth = np.where(chunks > 1, interleaved, stages)
    return np.minimum(depth, num_micro_batches)


def activation_bytes(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
    num_micro_batches: IntArray,
    recompute: IntArray,
) -> tuple[IntArray, IntArray]:
    """(activations, logits) of training per GPU on whichever end of the pipeline needs more.

    The first stage holds the most micro-batches, the last stage the logits.
    """
    arch, tensor = model.architecture, layouts.tensor_parallel_size
    element = constants.PRECISION_BYTES[workload.precision]
    context = layouts.context_parallel_size
    stages = stage_layers(arch, layouts.pipeline_parallel_size)
    in_flight = micro_batches_in_flight(layouts, num_micro_batches)
    one = ceil_div(peak_tokens(lengths, micro_batch_size), context)
    held = np.ceil(micro_batch_size * np.maximum(in_flight, 1)).astype(np.int64)
    many = ceil_div(peak_tokens(lengths, held), context) * (
        in_flight / np.maximum(held / micro_batch_size, 1)
    )

    def per_token(mode: IntArray, stage: int) -> FloatArray:
        kinds = ((False, stages.dense[stage]), (True, stages.moe[stage]))
        per_layer = [
            layer_activation_bytes(
                arch, tensor_parallel_size=tensor, recompute=mode, moe=moe, element_bytes=element
            )
            * layers
            for moe, layers in kinds
            if not moe or arch.num_experts
        ]
        return sum(per_layer, start=np.zeros(len(layouts)))

    whole = layer_activation_bytes(
        arch,
        tensor_parallel_size=tensor,
        recompute=np.zeros_like(recompute),
        moe=arch.num_experts > 0,
        element_bytes=element,
    )
    # Backward re-creates one layer in full; without recomputation it is already counted.
    working = one * np.where(recompute == 0, 0.0, whole)
    # A middle stage may have a layer more than the first, and holds one micro-batch less.
    fullest = np.maximum(
        per_token(recompute, 0),
        np.where(layouts.pipeline_parallel_size > 2, per_token(recompute, 1), 0.0),
    )
    first = many * fullest + working
    last = one * per_token(recompute, 2) + working
    logits = one * logits_bytes_per_token(model, tensor, constants.TRAIN_LOGITS_BYTES)
    single = layouts.pipeline_parallel_size == 1
    on_last = single | (last + logits > first)
    activations = np.where(single | ~on_last, first, last)
    kept = np.where(on_last, logits, 0.0)
    return np.ceil(activations).astype(np.int64), np.ceil(kept).astype(np.int64)


def logits_bytes_per_token(
    model: Model, tensor_parallel_size: IntArray, bytes_per_logit: int
) -> FloatArray:
    """Bytes of one token's outputs on one GPU: its part of the vocabulary, or one value."""
    if model.scalar_head:
        return np.full(len(tensor_parallel_size), float(bytes_per_logit))
    rows = padded_vocabulary(model.architecture, tensor_parallel_size)
    return np.asarray(rows * bytes_per_logit, dtype=np.float64)


def forward_activation_bytes(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
) -> tuple[IntArray, IntArray]:
    """(activations, logits) of an inference forward per GPU, on the last stage.

    Nothing is kept for a backward pass: one layer's working set at a time.
    """
    arch, tensor = model.architecture, layouts.tensor_parallel_size
    tokens = ceil_div(peak_tokens(lengths, micro_batch_size), layouts.context_parallel_size)
    layer = layer_activation_bytes(
        arch,
        tensor_parallel_size=tensor,
        recompute=np.zeros_like(tensor),
        moe=arch.num_experts > 0,
        element_bytes=constants.PRECISION_BYTES[workload.precision],
    )
    logits = logits_bytes_per_token(model, tensor, constants.FORWARD_LOGITS_BYTES)
    return (
        np.ceil(tokens * layer).astype(np.int64),
        np.ceil(tokens * logits).astype(np.int64),
    )


def gathered_layer_bytes(
    model: Model, workload: WorkloadSpec, layouts: Layouts
) -> tuple[IntArray, IntArray]:
    """(weights, gradients) that sharded training holds unsharded at a time.

    `full` gathers the layer in use and prefetches the next (or the vocabulary table, if larger);
    `gradient` and `full` hold one unreduced layer of gradients.
    """
    parameters = stage_parameters(model, layouts)
    table = padded_vocabulary(model.architecture, layouts.tensor_parallel_size)
    largest = np.maximum(parameters.largest_layer, table * model.architecture.hidden_size)
    element = constants.PRECISION_BYTES[workload.precision]
    several = data_shards(layouts) > 1
    weights = np.where(several & (layouts.sharding == FULLY_SHARDED), 2 * element * largest, 0)
    reduced = several & (layouts.sharding >= GRADIENT_SHARDED) & (model.lora_rank is None)
    return weights, np.where(reduced, constants.GRADIENT_BYTES * largest, 0)


def communication_buffer_bytes(
    model: Model,
    workload: WorkloadSpec,
    lengths: SequenceLengths,
    layouts: Layouts,
    *,
    micro_batch_size: IntArray,
) -> IntArray:
    """NCCL's buffers, the gathered sequence of a tensor group, sends between stages."""
    tokens = ceil_div(peak_tokens(lengths, micro_batch_size), layouts.context_parallel_size)
    element = constants.PRECISION_BYTES[workload.precision]
    whole = tokens * model.architecture.hidden_size * element
    gathered = np.where(layouts.tensor_parallel_size > 1, whole, 0)
    sends = np.where(
        layouts.pipeline_parallel_size > 1, 4 * whole // layouts.tensor_parallel_size, 0
    )
    channels = np.where(layouts.num_gpus > 1, constants.COMMUNICATION_BUFFER_BYTES, 0)
    return channels + gathered + sends
