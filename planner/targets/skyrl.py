"""SkyRL 0.3.0: what it can run."""

from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.forms import Form
from automap.planner.targets.framework import (
    FrameworkMegatron,
    FrameworkRollout,
    FrameworkTarget,
    FrameworkTraining,
)

SKYRL_ROLES = frozenset({"actor", "reference", "critic"})
"""Models that SkyRL has; its environments score, on GPUs that it knows nothing of."""
SKYRL_FSDP = FrameworkTraining(
    name="fsdp",
    # Transformers' layers; trainer.max_tokens_per_microbatch packs evenly within a rank
    # (workers/worker_utils.py, TokenBasedBatchIterator).
    stacks=("transformers-filled", "transformers", "fsdp", "fsdp-eager"),
    dimensions=frozenset({"context"}),
    shardings=frozenset({"gradient", "full"}),
    scoring_shardings=frozenset({"full"}),
    trains_adapters=False,
    context_parallelism="ulysses",
    context_divides=frozenset({"num_attention_heads"}),
    context_repeats=frozenset({"num_key_value_heads"}),
    # gpt-oss has an attention of its own, which sees a rank's slice alone
    # (patches/gptoss/patch_transformers.py); so does a state that runs along the sequence.
    context_unknown_features=frozenset({"attention_sinks", "gated_delta_net", "mamba2"}),
    roles=SKYRL_ROLES,
    # The optimizer goes to the host with the weights (optimizer_config.offload_after_step).
    offloads=frozenset({"none", "weights"}),
    recomputes=frozenset({"none", "full"}),
)
SKYRL_MEGATRON = FrameworkMegatron(
    # Its DDP leaves Megatron-core's overlap of gradients off, as verl's does.
    stacks=("verl-megatron", "megatron-core"),
    dimensions=frozenset({"tensor", "pipeline", "context", "expert"}),
    shardings=frozenset({"optimizer"}),
    scoring_shardings=frozenset({"none"}),
    trains_adapters=False,
    uniform_middle=True,
    # A critic is FSDP's alone, and then everything is.
    roles=SKYRL_ROLES - {"critic"},
    offloads=frozenset({"none", "weights"}),
)
SKYRL = FrameworkTarget(
    name="skyrl@0.3.0",
    summary="SkyRL 0.3.0: FSDP2 or Megatron-core for all that trains, vLLM to generate",
    training=(SKYRL_FSDP, SKYRL_MEGATRON),
    rollout=FrameworkRollout(
        names=frozenset({"vllm"}),
        experts="replicas",
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
    # One number of tokens for all calls, and ranks have sequences as they come.
    one_micro_batch=True,
    deals_tokens=False,
    turns=(
        ("reference", "forward"),
        ("critic", "forward"),
        ("actor", "forward"),
        ("critic", "train"),
        ("actor", "train"),
    ),
    # As AReaL (train/fully_async_trainer.py), but engines pause, and keep the cache unless
    # trainer.fully_async.clear_kv_cache_on_weight_sync says otherwise.
    continuous=ContinuousRules(
        only=True, keeps_cache=True, cache_is_asked=True, waits_for_oldest=False
    ),
    packed_context=True,
    shared_reference=True,
)
