"""Seconds of pipeline stages from those of layers: the slowest stage, and all together."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from automap.planner.catalogue.architecture import LayerGroup, layer_groups
from automap.planner.cost.batches import micro_batch_tokens
from automap.planner.cost.layer.embedding_and_head import embedding_seconds, head_seconds
from automap.planner.cost.layer.experts import moe_layer_seconds
from automap.planner.cost.layer.transformer_layer import KernelContext, MicroBatch, UnitSeconds
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.cost.stage_layers import stage_layers
from automap.planner.cost.training.whole_layers import priced_layer_seconds
from automap.planner.layout import FloatArray, IntArray, Layouts


class Blocks(NamedTuple):
    """Seconds [row] of the building blocks of a model."""

    layers: tuple[FloatArray, ...]
    """Seconds of a layer of each group."""
    embedding: FloatArray
    head: FloatArray


@dataclass(frozen=True, slots=True)
class Units:
    """Seconds of each building block of a model per micro-batch [candidate]."""

    layers: tuple[UnitSeconds, ...]
    """Layers of each group, as `layer_groups` has them."""
    embedding: UnitSeconds
    head: UnitSeconds

    @property
    def source(self) -> IntArray:
        """Weakest provenance of the blocks [candidate], as an index into layout.SOURCES."""
        blocks = [*self.layers, self.embedding, self.head]
        weakest: IntArray = np.maximum.reduce([block.source for block in blocks])
        return weakest

    def forward(self) -> tuple[Blocks, Blocks]:
        """(compute, communication) seconds of the forward pass by block."""
        compute = Blocks(
            tuple(layer.forward for layer in self.layers),
            self.embedding.forward,
            self.head.forward,
        )
        communication = Blocks(
            tuple(layer.forward_communication for layer in self.layers),
            self.embedding.forward_communication,
            self.head.forward_communication,
        )
        return compute, communication


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of one micro-batch on the slowest stage, and on all stages in turn [candidate]."""

    compute: FloatArray
    communication: FloatArray
    pipeline_total: FloatArray
    """Compute and communication of all stages, one after the other."""


def units(context: KernelContext, layouts: Layouts, micro_batch_size: IntArray) -> Units:
    """Price the building blocks once per (tensor, context, expert, micro-batch) shape."""
    columns = (
        layouts.tensor_parallel_size,
        layouts.context_parallel_size,
        layouts.expert_parallel_size,
        micro_batch_size,
    )
    first, inverse = distinct_rows(*columns)
    tensor, context_size, expert, sequences = (column[first] for column in columns)
    tokens = ceil_div(micro_batch_tokens(context.lengths, sequences), context_size)
    batch = MicroBatch(tensor, context_size, expert, sequences, tokens)
    groups = layer_groups(context.model.architecture)
    return Units(
        layers=tuple(_layer_seconds(context, batch, group).take(inverse) for group in groups),
        embedding=embedding_seconds(context, batch).take(inverse),
        head=head_seconds(context, batch).take(inverse),
    )


def _layer_seconds(context: KernelContext, batch: MicroBatch, group: LayerGroup) -> UnitSeconds:
    """Seconds of a layer of one kind."""
    own = replace(context, model=replace(context.model, architecture=group.sizes))
    if group.mlp == "experts":
        return moe_layer_seconds(own, batch)
    return priced_layer_seconds(own, batch, group.mlp)


def worst_stage(
    context: KernelContext,
    layouts: Layouts,
    blocks: Blocks,
    communication: Blocks,
) -> StageSeconds:
    """Combine seconds of layers, embedding and head into stages."""
    compute, compute_total = _by_stage(context, layouts, blocks)
    moved, moved_total = _by_stage(context, layouts, communication)
    stages = layouts.pipeline_parallel_size
    both = compute + moved
    both[1, stages < 3] = -1.0  # no middle stage, no last one
    both[2, stages < 2] = -1.0
    worst, rows = np.argmax(both, axis=0), np.arange(len(layouts))
    single = stages == 1
    return StageSeconds(
        compute=np.where(single, compute_total, compute[worst, rows]),
        communication=np.where(single, moved_total, moved[worst, rows]),
        pipeline_total=compute_total + moved_total,
    )


def _by_stage(
    context: KernelContext, layouts: Layouts, blocks: Blocks
) -> tuple[FloatArray, FloatArray]:
    """(seconds [stage, row] of first, middle and last stage, seconds [row] of all stages)."""
    arch = context.model.architecture
    groups, embedding, head = layer_groups(arch), blocks.embedding, blocks.head
    stages = np.stack([embedding, np.zeros_like(embedding), head])
    in_layers, all_layers = np.zeros_like(stages), np.zeros_like(embedding)
    counts = stage_layers(arch, layouts.pipeline_parallel_size)
    for group, count, seconds in zip(groups, counts, blocks.layers, strict=True):
        in_layers = in_layers + count * seconds
        all_layers = all_layers + group.num_layers * seconds
    return in_layers + stages, all_layers + embedding + head
