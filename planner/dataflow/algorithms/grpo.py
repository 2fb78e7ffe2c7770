"""GRPO: the responses to one prompt are each other's baseline, so there is no critic."""

from automap.planner.dataflow.algorithms.program import (
    Data,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def grpo(models: Models, prompts: Data, ops: Ops) -> None:
    """Run one iteration of GRPO."""
    rollout = models.actor.generate(prompts)
    old = old_log_probs(models, rollout, ops)
    reference = reference_log_probs(models, rollout, ops)
    rewards = ops.penalise_kl(models.reward.score(rollout), old, reference.for_reward)
    advantages = ops.group_normalise(rewards)
    past = {"old_log_probs": old, "reference_log_probs": reference.for_loss}
    models.actor.train(rollout, loss="ppo_clip", advantages=advantages, **past)


PROGRAM = Program(
    name="grpo",
    run=grpo,
    roles=("actor", "reward"),
    optional_roles=("reference",),
    has_importance_ratio=True,
    paper="Shao et al. 2024, arXiv:2402.03300",
)
