"""AReaL 1.0.4: what it can run."""

from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.framework import (
    FrameworkMegatron,
    FrameworkRollout,
    FrameworkTarget,
    FrameworkTraining,
)

AREAL_ROLES = frozenset({"actor", "reference", "critic"})
"""What AReaL has engines for; rewards are functions."""
AREAL_ALGORITHMS = frozenset({"ppo", "grpo", "reinforce_plus_plus", "rloo"})
AREAL_MEGATRON = FrameworkMegatron(
    # Its configuration has no word for it.
    optimizer_cpu_offload=False,
    # Gradients are not overlapped, and sequences are dealt to ranks evenly by their tokens.
    stacks=("verl-megatron", "megatron-core"),
    shardings=frozenset({"none", "optimizer"}),
    scoring_shardings=frozenset({"none"}),
    trains_adapters=False,
    equal_stages=True,
    roles=AREAL_ROLES,
    # What goes to the host comes back before the others on the GPUs are done.
    offloads=frozenset({"none"}),
)
AREAL_FSDP = FrameworkTraining(
    name="fsdp",
    # Transformers' modules, and micro-batches of so many tokens, as in verl.
    stacks=("verl", "fsdp"),
    dimensions=frozenset({"tensor", "context"}),
    # Its plan of tensor parallelism leaves experts whole.
    dense_dimensions=frozenset({"tensor"}),
    shardings=frozenset({"full"}),
    scoring_shardings=frozenset({"full"}),
    trains_adapters=False,
    tensor_divides=frozenset(
        {"num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"}
    ),
    context_parallelism="ulysses",
    context_divides=frozenset({"num_attention_heads"}),
    context_repeats=frozenset({"num_key_value_heads"}),
    # As in verl, every rank would have the sinks of all heads, and a state that runs along the
    # sequence would see a rank's slice alone (models/transformers/ulyssess_patch.py).
    context_unknown_features=frozenset({"attention_sinks", "gated_delta_net", "mamba2"}),
    recomputes=frozenset({"none", "full"}),
    roles=AREAL_ROLES,
    offloads=frozenset({"none"}),
)
AREAL = FrameworkTarget(
    name="areal@1.0.4",
    summary="AReaL 1.0.4: Megatron-core or FSDP2 per model, vLLM or SGLang on GPUs of their own",
    training=(AREAL_MEGATRON, AREAL_FSDP),
    rollout=FrameworkRollout(
        names=frozenset({"vllm", "sglang"}),
        experts="split",
    ),
    roles=AREAL_ROLES | {"reward"},
    algorithms=AREAL_ALGORITHMS,
    optimizers=frozenset({"adam"}),
    one_engine=True,
    # On the actor's GPUs its engines are of one GPU each, start while the actor is there, and read
    # new weights from a disk, whose seconds no price knows.
    rollouts_apart=True,
    pretraining=False,
    one_epoch=True,
    kl_places=tuple((algorithm, "reward") for algorithm in sorted(AREAL_ALGORITHMS)),
    turns=(
        ("critic", "forward"),
        ("reference", "forward"),
        ("actor", "forward"),
        ("actor", "train"),
        ("critic", "train"),
    ),
    # Workers, requests that weights interrupt, and a bound on what is accepted or runs
    # (infra/staleness_manager.py); no batch waits for a response.
    continuous=ContinuousRules(only=True, keeps_cache=False, waits_for_oldest=False),
    packed_only=True,
    settings_of_role=True,
    whole_prompts=True,
)
