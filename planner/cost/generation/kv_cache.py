"""The key-value cache of an engine: bytes per token, and what a batch of responses needs."""

import math

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layers_by_mixer
from automap.planner.cost import constants
from automap.planner.cost.generation.rollout import (
    Rollout,
    rollout,
    rollout_in_slots,
    rollouts_with_absences,
)
from automap.planner.cost.layer.attended import (
    attends,
    indexer_cache_elements,
    kept_tokens,
    latent_cache_elements,
    state_bytes,
)
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import local_key_value_heads
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import GenerationLayouts, IntArray
from automap.planner.spec import WorkloadSpec

CACHE_SIGMAS = 2.0
"""Standard deviations of the cached tokens that a full cache has room for, beside the mean."""


def response_process(call: Call, workload: WorkloadSpec) -> Rollout:
    """How many of the call's responses run at once, without environment times."""
    points, weights = workload.response_length.distribution()
    return rollout(
        tuple(points.tolist()),
        tuple(weights.tolist()),
        prompt_tokens=prompt_tokens(workload),
        num_draws=call.num_sequences,
    )


def slot_process(call: Call, workload: WorkloadSpec) -> Rollout:
    """How many of the call's responses run at once in engines that run at most so many."""
    points, weights = workload.response_length.distribution()
    return rollout_in_slots(
        tuple(points.tolist()),
        tuple(weights.tolist()),
        prompt_tokens=prompt_tokens(workload),
        num_draws=call.num_sequences,
    )


def absent_processes(call: Call, workload: WorkloadSpec) -> tuple[Rollout, ...]:
    """How many responses run at once, for several environment times between turns.

    Empty where sequences have one turn or no environment time.
    """
    if workload.turns == 1 or not workload.environment_seconds_per_turn:
        return ()
    points, weights = workload.response_length.distribution()
    return rollouts_with_absences(
        tuple(points.tolist()),
        tuple(weights.tolist()),
        prompt_tokens=prompt_tokens(workload),
        num_draws=call.num_sequences,
        turns=workload.turns,
    )


def prompt_tokens(workload: WorkloadSpec) -> float:
    """Mean cached tokens of a prompt; the last block of a sequence is half empty on average."""
    return workload.prompt_length.mean_tokens + constants.CACHE_BLOCK_TOKENS / 2


def sequence_cache_bytes(
    model: Model,
    generation_layouts: GenerationLayouts,
    *,
    tokens: int,
    precision: str = "bf16",
) -> IntArray:
    """Cache bytes that a sequence of so many tokens has on one GPU of the fullest stage.

    Key-value heads split over the tensor group, at least one each; a latent cache (MLA) and an
    indexer's keys are held whole by every GPU. A window holds its last tokens, and a layer with a
    state the state alone, split over the group. Layers of each kind are spread evenly over stages.
    """
    tensor = generation_layouts.tensor_parallel_size
    element = constants.PRECISION_BYTES[precision]
    total = np.zeros_like(tensor)
    for sizes, count in layers_by_mixer(model.architecture):
        layers = ceil_div(count, generation_layouts.pipeline_parallel_size)
        if attends(sizes):
            total = total + layers * kept_tokens(sizes, tokens) * _token_bytes(
                sizes, tensor, element
            )
        state = state_bytes(sizes, element_bytes=constants.PRECISION_BYTES["bf16"])
        total = total + layers * ceil_div(state, tensor)
    return total


def _token_bytes(arch: ModelArchitecture, tensor: IntArray, element: int) -> IntArray:
    """Cache bytes of a token in one layer on one GPU."""
    latent = latent_cache_elements(arch)
    if latent:
        return np.full_like(tensor, (latent + indexer_cache_elements(arch)) * element)
    return local_key_value_heads(arch, tensor) * (2 * arch.head_dim * element)


def kv_bytes_per_token(
    model: Model,
    generation_layouts: GenerationLayouts,
    *,
    tokens: float,
    precision: str = "bf16",
) -> IntArray:
    """Cache bytes on one GPU of the fullest stage for each token of a sequence of so many tokens.

    Where every layer caches every token that is the same for any number.
    """
    whole = max(math.ceil(tokens), 1)
    held = sequence_cache_bytes(model, generation_layouts, tokens=whole, precision=precision)
    return ceil_div(held, whole)


def bytes_of_every_token(
    model: Model, generation_layouts: GenerationLayouts, *, precision: str = "bf16"
) -> IntArray | None:
    """Cache bytes of a token on one GPU; None: windows or states, whose bytes are not per token."""
    for sizes, _ in layers_by_mixer(model.architecture):
        if not attends(sizes) or sizes.sliding_window or sizes.attention_chunk_size:
            return None
    return kv_bytes_per_token(model, generation_layouts, tokens=1, precision=precision)


def typical_tokens(workload: WorkloadSpec) -> float:
    """Cached tokens of a sequence halfway through its response, of mean lengths.

    Caches with windows or states grow less than sequences do: longer ones take less a token.
    """
    return prompt_tokens(workload) + workload.response_length.mean_tokens / 2


def minimum_kv_cache_bytes(
    model: Model, workload: WorkloadSpec, generation_layouts: GenerationLayouts
) -> IntArray:
    """Cache bytes per GPU that one longest sequence needs; below it nothing can run."""
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    return sequence_cache_bytes(
        model,
        generation_layouts,
        tokens=longest + constants.CACHE_BLOCK_TOKENS,
        precision=workload.rollout_cache_precision,
    )


def full_kv_cache_bytes(
    model: Model, call: Call, workload: WorkloadSpec, generation_layouts: GenerationLayouts
) -> IntArray:
    """Cache bytes per GPU with which hardly a sequence ever waits; never below the minimum.

    All sequences of a replica start at once; the need peaks while long ones still run and short
    ones have left. How many these are is a matter of chance: two deviations are added.
    """
    process = response_process(call, workload)
    sequences = ceil_div(call.num_sequences, generation_layouts.data_parallel_size)
    spread = CACHE_SIGMAS * process.peak_deviation_tokens * np.sqrt(sequences)
    tokens = sequences * process.peak_tokens + spread
    per_token = kv_bytes_per_token(
        model,
        generation_layouts,
        tokens=typical_tokens(workload),
        precision=workload.rollout_cache_precision,
    )
    least = minimum_kv_cache_bytes(model, workload, generation_layouts)
    return np.asarray(np.maximum(np.ceil(tokens).astype(np.int64) * per_token, least))
