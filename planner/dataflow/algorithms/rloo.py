"""RLOO: REINFORCE with the mean reward of the prompt's other responses as baseline."""

from automap.planner.dataflow.algorithms.program import (
    Data,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def rloo(models: Models, prompts: Data, ops: Ops) -> None:
    """Run one iteration of RLOO.

    The loss has no importance ratio: only the KL reads log-probabilities before the update.
    """
    rollout = models.actor.generate(prompts)
    reference = reference_log_probs(models, rollout, ops)
    needs_log_probs = reference.for_reward is not None
    log_probs = old_log_probs(models, rollout, ops) if needs_log_probs else None
    rewards = ops.penalise_kl(models.reward.score(rollout), log_probs, reference.for_reward)
    models.actor.train(
        rollout,
        loss="policy_gradient",
        advantages=ops.leave_one_out(rewards),
        reference_log_probs=reference.for_loss,
    )


PROGRAM = Program(
    name="rloo",
    run=rloo,
    roles=("actor", "reward"),
    optional_roles=("reference",),
    has_importance_ratio=False,
    paper="Ahmadian et al. 2024, arXiv:2402.14740",
)
