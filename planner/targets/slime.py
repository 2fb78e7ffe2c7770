"""slime 0.3.1: what it can run."""

from automap.planner.targets.framework import FrameworkMegatron, FrameworkRollout, FrameworkTarget

SLIME_ROLES = frozenset({"actor", "reference", "critic"})
"""What lives in one process per GPU in slime: one Megatron with one set of arguments."""
SLIME_MEGATRON = FrameworkMegatron(
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
    rollout=FrameworkRollout(
        names=frozenset({"sglang"}),
        experts="replicas",
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
