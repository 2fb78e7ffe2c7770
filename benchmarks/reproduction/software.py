"""Inference software of the systems that papers compare, as the code of its versions has it.

Papers of 2024 generate with engines of their year, which the planner does not offer: plans are for
those of today. What differs is written over today's vLLM, for systems whose released code could be
read. Nothing here is fitted to a study: the host's seconds are counts of kernels times
`PYTHON_KERNEL_SECONDS`, or what an engine's own code takes without a GPU. What it takes on the
processors of a study, which none of them states, may be half as much or half as much again.
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
STEP_KERNELS = 20
"""Embedding, last norm, head, and to sample: a cast, temperature, top-k and top-p (sort, softmax,
sum, compare, scatter), softmax, draw, clamp, what has ended, and tokens, mask and positions of the
next step."""

VLLM_2024 = replace(
    ENGINES["vllm"],
    summary="vLLM 0.3.1, February 2024",
    # engine_host_work.py times its scheduler, inputs, sampling and outputs, on one core of an AMD
    # Zen 2 (2 GHz, Python 3.11).
    sequence_seconds=108e-6,
    # SamplingTensors.from_lists hands all tokens of all running sequences to the GPU anew in every
    # step, one Python number after the other, whether a penalty reads them or not.
    launched_sequence_seconds=5e-6,
    launched_token_seconds=0.163e-6,
    all_reduce_share=1.0,  # not fused with what follows
    # vllm/config.py: "Custom all-reduce kernels are temporarily disabled due to stability issues".
    custom_all_reduce=False,
    prefill_layer_seconds=ENGINE_LAYER_KERNELS * PYTHON_KERNEL_SECONDS,
    max_sequences=256,  # vllm/engine/arg_utils.py: max_num_seqs
)
HYBRIDFLOW = replace(
    VLLM_2024,
    summary="vLLM 0.3.1 in HybridFlow: no CUDA graphs, so that the cache can be freed",
    # The paper's generate_sequences returns a log-probability per token.
    sequence_seconds=126e-6,
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

EAGER = replace(
    ENGINES["vllm"],
    step_seconds=STEP_KERNELS * PYTHON_KERNEL_SECONDS,
    sequence_seconds=0.0,  # one tensor operation for the whole batch
    all_reduce_share=1.0,  # not fused with what follows
    custom_all_reduce=False,  # torch.distributed
    prefill_layer_seconds=ENGINE_LAYER_KERNELS * PYTHON_KERNEL_SECONDS,
    captured=False,
)
"""A training framework's own loop over tokens: a batch of fixed size whose steps a process launches
kernel by kernel."""
DEEPSPEED_CHAT = replace(
    EAGER,
    # DeepSpeed 0.14.0, runtime/hybrid_engine.py: generate() gathers the layers of a tensor group
    # and calls the model's own generate, whose layers are DeepSpeed's; nothing is captured.
    summary="DeepSpeed's hybrid engine: a rank's whole batch, kernels launched one by one",
)
NEMO_ALIGNER = replace(
    EAGER,
    summary="NeMo's own generation: a micro-batch of 8 at a time, kernels launched one by one",
    # NeMo-Aligner 0.2.0, algorithms/ppo.py: each data rank takes one micro-batch after the other
    # through generate(); its size, rollout_micro_batch_size, is taken to be the example's 8 (the
    # paper does not state it). NeMo 1.22,
    # text_generation_utils.py and text_generation_strategy.py: keys and values are cached, a step
    # passes one token of each sequence.
    max_sequences=8,
)
REAL = replace(
    EAGER,
    summary="ReaL's own generation: a data rank's whole batch in CUDA graphs, sums by NCCL",
    # ReaL 0.3.0, model_parallel/mappings.py: "abandon custom_all_reduce"; real_llm_generate.py: the
    # cache holds all sequences from the start. README: "high-throughput generation with CUDAGraph";
    # nothing says which runs used it (use_cuda_graph).
    captured=True,
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
