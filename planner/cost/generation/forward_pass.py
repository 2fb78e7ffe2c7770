"""Seconds of tokens passing once through all layers of an inference engine, without attention."""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layers_by_mixer
from automap.planner.catalogue.weight_formats import part_precisions
from automap.planner.cost import constants
from automap.planner.cost.communication import (
    collective_seconds,
    custom_all_reduce_seconds,
    point_to_point_seconds,
)
from automap.planner.cost.layer.attended import kernel_width, whole_layers
from automap.planner.cost.layer.transformer_layer import KernelContext, add, scaled
from automap.planner.cost.operators.profile import MEMORY_EFFICIENCY, Timed
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import (
    Linear,
    attention_linears,
    expert_shards,
    latent_linears,
    mlp_linears,
    padded_vocabulary,
)
from automap.planner.layout import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """Passes of tokens through all layers of an engine replica, one row per pass."""

    tensor_parallel_size: IntArray
    pipeline_parallel_size: IntArray
    expert_parallel_size: IntArray
    tokens: IntArray
    logits: IntArray
    """Tokens whose successor is sampled: every decoding token, and the last token of a prompt."""
    captured: bool
    """Whether kernels are replayed from a CUDA graph, as in a decode step; a prefill's are launched
    one by one."""


def forward_pass_seconds(context: KernelContext, rows: ForwardPass) -> tuple[Timed, Timed]:
    """(compute without attention, communication) seconds [row] of embedding, layers and head.

    Tensor parallelism all-reduces after attention and after the MLP; experts over several
    replicas gather all their tokens and scatter the sums instead.
    """
    arch, tensor = context.model.architecture, rows.tensor_parallel_size
    inference = replace(context, model=replace(context.model, trainable=False, lora_rank=None))
    reduced = _all_reduce(context, rows)
    parts, moves = [], []
    for sizes, count in layers_by_mixer(arch):
        if sizes.mixer != "none":
            precision = part_precisions(sizes, context.precision).attention
            linears = attention_linears(sizes, tensor)
            parts.append(scaled(_products(inference, rows, linears, precision=precision), count))
            moves.append(scaled(reduced, count))
    num_dense = arch.num_dense_mlp_layers
    if num_dense:
        dense = mlp_linears(arch, tensor, arch.intermediate_size)
        low = part_precisions(arch, context.precision).mlp
        parts.append(scaled(_products(inference, rows, dense, precision=low), num_dense))
        moves.append(scaled(reduced, num_dense))
    if arch.num_moe_layers:
        experts, exchange = _moe(inference, rows, reduced)
        parts.append(scaled(experts, arch.num_moe_layers))
        moves.append(scaled(exchange, arch.num_moe_layers))
    parts.append(_small_kernels(context, rows))
    parts.append(_head(inference, rows))
    hop = point_to_point_seconds(
        context.pool,
        context.profile,
        rows.tokens * arch.hidden_size * _activation_bytes(context),
        crosses_node=tensor * rows.pipeline_parallel_size > context.pool.nvlink_domain_gpus,
    )
    hops = rows.pipeline_parallel_size - 1
    moves.append(Timed(hop.seconds * hops, np.where(hops > 0, hop.source, 0)))
    return add(*parts), add(*moves)


def eager_seconds(context: KernelContext) -> float:
    """Least seconds of a pass outside CUDA graphs: the time to launch its kernels."""
    arch = context.model.architecture
    layers = whole_layers(arch) + (constants.ENGINE_EXPERT_PREFILLS - 1.0) * arch.num_moe_layers
    return layers * context.engine.prefill_layer_seconds


def hit_share(arch: ModelArchitecture, tokens: IntArray) -> FloatArray:
    """Ratio of experts hit [row] when each token draws its own to those hit in balanced routing.

    The tables hand the batch's rows out to as many different experts as there are rows. Of E
    experts, n tokens that draw k each leave E·(1 − k/E)^n alone.
    """
    experts, chosen = arch.num_experts, arch.num_experts_per_token
    drawn = experts * -np.expm1(tokens * np.log1p(-min(chosen / experts, 1.0 - 1e-9)))
    return np.asarray(drawn / np.minimum(tokens * chosen, experts), dtype=np.float64)


def busiest_share(arch: ModelArchitecture, tokens: IntArray, expert: IntArray) -> FloatArray:
    """Ratio of experts hit [row] on the busiest GPU of an expert group to the mean of its GPUs.

    All wait for the one that reads most. Each of a GPU's E/e experts is hit with the chance
    p = 1 − (1 − k/E)^n by n tokens that draw k each, so their number varies by √(E/e · p·(1 − p))
    about its mean; of e GPUs the largest is taken to be that of e normal draws (Blom 1958,
    "Statistical Estimates and Transformed Beta-Variables"), and at most all experts of a GPU. Many
    tokens hit all experts everywhere, and a tensor group splits every expert: both are even.
    """
    local = arch.num_experts / expert
    drawn = min(arch.num_experts_per_token / arch.num_experts, 1.0 - 1e-9)
    chance = -np.expm1(tokens * np.log1p(-drawn))
    spread = np.sqrt(np.maximum(1.0 - chance, 0.0) / (local * chance))
    return np.asarray(np.minimum(1.0 + _largest_draw(expert) * spread, 1.0 / chance))


def _largest_draw(count: IntArray) -> FloatArray:
    """Expected largest of so many standard normal draws [row], within 5 %."""
    sizes, place = np.unique(count, return_inverse=True)
    normal = NormalDist()
    found = [normal.inv_cdf((size - 0.375) / (size + 0.25)) for size in sizes.tolist()]
    return np.asarray(np.array(found)[place].reshape(np.shape(count)), dtype=np.float64)


