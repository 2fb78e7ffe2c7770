"""Logits, of a whole micro-batch or of a chunk of its tokens, and what lies around the head."""

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.memory import gradients_are_reduced
from automap.planner.cost.shards import padded_vocabulary
from automap.planner.cost.stacks import StackMemory, stack_of
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray, IntArray, Layouts
from automap.planner.spec import WorkloadSpec


def tokens_at_once(kept: StackMemory, tokens: IntArray, vocabulary: IntArray) -> IntArray:
    """Tokens [row] of a GPU whose logits exist at once, each with so much of the vocabulary."""
    if not kept.logit_chunk_bytes:
        return tokens
    room = kept.logit_chunk_bytes // (constants.PRECISION_BYTES["fp32"] * vocabulary)
    at_once: IntArray = np.minimum(tokens, np.maximum(room, 1))
    return at_once


def logits_bytes(
    model: Model, kept: StackMemory, layouts: Layouts, tokens: IntArray, *, per_logit: int
) -> FloatArray:
    """Bytes [candidate] of the outputs for a GPU's tokens.

    A token has its GPU's part of the vocabulary, or one value.
    """
    if model.scalar_head:
        return np.asarray(tokens * per_logit, dtype=np.float64)
    rows = padded_vocabulary(model.architecture, layouts.tensor_parallel_size)
    at_once = tokens_at_once(kept, tokens, rows)
    return np.asarray(at_once * rows * per_logit, dtype=np.float64)


def head_gradient_bytes(model: Model, workload: WorkloadSpec, layouts: Layouts) -> FloatArray:
    """Bytes [candidate] that the head's gradient takes beside what is held of new gradients anyway.

    Over chunks of logits it is summed in fp32 and then cast, both being there
    (`gathered_layer_bytes` has what is held of a layer's or a table's). 0 without chunks.
    """
    kept = stack_of(workload).memory
    if not kept.logit_chunk_bytes or model.scalar_head or model.lora_rank is not None:
        return np.zeros(len(layouts))
    element = constants.PRECISION_BYTES[workload.precision]
    held = np.where(gradients_are_reduced(layouts), kept.gradient_bytes, element)
    rows = padded_vocabulary(model.architecture, layouts.tensor_parallel_size)
    summed = constants.PRECISION_BYTES["fp32"] + element - held
    return np.asarray(summed * rows * model.architecture.hidden_size, dtype=np.float64)


def head_state_bytes(model: Model, workload: WorkloadSpec) -> int:
    """Bytes per token of hidden states at the head that training holds beside chunks of logits.

    They are the last norm's, those of the tokens that predict one, and their gradient, whole on
    every GPU of a tensor group. 0 without chunks: not counted beside whole logits, which are dozens
    of times as large.
    """
    if not stack_of(workload).memory.logit_chunk_bytes or model.scalar_head:
        return 0
    return 3 * constants.PRECISION_BYTES[workload.precision] * model.architecture.hidden_size
