"""Seconds of one micro-batch in the embedding and in the output head."""

from dataclasses import replace

import numpy as np

from automap.planner.cost.layer.logits import tokens_at_once
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    UnitSeconds,
    add,
    collective,
    linears_seconds,
    scaled,
    tensor_pair,
)
from automap.planner.cost.operators.profile import Timed
from automap.planner.cost.shards import Linear, padded_vocabulary
from automap.planner.layout import IntArray


def embedding_seconds(context: KernelContext, batch: MicroBatch) -> UnitSeconds:
    """Seconds of the embedding: the look-up reads and writes h elements per token.

    A vocabulary that is split over the tensor group adds a reduce-scatter.
    """
    size = batch.tokens * context.model.architecture.hidden_size * context.element_bytes
    lookup = context.profile.memory_bound(2 * size)
    group = batch.tensor_parallel_size
    scatter = collective(context, "reduce_scatter", size, group_size=group, stride=1)
    gather = collective(context, "all_gather", size, group_size=group, stride=1)
    return UnitSeconds(
        forward=lookup.seconds,
        backward=2.0 * lookup.seconds,
        selective=np.zeros(len(batch)),
        forward_communication=scatter.seconds,
        backward_communication=gather.seconds,
        selective_communication=np.zeros(len(batch)),
        source=add(lookup, scatter, gather).source,
    )


def head_seconds(context: KernelContext, batch: MicroBatch) -> UnitSeconds:
    """Seconds of the output head with log-probabilities or values, and of their gradient.

    Forward casts the logits to fp32 (2 + 4 bytes) and takes the log-softmax (4 + 4); backward
    reads both, writes the gradient (12) and casts it to bf16 (4 + 2). In chunks: `_chunk_seconds`.
    """
    arch, tensor = context.model.architecture, batch.tensor_parallel_size
    size = batch.tokens * arch.hidden_size * context.element_bytes
    if context.model.scalar_head:
        there = context.profile.memory_bound(size / tensor)
        back = scaled(there, 2.0)
        moved = Timed(np.zeros(len(batch)), np.zeros(len(batch), dtype=np.int64))
    else:
        # Low-precision recipes leave the head as it is; adapters do not stand beside it.
        whole = replace(context.frozen, product_precision=None)
        linear = Linear(np.full_like(tensor, arch.hidden_size), padded_vocabulary(arch, tensor))
        if context.stack.memory.logit_chunk_bytes:
            there, back = _chunk_seconds(whole, batch.tokens, linear)
        else:
            product = linears_seconds(whole, batch.tokens, (linear,))
            logits = batch.tokens * linear.outputs
            there = add(product[0], context.profile.memory_bound(14 * logits))
            back = add(product[1], context.profile.memory_bound(18 * logits))
        moved = tensor_pair(whole, batch)
        moved = Timed(moved.seconds * 0.5, moved.source)  # one gather each way
    return UnitSeconds(
        forward=there.seconds,
        backward=back.seconds,
        selective=np.zeros(len(batch)),
        forward_communication=moved.seconds,
        backward_communication=moved.seconds,
        selective_communication=np.zeros(len(batch)),
        source=add(there, back, moved).source,
    )


def _chunk_seconds(context: KernelContext, tokens: IntArray, head: Linear) -> tuple[Timed, Timed]:
    """(forward, backward) seconds of a head with the logits of a chunk of tokens at a time.

    Bytes per logit, counted in executor/engines/log_probs.py, whose operations are kernels of their
    own. Forward: cast 2 + 4, temperature 4 + 4; largest 4, difference 4 + 4, exponential 4 + 4, sum
    4. Backward makes logits again (14), and: normaliser 4 + 4, exponential 4 + 4, times the outer
    gradient 4 + 4, temperature 4 + 4, cast 4 + 2. Each chunk adds to the weight's gradient.
    """
    at_once = tokens_at_once(context.stack.memory, tokens, head.outputs)
    chunks, logits = tokens / at_once, at_once * head.outputs
    product = linears_seconds(context, at_once, (head,))
    there = add(product[0], context.profile.memory_bound(38 * logits))
    back = add(product[0], product[1], context.profile.memory_bound(52 * logits))
    return scaled(there, chunks), scaled(back, chunks)
