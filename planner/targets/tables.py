"""The targets that `search.target` names, each a table of what it can run."""

from typing import get_args

from automap.planner.spec import JobSpec, RolloutEngine, TargetName, TrainingStack
from automap.planner.targets.capabilities import (
    FEATURES,
    RolloutCapabilities,
    TrainingCapabilities,
)
from automap.planner.targets.target import Target

MEGATRON = TrainingCapabilities(
    name="megatron",
    stacks=(
        "automap-megatron",
        "megatron-core",
        "nemo-rl",
        "verl-megatron",
        "megatron-2021",
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
)
FSDP = TrainingCapabilities(
    name="fsdp",
    stacks=("fsdp", "verl", "fsdp-eager", "pytorch-bf16"),
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
)
AUTOMAP = Target(
    name="automap",
    summary="Automap's executor: Megatron-core or FSDP2 to train and score, vLLM to generate",
    training=(MEGATRON, FSDP),
    rollout=RolloutCapabilities(
        names=frozenset({"vllm"}),
        cache_precisions=frozenset({"bf16"}),
        experts="tensor",
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
    cuda_only=True,
    streams=False,
    training_precisions=frozenset({"bf16", "fp16", "fp32"}),
    takes_memory_settings=False,
)
VERL_ROLES = frozenset({"actor", "reference", "critic"})
"""What lives in one process per GPU in verl."""
VERL_MEGATRON = TrainingCapabilities(
    name="megatron",
    stacks=("verl-megatron", "megatron-core"),
    shardings=frozenset({"none", "optimizer"}),
    scoring_shardings=frozenset({"none"}),
    # Whether it trains an indexer is not known: no run of it with one is.
    unknown_features=frozenset(
        {"indexer", "learned_position_embeddings", "linear_bias", "norm_bias"}
    ),
    trains_adapters=False,
    precisions=frozenset({"bf16"}),
    expert_precisions=frozenset({"bf16"}),
    usual_stages=True,
    roles=VERL_ROLES,
    # One global parallel state: what the engine that is built first has goes for all.
    process_dimensions=("tensor", "pipeline", "virtual_pipeline", "context", "expert"),
    uniform_middle=True,
)
VERL_FSDP = TrainingCapabilities(
    name="fsdp",
    stacks=("verl", "fsdp"),
    dimensions=frozenset({"context"}),
    unknown_features=frozenset({"indexer"}),
    shardings=frozenset({"gradient", "full"}),
    scoring_shardings=frozenset({"full"}),
    precisions=frozenset({"bf16"}),
    expert_precisions=frozenset({"bf16"}),
    context_parallelism="ulysses",
    context_divides=frozenset({"num_attention_heads"}),
    context_repeats=frozenset({"num_key_value_heads"}),
    roles=VERL_ROLES,
    # The reference is on the host whatever its settings say.
    scoring_offloads=frozenset({"weights"}),
    recomputes=frozenset({"none", "full"}),
)
VERL_SERVED = TrainingCapabilities(
    name="served",
    stacks=("verl-megatron", "megatron-core", "verl", "fsdp"),
    dimensions=frozenset({"tensor"}),
    scoring_shardings=frozenset({"none"}),
    roles=frozenset({"reward"}),
)
VERL = Target(
    name="verl@0.9.1",
    summary="verl 0.9.1: Megatron-core or FSDP for all that trains, vLLM or SGLang to generate",
    training=(VERL_MEGATRON, VERL_FSDP, VERL_SERVED),
    rollout=RolloutCapabilities(
        names=frozenset({"vllm", "sglang"}),
        precisions=frozenset({"bf16", "fp8"}),
        cache_precisions=frozenset({"bf16"}),
        experts="replicas",
        pipelines=False,
        tensor_repeats=frozenset({"num_key_value_heads"}),
    ),
    process_roles=VERL_ROLES,
    roles=VERL_ROLES | {"reward"},
    algorithms=frozenset({"ppo", "grpo", "remax", "rloo", "reinforce_plus_plus", "dapo"}),
    # Its ReMax is the older trainer's.
    not_apart=frozenset({"remax"}),
    one_engine=True,
    one_gpu_type=True,
    ranges="equal",
    shadows_apart=True,
    stale_rollouts_apart=True,
    tensor_in_node=True,
    whole_nodes=True,
    even_batches=True,
    within_positions=True,
    pretraining=False,
    served_roles=frozenset({"reward"}),
    one_epoch_apart=True,
    overlaps_only_stale=True,
    packed_context=True,
    shared_reference=True,
    # What is exported has been held against verl's CUDA installation alone.
    cuda_only=True,
    streams=False,
    training_precisions=frozenset({"bf16"}),
    takes_memory_settings=False,
)
SLIME_ROLES = frozenset({"actor", "reference", "critic"})
"""What lives in one process per GPU in slime: one Megatron with one set of arguments."""
SLIME_MEGATRON = TrainingCapabilities(
    name="megatron",
    # Its arguments leave Megatron-core's overlap of gradients off and deal sequences evenly
    # (--balance-data), which is what the first of these is.
    stacks=("verl-megatron", "megatron-core"),
    # The distributed optimizer is always on.
    shardings=frozenset({"optimizer"}),
    scoring_shardings=frozenset({"none"}),
    # Models that its arguments describe: layers that are alike, but for leading dense ones.
    unknown_features=frozenset(
        {
            "indexer",
            "layer_kinds",
            "sliding_window",
            "attention_chunk_size",
            "attention_output_bias",
            "attention_output_gate",
            "attention_sinks",
            "query_key_norm_over_heads",
            "sandwich_norms",
            "expert_norms",
            "expert_latent_size",
            "learned_position_embeddings",
            "linear_bias",
            "norm_bias",
            "gated_mlp",
        }
    ),
    trains_adapters=False,
    precisions=frozenset({"bf16"}),
    expert_precisions=frozenset({"bf16"}),
    usual_stages=True,
    roles=SLIME_ROLES,
    process_dimensions=("tensor", "pipeline", "virtual_pipeline", "context", "expert"),
    uniform_middle=True,
    # Everything goes to the host, or nothing; Adam on the host is another optimizer.
    offloads=frozenset({"none", "weights"}),
    # The reference is a copy on the host that is swapped in.
    scoring_offloads=frozenset({"weights"}),
)
SLIME = Target(
    name="slime@0.3.1",
    summary="slime 0.3.1: Megatron-core for all that trains, SGLang to generate",
    training=(SLIME_MEGATRON,),
    rollout=RolloutCapabilities(
        names=frozenset({"sglang"}),
        precisions=frozenset({"bf16"}),
        cache_precisions=frozenset({"bf16"}),
        experts="replicas",
        pipelines=False,
        tensor_repeats=frozenset({"num_key_value_heads"}),
    ),
    process_roles=SLIME_ROLES,
    roles=SLIME_ROLES | {"reward"},
    algorithms=frozenset({"ppo", "grpo", "reinforce_plus_plus", "dapo"}),
    one_gpu_type=True,
    ranges="equal",
    shadows_apart=True,
    stale_rollouts_apart=True,
    tensor_in_node=True,
    whole_nodes=True,
    even_batches=True,
    within_positions=True,
    pretraining=False,
    one_epoch=True,
    max_staleness=1,
    packed_only=True,
    shared_settings=True,
    offloads_to_generate=True,
    offloads_to_train=True,
    overlaps_only_stale=True,
    shared_reference=True,
    cuda_only=True,
    streams=False,
    training_precisions=frozenset({"bf16"}),
    takes_memory_settings=False,
)
ANY = Target(
    name="any",
    summary="whatever can be priced, for research: no software is known to run all of it",
    # What is priced is the software that a layout belongs to, as for automap.
    training=(
        TrainingCapabilities(
            name="any",
            stacks=("automap-megatron", *get_args(TrainingStack)),
            shardings=frozenset({"none", "optimizer"}),
            scoring_shardings=frozenset({"none"}),
        ),
        TrainingCapabilities(name="any", stacks=("fsdp", *get_args(TrainingStack))),
    ),
    rollout=RolloutCapabilities(names=frozenset(get_args(RolloutEngine))),
    # Published plans had no margin of this kind and were not simplified, nor is what reproduces
    # them.
    max_out_of_memory_probability=1.0,
    simplicity_tolerance=0.0,
)
TARGETS: dict[TargetName, Target] = {target.name: target for target in (AUTOMAP, VERL, SLIME, ANY)}


def inside(spec: JobSpec, name: TargetName) -> JobSpec:
    """The job as it is planned for a target, and no strategy.

    Where the spec leaves open what generates, it is an engine that the target has.
    """
    search = spec.search.model_copy(update={"target": name, "strategy": None})
    workload, known = spec.workload, TARGETS[name].rollout.names
    if "rollout_engine" not in workload.model_fields_set and workload.rollout_engine not in known:
        workload = workload.model_copy(update={"rollout_engine": min(known)})
    return spec.model_copy(update={"search": search, "workload": workload})
