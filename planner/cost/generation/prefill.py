"""Seconds of the prompts of a generate call: chunks of tokens streamed through the stages."""

from dataclasses import dataclass

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layers_by_mixer
from automap.planner.cost import constants
from automap.planner.cost.estimates import SecondsColumns
from automap.planner.cost.generation.decode import EngineShapes
from automap.planner.cost.generation.forward_pass import (
    ForwardPass,
    eager_seconds,
    forward_pass_seconds,
)
from automap.planner.cost.layer.attended import attends
from automap.planner.cost.layer.attention import (
    attended_weights,
    attention_width,
    indexer_seconds,
    recurrence_seconds,
)
from automap.planner.cost.layer.transformer_layer import KernelContext, add, scaled
from automap.planner.cost.operators.profile import Timed
from automap.planner.cost.rows import ceil_div, distinct_rows
from automap.planner.cost.shards import local_key_value_heads
from automap.planner.dataflow.graph import Call
from automap.planner.layout import FloatArray, IntArray
from automap.planner.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Prefill:
    """Seconds and tokens of all prompts of a replica [candidate]."""

    seconds: SecondsColumns
    tokens: FloatArray
    source: IntArray


def prefill_seconds(
    context: KernelContext,
    call: Call,
    workload: WorkloadSpec,
    shapes: EngineShapes,
    shape: IntArray,
    sequences: IntArray,
) -> Prefill:
    """Price the prompts that the responses of a replica need.

    Responses of one prompt share its prefill. A chunk takes no less than launching its kernels;
    what that adds to its work, and the engine's step, is overhead.
    """
    shared = max(call.num_sequences // workload.prompts_per_iteration, 1)
    prompts = ceil_div(sequences, min(shared, workload.responses_per_prompt))
    mean = context.lengths.mean_tokens
    tokens = prompts * mean
    chunk = np.minimum(constants.PREFILL_CHUNK_TOKENS, tokens)
    chunk_size = np.ceil(chunk).astype(np.int64)
    first, inverse = distinct_rows(shape, chunk_size)
    which = shape[first]
    rows = ForwardPass(
        shapes.tensor_parallel_size[which],
        shapes.pipeline_parallel_size[which],
        shapes.expert_parallel_size[which],
        chunk_size[first],
        logits=np.ceil(chunk_size[first] / mean).astype(np.int64),
        captured=False,
    )
    compute, moved = forward_pass_seconds(context, rows)
    compute = add(compute, prompt_attention(context, rows.tensor_parallel_size, rows.tokens))
    stages, chunks = shapes.pipeline_parallel_size[shape], tokens / chunk
    work = compute.seconds + moved.seconds
    waiting = np.maximum(eager_seconds(context) - work, 0.0)
    each = (work + waiting)[inverse] / stages
    zero = np.zeros(len(shape))
    seconds = SecondsColumns(
        compute=compute.seconds[inverse] * chunks / stages,
        communication=moved.seconds[inverse] * chunks / stages,
        bubble=each * (stages - 1),
        optimizer=zero,
        transition=zero,
        overhead=(waiting[inverse] / stages + context.engine.step_seconds) * chunks
        + (context.engine.call_seconds + context.engine.request_seconds * sequences),
        between=zero,
    )
    source = np.maximum(compute.source, moved.source)[inverse]
    return Prefill(seconds, np.asarray(tokens, dtype=np.float64), source)


def prompt_attention(context: KernelContext, tensor: IntArray, tokens: IntArray) -> Timed:
    """Seconds of the mixers of so many tokens of prompts in all layers, averaged over lengths."""
    return add(
        *(
            scaled(_mixer(context, sizes, tensor, tokens), count)
            for sizes, count in layers_by_mixer(context.model.architecture)
        )
    )


def _mixer(
    context: KernelContext, arch: ModelArchitecture, tensor: IntArray, tokens: IntArray
) -> Timed:
    """Seconds of a layer's causal attention in a chunk of prompts, or of its recurrence."""
    lengths = context.lengths
    if not attends(arch):
        return recurrence_seconds(arch, context.profile, tokens, tensor)
    one = context.profile.prefill_attention(
        batch_size=1,
        sequence_length=lengths.points[None, :],
        num_attention_heads=ceil_div(arch.num_attention_heads, tensor)[:, None],
        num_key_value_heads=local_key_value_heads(arch, tensor)[:, None],
        head_dim=attention_width(arch),
    )
    in_chunk = tokens / lengths.mean_tokens
    found = one.seconds @ attended_weights(arch, lengths) * in_chunk
    return add(
        Timed(found, one.source.max(axis=1)),
        scaled(indexer_seconds(arch, context.profile, lengths, np.ones_like(tensor)), in_chunk),
    )
