"""NeMo-RL 0.7.0: what it can run."""

from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.framework import (
    FrameworkMegatron,
    FrameworkRollout,
    FrameworkTarget,
    FrameworkTraining,
)

NEMO_RL_ROLES = frozenset({"actor", "reference"})
"""What lives in one process per GPU in NeMo-RL: the reference is a copy of the policy."""
NEMO_RL_MEGATRON = FrameworkMegatron(
    stacks=("nemo-rl", "megatron-core"),
    dimensions=frozenset({"tensor", "pipeline", "context", "expert"}),
    shardings=frozenset({"optimizer"}),
    scoring_shardings=frozenset({"none"}),
    trains_adapters=False,
    roles=NEMO_RL_ROLES,
    process_dimensions=("tensor", "pipeline", "context", "expert"),
    uniform_middle=True,
    # Adam on the host is another optimizer; else all of it goes there, or nothing.
    offloads=frozenset({"none", "weights"}),
    # The reference is a copy on the host that is swapped in.
    scoring_offloads=frozenset({"weights"}),
)
NEMO_RL_DTENSOR = FrameworkTraining(
    name="fsdp",
    # Transformers' modules, and micro-batches of so many tokens, as in verl.
    stacks=("verl", "fsdp"),
    # Its context parallelism takes no packed sequences.
    dimensions=frozenset({"tensor"}),
    # Nor does its tensor parallelism split experts.
    dense_dimensions=frozenset({"tensor"}),
    shardings=frozenset({"full"}),
    scoring_shardings=frozenset({"full"}),
    trains_adapters=False,
    tensor_divides=frozenset(
        {"num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"}
    ),
    roles=NEMO_RL_ROLES,
    process_dimensions=("tensor",),
    offloads=frozenset({"none", "weights"}),
    scoring_offloads=frozenset({"weights"}),
    recomputes=frozenset({"none", "full"}),
)
NEMO_RL = FrameworkTarget(
    name="nemo-rl@0.7.0",
    summary="NeMo-RL 0.7.0: Megatron-core or DTensor (FSDP2) for all that trains, vLLM to generate",
    training=(NEMO_RL_MEGATRON, NEMO_RL_DTENSOR),
    rollout=FrameworkRollout(
        names=frozenset({"vllm"}),
        precisions=frozenset({"bf16", "fp8"}),
        experts="replicas",
    ),
    process_roles=NEMO_RL_ROLES,
    roles=NEMO_RL_ROLES | {"reward"},
    algorithms=frozenset({"grpo", "reinforce_plus_plus", "dapo"}),
    # grpo.use_dynamic_sampling does not start with grpo.async_grpo.
    not_stale=frozenset({"dapo"}),
    stale_rollouts_apart=True,
    even_batches=True,
    pretraining=False,
    one_epoch=True,
    packed_only=True,
    recomputes_log_probs=True,
    shared_settings=True,
    offloads_to_generate=True,
    shared_reference=True,
    # grpo.async_grpo.in_flight_weight_updates; without it batches drain before weights come.
    continuous=ContinuousRules(keeps_cache=True, cache_is_asked=True),
)
