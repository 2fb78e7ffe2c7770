"""A reward model as a framework has it: served, with a cache that no plan prices."""

import numpy as np

from automap.planner.cost.generation.kv_cache import sequence_cache_bytes
from automap.planner.exports.subject import Subject
from automap.planner.layout import GenerationLayouts
from automap.planner.plan.types import CallPlan, CopyPlan

TEMPLATE_TOKENS = 256
"""Tokens by which a response is longer once the reward model's own chat template is around it.
Chosen: templates have some tens."""


def longest_sequence(subject: Subject) -> int:
    """Tokens of the longest prompt and response."""
    workload = subject.job.spec.workload
    return workload.prompt_length.max_tokens + workload.response_length.max_tokens


def longest_scored(subject: Subject) -> int:
    """Tokens of the longest sequence that the reward model is given, within its positions."""
    positions = subject.job.models["reward"].architecture.max_position_embeddings
    return min(longest_sequence(subject) + TEMPLATE_TOKENS, positions)


def serving_bytes(subject: Subject, reward: CopyPlan, call: CallPlan) -> int:
    """Bytes on a GPU of the engine that serves: the call's, and a cache for its micro-batch."""
    sizes = (reward.layout.tensor_parallel_size, 1, 1, reward.layout.data_parallel_size)
    layouts = GenerationLayouts(*(np.array([size], dtype=np.int64) for size in sizes))
    longest = longest_scored(subject)
    each = int(sequence_cache_bytes(subject.job.models["reward"], layouts, tokens=longest)[0])
    sequences = call.micro_batch_size or 1
    return reward.resident_bytes + call.bytes_by_kind.total + each * sequences
