"""Inference software of the systems that papers compare, as the code of its versions has it.

Papers of 2024 generate with engines of their year, which the planner does not offer: plans are for
those of today. What differs is written over today's vLLM, for systems whose released code could be
read. Nothing here is fitted to a study: the host's seconds are counts of kernels times
`PYTHON_KERNEL_SECONDS`, or an engine's own account.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from automap.planner.cost.constants import EXPERT_OPERAND_HOST_SECONDS
from automap.planner.cost.rollout_engines import ENGINES, EngineProfile

PYTHON_KERNEL_SECONDS = EXPERT_OPERAND_HOST_SECONDS / 3.5
"""Host time of a kernel called from Python: the constant is fitted to runs of training that cast an
expert's operand, with three to four kernels each."""
ENGINE_LAYER_KERNELS = 12
"""Norm, projection, rotary, cache write, attention, projection, norm, projection, activation,
projection, and two all-reduces."""

VLLM_2024 = replace(
    ENGINES["vllm"],
    summary="vLLM 0.3.1, February 2024",
    # vLLM's own account of 0.5.3, an 8B model on an H100 (blog of v0.6.0, September 2024): 38 % of
    # the time are the GPU's, 29 % scheduling and preparing inputs in between. With 256 sequences we
    # price the GPU's part of a step at 12 ms.
    sequence_seconds=12e-3 * 0.29 / 0.38 / 256,
    all_reduce_share=1.0,  # not fused with what follows
    prefill_layer_seconds=ENGINE_LAYER_KERNELS * PYTHON_KERNEL_SECONDS,
    max_sequences=256,  # vllm/engine/arg_utils.py: max_num_seqs
)
HYBRIDFLOW = replace(
    VLLM_2024,
    summary="vLLM 0.3.1 in HybridFlow: no CUDA graphs, so that the cache can be freed",
    # verl 0.1, trainer/config/ppo_megatron_trainer.yaml: enforce_eager and free_cache_engine are
    # True, max_num_seqs is 1024.
    captured=False,
    max_sequences=1024,
)
OPENRLHF = replace(
    VLLM_2024,
    summary="vLLM as OpenRLHF calls it: one micro-batch of one rank at a time",
    # OpenRLHF 0.3.6, experience_maker.py: each rank sends its micro-batch to one engine, a Ray
    # actor, which takes one call after the other; ppo_trainer.py: micro_rollout_batch_size is 8.
    max_sequences=8,
)


@contextmanager
def generating_as(engine: EngineProfile | None) -> Iterator[None]:
    """Price what jobs call vllm as another engine; None: as it is."""
    before = ENGINES["vllm"]
    ENGINES["vllm"] = engine or before
    try:
        yield
    finally:
        ENGINES["vllm"] = before
