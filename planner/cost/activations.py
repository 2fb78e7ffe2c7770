"""Activations and logits: the bytes that forward passes keep, per GPU."""

import numpy as np

from planner.architecture import ModelArchitecture
from planner.cost import constants
from planner.cost.batches import SequenceLengths, peak_tokens
from planner.cost.rows import ceil_div
from planner.cost.shards import local_key_value_heads, padded_vocabulary, stage_layers
from planner.job import Model
from planner.layout import RECOMPUTES, FloatArray, IntArray, Layouts
from planner.spec import WorkloadSpec

SELECTIVE = RECOMPUTES.index("selective")
FULL = RECOMPUTES.index("full")


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
    in_flight: FloatArray = np.minimum(depth, num_micro_batches)
    return in_flight


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
