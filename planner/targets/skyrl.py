"""SkyRL 0.3.0: what it can run."""

from automap.planner.targets.capabilities import RolloutCapabilities, TrainingCapabilities
from automap.planner.targets.forms import Form
from automap.planner.targets.framework import FrameworkTarget

SKYRL_ROLES = frozenset({"actor", "reference", "critic"})
"""Models that SkyRL has; its environments score, on GPUs that it knows nothing of."""
SKYRL_FSDP = TrainingCapabilities(
    name="fsdp",
    stacks=("fsdp", "fsdp-eager"),
    dimensions=frozenset({"context"}),
    unknown_features=frozenset({"indexer"}),
    shardings=frozenset({"gradient", "full"}),
    scoring_shardings=frozenset({"full"}),
    trains_adapters=False,
    precisions=frozenset({"bf16"}),
    expert_precisions=frozenset({"bf16"}),
    context_parallelism="ulysses",
    context_divides=frozenset({"num_attention_heads"}),
    context_repeats=frozenset({"num_key_value_heads"}),
    roles=SKYRL_ROLES,
    # The optimizer goes to the host with the weights (optimizer_config.offload_after_step).
    offloads=frozenset({"none", "weights"}),
    recomputes=frozenset({"none", "full"}),
)
SKYRL_MEGATRON = TrainingCapabilities(
    name="megatron",
    # Its DDP leaves Megatron-core's overlap of gradients off, as verl's does.
    stacks=("verl-megatron", "megatron-core"),
    dimensions=frozenset({"tensor", "pipeline", "context", "expert"}),
    shardings=frozenset({"optimizer"}),
    scoring_shardings=frozenset({"none"}),
    unknown_features=frozenset(
        {"indexer", "learned_position_embeddings", "linear_bias", "norm_bias"}
    ),
    trains_adapters=False,
    precisions=frozenset({"bf16"}),
    expert_precisions=frozenset({"bf16"}),
    usual_stages=True,
    uniform_middle=True,
    # A critic is FSDP's alone, and then everything is.
    roles=SKYRL_ROLES - {"critic"},
    offloads=frozenset({"none", "weights"}),
)
SKYRL = FrameworkTarget(
    name="skyrl@0.3.0",
    summary="SkyRL 0.3.0: FSDP2 or Megatron-core for all that trains, vLLM to generate",
    training=(SKYRL_FSDP, SKYRL_MEGATRON),
    rollout=RolloutCapabilities(
        names=frozenset({"vllm"}),
        precisions=frozenset({"bf16"}),
        cache_precisions=frozenset({"bf16"}),
        experts="replicas",
        # Its engines take stages; weights have been sent to none that has some.
        pipelines=False,
        tensor_repeats=frozenset({"num_key_value_heads"}),
    ),
    alike_roles=SKYRL_ROLES,
    forms=(
        Form("all models and rollouts together", False, (SKYRL_ROLES,), True, False, in_turn=True),
        Form(
            "rollouts apart, actor and reference together, the critic elsewhere",
            True,
            (frozenset({"actor", "reference"}), frozenset({"critic"})),
            True,
            None,
            needs="reference",
            in_turn=True,
        ),
        Form(
            "rollouts and each model apart",
            True,
            tuple(frozenset({role}) for role in sorted(SKYRL_ROLES)),
            True,
            None,
            in_turn=True,
        ),
    ),
    roles=SKYRL_ROLES | {"reward"},
    algorithms=frozenset({"ppo", "grpo", "rloo", "reinforce_plus_plus", "dapo"}),
    optimizers=frozenset({"adam"}),
    recomputes_for_reward_kl=True,
    stale_rollouts_apart=True,
    one_stale_update=True,
    even_batches=True,
    pretraining=False,
    shared_settings=True,
    turns=(
        ("reference", "forward"),
        ("critic", "forward"),
        ("actor", "forward"),
        ("critic", "train"),
        ("actor", "train"),
    ),
    packed_context=True,
    shared_reference=True,
)
