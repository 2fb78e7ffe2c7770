"""The key-value cache of an engine: bytes per token, and what a batch of responses needs."""

import numpy as np

from automap.planner.catalogue.architecture import CACHE_OVERRIDE_BYTES_PER_ELEMENT
from automap.planner.cost import constants
from automap.planner.cost.generation.rollout import Rollout, rollout, rollouts_with_absences
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
        prompt_tokens=_prompt_tokens(workload),
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
        prompt_tokens=_prompt_tokens(workload),
        num_draws=call.num_sequences,
        turns=workload.turns,
    )


def _prompt_tokens(workload: WorkloadSpec) -> float:
    """Mean cached tokens of a prompt; the last block of a sequence is half empty on average."""
    return workload.prompt_length.mean_tokens + constants.CACHE_BLOCK_TOKENS / 2


def kv_bytes_per_token(
    model: Model, generation_layouts: GenerationLayouts, *, precision: str = "bf16"
) -> IntArray:
    """Cache bytes of one token on one GPU of the fullest stage.

    Key-value heads split over the tensor group, at least one each; an approximated attention's
    compressed cache (MLA) is held whole by every GPU.
    """
    arch = model.architecture
    layers = ceil_div(arch.num_layers, generation_layouts.pipeline_parallel_size)
    element = constants.PRECISION_BYTES[precision]
    if arch.key_value_bytes_per_token_per_layer:
        stated = arch.key_value_bytes_per_token_per_layer
        return layers * (stated * element // CACHE_OVERRIDE_BYTES_PER_ELEMENT)
    heads = local_key_value_heads(arch, generation_layouts.tensor_parallel_size)
    return layers * heads * (2 * arch.head_dim * element)


def minimum_kv_cache_bytes(
    model: Model, workload: WorkloadSpec, generation_layouts: GenerationLayouts
) -> IntArray:
    """Cache bytes per GPU that one longest sequence needs; below it nothing can run."""
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    tokens = longest + constants.CACHE_BLOCK_TOKENS
    per_token = kv_bytes_per_token(
        model, generation_layouts, precision=workload.rollout_cache_precision
    )
    return per_token * np.int64(tokens)


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
        model, generation_layouts, precision=workload.rollout_cache_precision
    )
    least = minimum_kv_cache_bytes(model, workload, generation_layouts)
    return np.asarray(np.maximum(np.ceil(tokens).astype(np.int64) * per_token, least))
