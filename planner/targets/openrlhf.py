"""OpenRLHF 0.11.2: what it can run."""

from automap.planner.targets.forms import Form
from automap.planner.targets.framework import FrameworkRollout, FrameworkTarget, FrameworkTraining

OPENRLHF_ZERO = FrameworkTraining(
    name="zero",
    # Transformers' own layers with FlashAttention-2, as under verl's FSDP. With
    # train.dynamic_batch_enable it deals samples evenly to ranks and to micro-batches
    # (trainer/ppo_utils/replay_buffer.py, experience_maker.py).
    stacks=("transformers-filled", "transformers", "fsdp", "fsdp-eager"),
    # AutoTP splits nothing but the products, which no price knows (docs/guides/exporting.md).
    dimensions=frozenset({"context"}),
    # ZeRO 1, 2 and 3; models that only score are whole but under ZeRO 3.
    shardings=frozenset({"optimizer", "gradient", "full"}),
    scoring_shardings=frozenset({"none", "full"}),
    trains_adapters=False,
    context_parallelism="ring",
    recomputes=frozenset({"none", "full"}),
    offloads=frozenset({"none", "optimizer"}),
    # Weights on the host pass layer by layer in every micro-batch, which no price knows either.
    scoring_offloads=frozenset({"none"}),
    process_dimensions=("tensor", "context"),
    one_sharding=True,
)
_OPENRLHF_PAIRS = (frozenset({"actor", "reference"}), frozenset({"critic", "reward"}))
OPENRLHF_ROLES = frozenset({"actor", "reference", "critic", "reward"})
OPENRLHF = FrameworkTarget(
    name="openrlhf@0.11.2",
    summary="OpenRLHF 0.11.2: DeepSpeed ZeRO for all that trains and scores, vLLM to generate",
    training=(OPENRLHF_ZERO,),
    rollout=FrameworkRollout(
        names=frozenset({"vllm"}),
        experts="split",
        # It leaves max_num_seqs to vLLM, whose default for an engine like this is small.
        max_sequences=128,
    ),
    alike_roles=OPENRLHF_ROLES,
    forms=(
        Form("all models and rollouts together", False, (OPENRLHF_ROLES,), True, False),
        Form(
            "actor, reference and rollouts together, critic and reward model together elsewhere",
            False,
            _OPENRLHF_PAIRS,
            True,
            False,
            needs="critic",
        ),
        Form(
            "rollouts apart, actor and reference apart from critic and reward model",
            True,
            _OPENRLHF_PAIRS,
            False,
            None,
        ),
        Form("stale rollouts apart, all models together", True, (OPENRLHF_ROLES,), True, True),
    ),
    roles=OPENRLHF_ROLES,
    algorithms=frozenset({"ppo", "grpo", "reinforce_plus_plus", "rloo", "dapo"}),
    optimizers=frozenset({"adam"}),
    recomputes_log_probs=True,
    stale_rollouts_apart=True,
    even_batches=True,
    pretraining=False,
    shared_settings=True,
    packed_context=True,
    shared_reference=True,
)
