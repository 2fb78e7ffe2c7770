"""TRL 1.16.0: what it can run."""

from automap.planner.targets.framework import FrameworkRollout, FrameworkTarget, FrameworkTraining

TRL_ROLES = frozenset({"actor", "reference"})
"""What lives in each of accelerate's processes."""
TRL_ZERO = FrameworkTraining(
    name="zero",
    # Transformers' own layers, by accelerate: FSDP2, or DeepSpeed's ZeRO, which is priced alike.
    stacks=("transformers", "fsdp", "fsdp-eager"),
    # GRPOConfig refuses context and sequence parallelism; accelerate's tensor parallelism splits
    # nothing but the products, and generation is sent whole tensors of no such mesh.
    dimensions=frozenset(),
    # ZeRO 1 and 2, FSDP2 or ZeRO 3; a reference is whole but where the policy is fully sharded.
    shardings=frozenset({"optimizer", "gradient", "full"}),
    scoring_shardings=frozenset({"none", "full"}),
    trains_adapters=False,
    recomputes=frozenset({"none", "full"}),
    # Adam and weights on the host pass in every update, which no price knows, and nothing goes
    # there between phases.
    offloads=frozenset({"none"}),
    scoring_offloads=frozenset({"none"}),
    one_sharding=True,
    # A reward model scores a rank's whole batch in one call, which no micro-batch says.
    roles=TRL_ROLES,
)
TRL = FrameworkTarget(
    name="trl@1.16.0",
    summary="TRL 1.16.0: accelerate (FSDP2 or DeepSpeed ZeRO) to train and score, vLLM to generate",
    training=(TRL_ZERO,),
    rollout=FrameworkRollout(
        names=frozenset({"vllm"}),
        experts="split",
    ),
    process_roles=TRL_ROLES,
    roles=TRL_ROLES | {"reward"},
    algorithms=frozenset({"grpo", "rloo"}),
    optimizers=frozenset({"adam"}),
    recomputes_log_probs=True,
    max_staleness=0,
    even_batches=True,
    padded_only=True,
    kl_places=(("grpo", "loss"), ("rloo", "reward")),
    one_turn=True,
    shared_settings=True,
    one_micro_batch=True,
    one_server=True,
    shared_reference=True,
)
