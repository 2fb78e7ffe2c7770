"""Seconds of an engine's step that decodes its sequences and takes in prompts, in one pass."""

import numpy as np

from automap.planner.cost.generation.decode import EngineShapes, cached_attention
from automap.planner.cost.generation.forward_pass import (
    ForwardPass,
    eager_seconds,
    forward_pass_seconds,
)
from automap.planner.cost.generation.prefill import prompt_attention
from automap.planner.cost.layer.transformer_layer import KernelContext
from automap.planner.layout import FloatArray


def mixed_step_seconds(
    context: KernelContext,
    shapes: EngineShapes,
    *,
    sequences: FloatArray,
    cached_tokens: float,
    prompts: FloatArray,
) -> FloatArray:
    """Seconds [shape] of a step with `sequences` that decode and `prompts` that join them.

    Continuous batching passes all their tokens through the layers at once: weights, and experts
    that any of them hits, are read once, and kernels are launched once. They are launched one by
    one, as the number of tokens differs from step to step; what the engine's host takes is apart.
    Source: Yu et al. 2022 ("Orca", OSDI), selective batching: attention alone is per sequence.
    """
    tensor = shapes.tensor_parallel_size
    prompt_tokens = np.ceil(prompts * context.lengths.mean_tokens).astype(np.int64)
    rows = ForwardPass(
        tensor,
        shapes.pipeline_parallel_size,
        shapes.expert_parallel_size,
        tokens=np.ceil(sequences + prompt_tokens).astype(np.int64),
        logits=np.ceil(sequences + prompts).astype(np.int64),
        captured=False,
    )
    compute, moved = forward_pass_seconds(context, rows)
    decoding = cached_attention(context, tensor, sequences, np.full(len(tensor), cached_tokens))
    reading = prompt_attention(context, tensor, prompt_tokens)
    work = compute.seconds + moved.seconds + decoding.seconds + reading.seconds
    return np.maximum(work, eager_seconds(context))
