"""REINFORCE++: PPO's clipped loss, advantages normalised over the batch, no critic."""

from automap.planner.dataflow.algorithms.program import (
    Data,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def reinforce_plus_plus(models: Models, prompts: Data, ops: Ops) -> None:
    """Run one iteration of REINFORCE++."""
    rollout = models.actor.generate(prompts)
    old = old_log_probs(models, rollout, ops)
    reference = reference_log_probs(models, rollout, ops)
    rewards = ops.penalise_kl(models.reward.score(rollout), old, reference.for_reward)
    models.actor.train(
        rollout,
        loss="ppo_clip",
        old_log_probs=old,
        advantages=ops.batch_normalise(rewards),
        reference_log_probs=reference.for_loss,
    )


PROGRAM = Program(
    name="reinforce_plus_plus",
    run=reinforce_plus_plus,
    roles=("actor", "reward"),
    optional_roles=("reference",),
    has_importance_ratio=True,
    paper="Hu et al. 2025, arXiv:2501.03262",
)
