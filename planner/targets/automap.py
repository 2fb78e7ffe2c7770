"""Automap's own executor: what it can run."""

from automap.planner.targets.capabilities import (
    FEATURES,
    RolloutCapabilities,
    TrainingCapabilities,
)
from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.target import Target

MEGATRON = TrainingCapabilities(
    name="megatron",
    stacks=(
        "automap-megatron",
        "megatron-core",
        "nemo-rl",
        "verl-megatron",
        "megatron-2021",
        "megatron-2022",
        "megatron-deepspeed",
    ),
    # Context parallelism needs attention kernels that exchange keys (Transformer Engine).
    dimensions=frozenset({"tensor", "pipeline", "virtual_pipeline", "expert"}),
    shardings=frozenset({"none", "optimizer"}),
    scoring_shardings=frozenset({"none"}),
    # Decoders of the Llama family, dense or with experts in every layer.
    unknown_features=frozenset(FEATURES) - {"num_experts"},
    trains_adapters=False,
    expert_precisions=frozenset({"bf16", "fp32"}),
    tensor_divides=frozenset({"num_attention_heads", "intermediate_size", "moe_intermediate_size"}),
    tensor_repeats=frozenset({"num_key_value_heads"}),
    usual_stages=True,
    optimizer_cpu_offload=False,
)
FSDP = TrainingCapabilities(
    name="fsdp",
    stacks=(
        "automap-fsdp",
        "transformers-filled",
        "transformers",
        "fsdp",
        "verl",
        "fsdp-eager",
        "pytorch-bf16",
    ),
    dimensions=frozenset({"tensor", "context"}),
    shardings=frozenset({"gradient", "full"}),
    scoring_shardings=frozenset({"full"}),
    # Its attention has windows, and its layers are Transformers' own, with their biases.
    unknown_features=frozenset(FEATURES) - {"sliding_window", "attention_output_bias"},
    precisions=frozenset({"bf16", "fp32"}),
    tensor_divides=frozenset(
        {"num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"}
    ),
    # Each rank attends with whole heads; with fewer key-value heads than ranks, with a copy of one.
    context_parallelism="ulysses",
    context_divides=frozenset({"num_attention_heads"}),
    context_repeats=frozenset({"num_key_value_heads"}),
    optimizer_cpu_offload=False,
)
AUTOMAP = Target(
    name="automap",
    summary="Automap's executor: Megatron-core or FSDP2 to train and score, vLLM to generate",
    training=(MEGATRON, FSDP),
    rollout=RolloutCapabilities(
        names=frozenset({"vllm"}),
        cache_precisions=frozenset({"bf16"}),
        experts="tensor",
        # On a GPU vLLM's sleep mode owns its memory; on cores its parameters are the reshard's.
        own_weights=True,
        lends_on_cores=True,
        tensor_repeats=frozenset({"num_key_value_heads"}),
        # The executor has vLLM quantise 16-bit weights to 8 bits as they come. vLLM can make mxfp4
        # too, and nvfp4 of experts, which no run has shown; int4 it cannot.
        precisions=frozenset({"bf16", "fp16", "fp32", "fp8"}),
        precisions_on_gpus_only=frozenset({"fp8"}),
        head_dims_on_cores=frozenset({32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512}),
    ),
    in_place_of_gpus=(
        ("NCCL", "gloo"),
        ("fused attention of bf16 and fp16", "torch's, sequence by sequence"),
        ("fused AdamW", "AdamW by torch operators"),
        ("CUDA graphs and compiled kernels of vLLM", "eager execution"),
        ("vLLM gives its memory back while others run", "weights and cache stay"),
        ("long prompts in chunks", "every prompt whole"),
    ),
    # What lies across the end of another range nobody sets up by hand.
    ranges="nested",
    # vLLM refuses longer sequences than a model has positions for.
    within_positions=True,
    cuda_only=True,
    tails=False,
    continuous=ContinuousRules(
        cache_is_asked=True,
        trains_one_batch=False,
        # Dynamic sampling draws until a batch is full of groups that it keeps.
        not_algorithms=frozenset({"dapo"}),
    ),
    training_precisions=frozenset({"bf16", "fp16", "fp32"}),
    takes_memory_settings=False,
)
