"""verl 0.9.1: what it can run."""

from automap.planner.targets.capabilities import TrainingCapabilities
from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.framework import (
    FrameworkMegatron,
    FrameworkRollout,
    FrameworkTarget,
    FrameworkTraining,
)

VERL_ROLES = frozenset({"actor", "reference", "critic"})
"""What lives in one process per GPU in verl."""
VERL_MEGATRON = FrameworkMegatron(
    stacks=("verl-megatron", "megatron-core"),
    shardings=frozenset({"none", "optimizer"}),
    scoring_shardings=frozenset({"none"}),
    roles=VERL_ROLES,
    # One global parallel state: what the engine that is built first has goes for all.
    process_dimensions=("tensor", "pipeline", "virtual_pipeline", "context", "expert"),
    uniform_middle=True,
)
VERL_FSDP = FrameworkTraining(
    name="fsdp",
    stacks=("verl", "fsdp"),
    dimensions=frozenset({"context"}),
    shardings=frozenset({"gradient", "full"}),
    scoring_shardings=frozenset({"full"}),
    context_parallelism="ulysses",
    context_divides=frozenset({"num_attention_heads"}),
    context_repeats=frozenset({"num_key_value_heads"}),
    # Heads are exchanged before attention, the sinks of each head are not: every rank has all
    # (models/transformers/monkey_patch.py). A state that runs along the sequence needs a forward of
    # its own, which gated linear attention alone has (models/transformers/qwen3_5.py).
    context_unknown_features=frozenset({"attention_sinks", "mamba2"}),
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
VERL = FrameworkTarget(
    name="verl@0.9.1",
    summary="verl 0.9.1: Megatron-core or FSDP for all that trains, vLLM or SGLang to generate",
    training=(VERL_MEGATRON, VERL_FSDP, VERL_SERVED),
    rollout=FrameworkRollout(
        names=frozenset({"vllm", "sglang"}),
        precisions=frozenset({"bf16", "fp8"}),
        experts="replicas",
    ),
    process_roles=VERL_ROLES,
    roles=VERL_ROLES | {"reward"},
    algorithms=frozenset({"ppo", "grpo", "remax", "rloo", "reinforce_plus_plus", "dapo"}),
    # Its ReMax is the older trainer's.
    not_apart=frozenset({"remax"}),
    one_engine=True,
    stale_rollouts_apart=True,
    even_batches=True,
    pretraining=False,
    served_roles=frozenset({"reward"}),
    one_epoch_apart=True,
    # separate_async: batches are handed out ahead, and weights interrupt what is in flight
    # (trainer/ppo/v1/trainer_separate_async.py).
    continuous=ContinuousRules(only=True, keeps_cache=False),
    packed_context=True,
    shared_reference=True,
)
