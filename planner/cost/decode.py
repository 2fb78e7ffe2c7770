"""Seconds of one inference-engine step, tabulated over batch size and cache length."""

from dataclasses import dataclass, replace

import numpy as np

from planner.cost import constants
from planner.cost.communication import (
    collective_seconds,
    custom_all_reduce_seconds,
    point_to_point_seconds,
)
from planner.cost.layer import Setting, add, scaled
from planner.cost.profile import Timed
from planner.cost.rows import ceil_div
from planner.cost.shards import (
    Linear,
    attention_linears,
    expert_shards,
    local_key_value_heads,
    mlp_linears,
    padded_vocabulary,
)
from planner.layout import FloatArray, IntArray

CACHE_POINTS = 5
"""Cache lengths at which attention is tabulated."""


@dataclass(frozen=True, slots=True)
class EngineShapes:
    """Distinct (tensor, pipeline, expert) sizes of engine replicas."""

    tensor_parallel_size: IntArray
    pipeline_parallel_size: IntArray
    expert_parallel_size: IntArray

    def __len__(self) -> int:
        return len(self.tensor_parallel_size)


@dataclass(frozen=True, slots=True)
class StepTables:
    """Seconds of a decode step through all stages: [shape, batch] and [shape, batch, cache].

    `batch` is the running batch of one pipeline micro-batch.
    """

    batches: FloatArray
    cache_lengths: FloatArray
    compute: FloatArray
    attention: FloatArray
    communication: FloatArray
    source: IntArray
    """Weakest provenance per shape."""

    def at(
        self, shape: IntArray, batch: FloatArray, cache_length: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """(compute, communication) seconds, linear between the tabulated points.

        `shape` indexes the distinct shapes and broadcasts against batch and cache length.
        """
        steps = np.log2(np.maximum(batch, 1.0)) * 2.0  # batches are spaced by √2
        low = np.minimum(steps.astype(np.int64), len(self.batches) - 2)
        weight = (batch - self.batches[low]) / (self.batches[low + 1] - self.batches[low])
        places = len(self.batches)
        flat = shape * places + low
        compute = _between(self.compute.ravel(), flat, flat + 1, weight)
        moved = _between(self.communication.ravel(), flat, flat + 1, weight)
        points = len(self.cache_lengths)
        if points == 1:
            attention = _between(self.attention.ravel(), flat, flat + 1, weight)
        else:
            spacing = self.cache_lengths[1] - self.cache_lengths[0]
            position = (cache_length - self.cache_lengths[0]) / spacing
            left = np.clip(position.astype(np.int64), 0, points - 2)
            part = position - left
            base = flat * points + left
            table = self.attention.ravel()
            near = _between(table, base, base + points, weight)
            far = _between(table, base + 1, base + points + 1, weight)
            attention = near + part * (far - near)
        return np.maximum(compute + attention, 0.0), np.maximum(moved, 0.0)


def _between(table: FloatArray, low: IntArray, high: IntArray, weight: FloatArray) -> FloatArray:
    lower = table[low]
    return lower + weight * (table[high] - lower)


def step_tables(
    setting: Setting, shapes: EngineShapes, *, largest_batch: int, cache_lengths: FloatArray
) -> StepTables:
    """Tabulate a decode step; micro-batches of a pipeline each pass all stages."""
    count = int(np.ceil(2 * np.log2(max(largest_batch, 2)))) + 2
    batches = np.sqrt(2.0) ** np.arange(count)
    grid = _grid(shapes, batches)
    arch = setting.model.architecture
    compute, moved = engine_pass(setting, grid)
    heads = ceil_div(arch.num_attention_heads, shapes.tensor_parallel_size)
    key_value = local_key_value_heads(arch, shapes.tensor_parallel_size)
    attention = setting.profile.decode_attention(
        batch_size=batches[None, :, None],
        kv_length=cache_lengths[None, None, :],
        num_attention_heads=heads[:, None, None],
        num_key_value_heads=key_value[:, None, None],
        head_dim=arch.head_dim,
    )
    size = (len(shapes), count)
    sources = [part.source.reshape(size).max(axis=1) for part in (compute, moved)]
    sources.append(attention.source.max(axis=(1, 2)))
    return StepTables(
        batches=batches,
        cache_lengths=cache_lengths,
        compute=compute.seconds.reshape(size),
        attention=arch.num_layers * attention.seconds,
        communication=moved.seconds.reshape(size),
        source=np.maximum.reduce(sources),
    )


@dataclass(frozen=True, slots=True)
class EnginePass:
    """Tokens through all layers of an engine replica, one row each."""

    tensor_parallel_size: IntArray
    pipeline_parallel_size: IntArray
    expert_parallel_size: IntArray
    tokens: IntArray


def _grid(shapes: EngineShapes, batches: FloatArray) -> EnginePass:
    count = len(batches)
    return EnginePass(
        np.repeat(shapes.tensor_parallel_size, count),
        np.repeat(shapes.pipeline_parallel_size, count),
        np.repeat(shapes.expert_parallel_size, count),
        np.tile(np.ceil(batches - 1e-9).astype(np.int64), len(shapes)),
    )


def engine_pass(setting: Setting, rows: EnginePass) -> tuple[Timed, Timed]:
    """(compute without attention, communication) of tokens through embedding, layers and head.

    Tensor parallelism all-reduces after attention and after the MLP; experts over several
    replicas gather all their tokens and scatter the sums instead.
    """
    arch, tensor = setting.model.architecture, rows.tensor_parallel_size
    engine = replace(setting, model=replace(setting.model, trainable=False, lora_rank=None))
    attention = _products(engine, rows.tokens, attention_linears(arch, tensor))
    reduced = custom_all_reduce_seconds(
        setting.pool,
        setting.profile,
        rows.tokens * arch.hidden_size * 2,
        group_size=tensor,
    )
    num_dense = arch.num_layers - arch.num_moe_layers
    parts, moves = [scaled(attention, arch.num_layers)], [scaled(reduced, arch.num_layers)]
    if num_dense:
        mlp = _products(engine, rows.tokens, mlp_linears(arch, tensor, arch.intermediate_size))
        parts.append(scaled(mlp, num_dense))
        moves.append(scaled(reduced, num_dense))
    if arch.num_moe_layers:
        experts, exchange = _moe(engine, rows, reduced)
        parts.append(scaled(experts, arch.num_moe_layers))
        moves.append(scaled(exchange, arch.num_moe_layers))
    parts.append(scaled(_elementwise(setting, rows), arch.num_layers))
    parts.append(_head(engine, rows))
    hop = point_to_point_seconds(
        setting.pool,
        setting.profile,
        rows.tokens * arch.hidden_size * 2,
        crosses_node=tensor * rows.pipeline_parallel_size > setting.pool.nvlink_domain_gpus,
    )
    hops = rows.pipeline_parallel_size - 1
    moves.append(Timed(hop.seconds * hops, np.where(hops > 0, hop.source, 0)))
    return add(*parts), add(*moves)


def _products(setting: Setting, tokens: IntArray, linears: tuple[Linear, ...]) -> Timed:
    gemm = setting.profile.gemm
    found = [gemm(tokens, one.outputs, one.inputs, precision=setting.precision) for one in linears]
    return add(*found)


def _moe(setting: Setting, rows: EnginePass, reduced: Timed) -> tuple[Timed, Timed]:
    """(experts, exchange) of one layer; every GPU of the group sees all the group's tokens."""
    arch, tensor = setting.model.architecture, rows.tensor_parallel_size
    expert = rows.expert_parallel_size
    shards, inside = expert_shards(tensor_parallel_size=tensor, expert_parallel_size=expert)
    experts = setting.profile.moe(
        num_tokens=ceil_div(rows.tokens * shards, tensor),
        hidden_size=arch.hidden_size,
        moe_intermediate_size=arch.moe_intermediate_size,
        num_experts=arch.num_experts,
        num_experts_per_token=arch.num_experts_per_token,
        expert_tensor_parallel_size=inside,
        expert_parallel_size=expert,
        precision=setting.precision,
        dispatched=False,
    )
    if arch.shared_expert_intermediate_size:
        shared = mlp_linears(arch, tensor, arch.shared_expert_intermediate_size)
        experts = add(experts, _products(setting, rows.tokens, shared))
    spread = expert > tensor
    group = np.where(spread, expert, 1)
    size = rows.tokens * np.maximum(group // tensor, 1) * arch.hidden_size * 2
    gathered = add(
        collective_seconds(
            setting.pool, setting.profile, "all_gather", size, group_size=group, stride=1
        ),
        collective_seconds(
            setting.pool, setting.profile, "reduce_scatter", size, group_size=group, stride=1
        ),
    )
    return experts, Timed(
        np.where(spread, gathered.seconds, reduced.seconds),
        np.where(spread, gathered.source, reduced.source),
    )


def _elementwise(setting: Setting, rows: EnginePass) -> Timed:
    """Two fused add-and-norms (6h), rotary with cache write, and the activation of one layer."""
    arch, tensor = setting.model.architecture, rows.tensor_parallel_size
    width = arch.num_experts_per_token * arch.moe_intermediate_size or arch.intermediate_size
    per_token = (
        8 * arch.hidden_size
        + 2 * (arch.query_size + 2 * arch.key_value_size) / tensor
        + (3 if arch.gated_mlp else 2) * width / tensor
    )
    kernels = float(constants.ENGINE_LAYER_KERNELS)
    return scaled(setting.profile.memory_bound(2 * per_token * rows.tokens / kernels), kernels)


def _head(setting: Setting, rows: EnginePass) -> Timed:
    """Logits of every token and sampling over them in fp32."""
    arch, tensor = setting.model.architecture, rows.tensor_parallel_size
    vocabulary = padded_vocabulary(arch, tensor)
    product = setting.profile.gemm(rows.tokens, vocabulary, arch.hidden_size, precision="bf16")
    sampled = np.asarray(rows.tokens * arch.vocab_size * 14.0, dtype=np.float64)
    return add(product, setting.profile.memory_bound(sampled))