def _products(
    context: KernelContext, rows: ForwardPass, linears: tuple[Linear, ...], *, precision: str
) -> Timed:
    seconds, source = context.profile.gemm(
        rows.tokens,
        np.stack([one.outputs for one in linears]),
        np.stack([one.inputs for one in linears]),
        precision=precision,
        collector=context.engine.name,
        captured=rows.captured,
    )
    return add(*map(Timed, seconds, source))


def _activation_bytes(context: KernelContext) -> int:
    """Bytes of an activation that travels between GPUs: 16 bits even where weights have fewer."""
    return constants.PRECISION_BYTES["fp32" if context.precision == "fp32" else "bf16"]


def _all_reduce(context: KernelContext, rows: ForwardPass) -> Timed:
    """Seconds of one all-reduce in the tensor group; in a decode step the part that is exposed."""
    size, tensor = (
        rows.tokens * context.model.architecture.hidden_size * _activation_bytes(context),
        rows.tensor_parallel_size,
    )
    if context.engine.custom_all_reduce:
        reduced = custom_all_reduce_seconds(context.pool, context.profile, size, group_size=tensor)
    else:
        reduced = collective_seconds(
            context.pool, context.profile, "all_reduce", size, group_size=tensor, stride=1
        )
    return scaled(reduced, context.engine.all_reduce_share if rows.captured else 1.0)


def _moe(context: KernelContext, rows: ForwardPass, reduced: Timed) -> tuple[Timed, Timed]:
    """(experts, exchange) seconds of one layer; every GPU of the group sees all its tokens."""
    arch, tensor = context.model.architecture, rows.tensor_parallel_size
    expert = rows.expert_parallel_size
    shards, inside = expert_shards(tensor_parallel_size=tensor, expert_parallel_size=expert)
    tokens = ceil_div(rows.tokens * shards, tensor)
    balanced = context.profile.moe(
        num_tokens=tokens,
        hidden_size=arch.expert_hidden_size,
        moe_intermediate_size=arch.moe_intermediate_size,
        num_experts=arch.num_experts,
        num_experts_per_token=arch.num_experts_per_token,
        expert_tensor_parallel_size=inside,
        expert_parallel_size=expert,
        precision=context.precision,
    )
    uneven = hit_share(arch, tokens) * busiest_share(arch, tokens, expert)
    experts = scaled(balanced, uneven)
    if arch.expert_latent_size:
        kept = "fp32" if context.precision == "fp32" else "bf16"
        around = _products(context, rows, latent_linears(arch, tensor), precision=kept)
        experts = add(experts, around)
    if arch.shared_expert_intermediate_size:
        shared = mlp_linears(arch, tensor, arch.shared_expert_intermediate_size)
        low = part_precisions(arch, context.precision).mlp
        experts = add(experts, _products(context, rows, shared, precision=low))
    spread = expert > tensor
    group = np.where(spread, expert, 1)
    each = arch.expert_hidden_size * _activation_bytes(context)
    size = rows.tokens * np.maximum(group // tensor, 1) * each
    gathered = add(
        collective_seconds(
            context.pool, context.profile, "all_gather", size, group_size=group, stride=1
        ),
        collective_seconds(
            context.pool, context.profile, "reduce_scatter", size, group_size=group, stride=1
        ),
    )
    return experts, Timed(
        np.where(spread, gathered.seconds, reduced.seconds),
        np.where(spread, gathered.source, reduced.source),
    )


def _small_kernels(context: KernelContext, rows: ForwardPass) -> Timed:
    """Seconds of the small kernels of all layers: memory traffic, and in a graph their starts.

    They are two fused add-and-norms (6h), rotary with cache write, and the activation. Outside a
    graph `eager_seconds` covers the starts.
    """
    arch, tensor = context.model.architecture, rows.tensor_parallel_size
    width = arch.num_experts_per_token * arch.moe_intermediate_size or arch.intermediate_size
    layers = arch.num_layers
    mixers = sum(count * kernel_width(sizes) for sizes, count in layers_by_mixer(arch)) / layers
    mlps = (arch.num_dense_mlp_layers + arch.num_moe_layers) / layers
    whole = whole_layers(arch)
    per_token = (
        8 * arch.hidden_size * (whole / layers)
        + 2 * mixers / tensor
        + (3 if arch.gated_mlp else 2) * width * mlps / tensor
    )
    num_bytes = 2 * constants.ENGINE_ELEMENTWISE_PASSES * per_token * rows.tokens * layers
    kernel, source = context.profile.memory_bound(num_bytes)
    moved = num_bytes / (MEMORY_EFFICIENCY * context.profile.peaks.memory_bytes_per_second)
    if context.profile.measured_here:
        moved = kernel
    starts = whole * context.engine.layer_seconds
    starts += arch.num_moe_layers * constants.ENGINE_EXPERT_LAYER_SECONDS
    return Timed(np.asarray(moved + starts * rows.captured, dtype=np.float64), source)


def _head(context: KernelContext, rows: ForwardPass) -> Timed:
    """Seconds to compute the logits of `rows.logits` tokens, and to sample from them in fp32."""
    arch, tensor = context.model.architecture, rows.tensor_parallel_size
    vocabulary = padded_vocabulary(arch, tensor)
    # Engines with weights of 8 or 4 bits keep the head in 16.
    precision = "fp32" if context.precision == "fp32" else "bf16"
    product = context.profile.gemm(rows.logits, vocabulary, arch.hidden_size, precision=precision)
    sampled = np.asarray(rows.logits * arch.vocab_size * 14.0, dtype=np.float64)
    return add(product, context.profile.memory_bound(sampled))
