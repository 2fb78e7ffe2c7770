"""Seconds of pipeline stages from those of layers: the slowest stage, and all together."""

from dataclasses import dataclass

import numpy as np

from automap.planner.cost.batches import micro_batch_tokens
from automap.planner.cost.layer.embedding_and_head import embedding_seconds, head_seconds
from automap.planner.cost.layer.experts import moe_layer_seconds
from automap.planner.cost.layer.transformer_layer import KernelContext, MicroBatch, UnitSeconds
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.cost.shards import stage_layers
from automap.planner.cost.training.whole_layers import priced_layer_seconds
from automap.planner.layout import FloatArray, IntArray, Layouts

Blocks = tuple[FloatArray, FloatArray | None, FloatArray, FloatArray]
"""Seconds [row] of (dense layer, expert layer or None in a dense model, embedding, head)."""


@dataclass(frozen=True, slots=True)
class Units:
    """Seconds of each building block of a model per micro-batch [candidate]."""

    dense: UnitSeconds
    moe: UnitSeconds | None
    embedding: UnitSeconds
    head: UnitSeconds

    @property
    def source(self) -> IntArray:
        """Weakest provenance of the blocks [candidate], as an index into layout.SOURCES."""
        blocks = [self.dense, self.embedding, self.head]
        if self.moe is not None:
            blocks.append(self.moe)
        weakest: IntArray = np.maximum.reduce([block.source for block in blocks])
        return weakest

    def forward(self) -> tuple[Blocks, Blocks]:
        """(compute, communication) seconds of the forward pass by block."""
        moe = self.moe
        compute = (
            self.dense.forward,
            None if moe is None else moe.forward,
            self.embedding.forward,
            self.head.forward,
        )
        communication = (
            self.dense.forward_communication,
            None if moe is None else moe.forward_communication,
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
    has_experts = context.model.architecture.num_moe_layers > 0
    return Units(
        dense=priced_layer_seconds(context, batch).take(inverse),
        moe=moe_layer_seconds(context, batch).take(inverse) if has_experts else None,
        embedding=embedding_seconds(context, batch).take(inverse),
        head=head_seconds(context, batch).take(inverse),
    )


def worst_stage(
    context: KernelContext,
    layouts: Layouts,
    blocks: Blocks,
    communication: Blocks,
) -> StageSeconds:
    """Combine (dense layer, expert layer, embedding, head) seconds into stages."""
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
    dense, moe, embedding, head = blocks
    experts = np.zeros_like(dense) if moe is None else moe
    layers = stage_layers(arch, layouts.pipeline_parallel_size)
    ends = (embedding, np.zeros_like(embedding), head)
    stages = [
        layers.dense[stage] * dense + layers.moe[stage] * experts + ends[stage]
        for stage in range(3)
    ]
    num_moe = arch.num_moe_layers
    total = (arch.num_layers - num_moe) * dense + num_moe * experts + embedding + head
    return np.stack(stages), total
