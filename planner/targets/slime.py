"""slime 0.3.1: what it can run."""

from automap.planner.targets.capabilities import RolloutCapabilities, TrainingCapabilities
from automap.planner.targets.framework import FrameworkTarget

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
SLIME = FrameworkTarget(
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
    stale_rollouts_apart=True,
    even_batches=True,
    pretraining=False,
    one_epoch=True,
    max_staleness=1,
    packed_only=True,
    shared_settings=True,
    offloads_to_generate=True,
    offloads_to_train=True,
    shared_reference=True,
)
