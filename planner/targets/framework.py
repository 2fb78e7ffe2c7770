"""What holds for the targets of all frameworks, and for what trains and generates in them."""

from functools import partial

from automap.planner.targets.capabilities import RolloutCapabilities, TrainingCapabilities
from automap.planner.targets.target import Target

BF16 = frozenset({"bf16"})

FrameworkTarget = partial(
    Target,
    one_gpu_type=True,
    # Their pools are whole processes: two models have the same GPUs or none in common.
    ranges="equal",
    shadows_apart=True,
    tensor_in_node=True,
    whole_nodes=True,
    within_positions=True,
    overlaps_only_stale=True,
    # What is exported has been held against their installations for CUDA alone.
    cuda_only=True,
    streams=False,
    tails=False,
    training_precisions=BF16,
    takes_memory_settings=False,
)
"""A `Target` with what no framework's launch can say otherwise; the rest is each one's own."""
FrameworkTraining = partial(
    TrainingCapabilities,
    # Whether they train an indexer is not known: no run of one with it is.
    unknown_features=frozenset({"indexer"}),
    precisions=BF16,
    expert_precisions=BF16,
    optimizer_cpu_offload=False,
)
"""`TrainingCapabilities` likewise."""
FrameworkMegatron = partial(
    FrameworkTraining,
    name="megatron",
    unknown_features=frozenset(
        {"indexer", "learned_position_embeddings", "linear_bias", "norm_bias"}
    ),
    # Megatron-core 0.16 asserts it (transformer/transformer_config.py).
    context_unknown_features=frozenset({"gated_delta_net"}),
    usual_stages=True,
    optimizer_cpu_offload=True,
)
"""`TrainingCapabilities` of Megatron-core likewise."""
FrameworkRollout = partial(
    RolloutCapabilities,
    precisions=BF16,
    cache_precisions=BF16,
    # Some have engines in stages, which no plan uses.
    pipelines=False,
    tensor_repeats=frozenset({"num_key_value_heads"}),
    # Their engines are processes of vLLM or SGLang, into whose parameters weights are copied.
    own_weights=True,
    # One rank of training, or one of each pipeline stage, gathers tensor after tensor and sends it
    # to all ranks of the engines, which keep their parts.
    whole_syncs=True,
)
"""`RolloutCapabilities` likewise."""
