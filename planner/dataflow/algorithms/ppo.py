"""PPO with a critic, as in InstructGPT."""

from automap.planner.dataflow.algorithms.program import (
    Data,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def ppo(models: Models, prompts: Data, ops: Ops) -> None:
    """Run one iteration of PPO."""
    rollout = models.actor.generate(prompts)
    old = old_log_probs(models, rollout, ops)
    reference = reference_log_probs(models, rollout, ops)
    values = models.critic.values(rollout)
    rewards = ops.penalise_kl(models.reward.score(rollout), old, reference.for_reward)
    advantages, returns = ops.gae(rewards, values)
    past = {"old_log_probs": old, "reference_log_probs": reference.for_loss}
    pretrain = ops.pretrain_batch()
    models.actor.train(rollout, loss="ppo_clip", advantages=advantages, pretrain=pretrain, **past)
    models.critic.train(rollout, loss="value", values=values, returns=returns)


PROGRAM = Program(
    name="ppo",
    run=ppo,
    roles=("actor", "critic", "reward"),
    optional_roles=("reference",),
    has_importance_ratio=True,
    paper="Schulman et al. 2017, arXiv:1707.06347; Ouyang et al. 2022, arXiv:2203.02155",
)
