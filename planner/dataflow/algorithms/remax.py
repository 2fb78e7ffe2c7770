"""ReMax: REINFORCE with the reward of a greedy response as baseline."""

from automap.planner.dataflow.algorithms.program import (
    Data,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def remax(models: Models, prompts: Data, ops: Ops) -> None:
    """Run one iteration of ReMax.

    The loss has no importance ratio: only the KL reads log-probabilities before the update.
    """
    rollout = models.actor.generate(prompts)
    greedy = models.actor.generate(prompts, greedy=True)
    reference = reference_log_probs(models, rollout, ops)
    needs_old = reference.for_reward is not None
    old = old_log_probs(models, rollout, ops) if needs_old else None
    rewards = ops.penalise_kl(models.reward.score(rollout), old, reference.for_reward)
    advantages = ops.subtract(rewards, models.reward.score(greedy, name="greedy"))
    past = {"reference_log_probs": reference.for_loss}
    models.actor.train(rollout, loss="policy_gradient", advantages=advantages, **past)


PROGRAM = Program(
    name="remax",
    run=remax,
    roles=("actor", "reward"),
    optional_roles=("reference",),
    has_importance_ratio=False,
    paper="Li et al. 2023, arXiv:2310.10505",
)
