"""Safe-RLHF: PPO on a reward and a cost, joined by a Lagrange multiplier."""

from planner.algorithms.program import (
    Data,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def safe_rlhf(models: Models, prompts: Data, ops: Ops) -> None:
    """One iteration. Without a cost critic the critic learns reward and cost joined."""
    rollout = models.actor.generate(prompts)
    old = old_log_probs(models, rollout, ops)
    reference = reference_log_probs(models, rollout, ops)
    values = models.critic.values(rollout)
    rewards = ops.penalise_kl(models.reward.score(rollout), old, reference.for_reward)
    costs = models.cost.score(rollout)
    if "cost_critic" in models:
        cost_values = models.cost_critic.values(rollout)
        reward_advantages, returns = ops.gae(rewards, values)
        cost_advantages, cost_returns = ops.gae(costs, cost_values)
        advantages = ops.lagrangian(reward_advantages, cost_advantages)
    else:
        advantages, returns = ops.gae(ops.lagrangian(rewards, costs), values)
    models.actor.train(
        rollout,
        loss="ppo_clip",
        old_log_probs=old,
        advantages=advantages,
        reference_log_probs=reference.for_loss,
        pretrain=ops.pretrain_batch(),
    )
    models.critic.train(rollout, loss="value", values=values, returns=returns)
    if "cost_critic" in models:
        models.cost_critic.train(rollout, loss="value", values=cost_values, returns=cost_returns)


PROGRAM = Program(
    name="safe_rlhf",
    run=safe_rlhf,
    roles=("actor", "critic", "reward", "cost"),
    optional_roles=("reference", "cost_critic"),
    has_importance_ratio=True,
    paper="Dai et al. 2023, arXiv:2310.12773; one critic: Sheng et al. 2024, arXiv:2409.19256",
)
