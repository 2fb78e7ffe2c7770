"""Safe-RLHF: PPO on a reward and a cost, joined by a Lagrange multiplier."""

from automap.planner.dataflow.algorithms.program import (
    Data,
    Handle,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def safe_rlhf(models: Models, prompts: Data, ops: Ops) -> None:
    """Run one iteration of Safe-RLHF."""
    rollout = models.actor.generate(prompts)
    old = old_log_probs(models, rollout, ops)
    reference = reference_log_probs(models, rollout, ops)
    values = models.critic.values(rollout)
    rewards = ops.penalise_kl(models.reward.score(rollout), old, reference.for_reward)
    costs = models.cost.score(rollout)
    advantages, learned = _advantages(models, rollout, rewards, costs, values, ops)
    past = {"old_log_probs": old, "reference_log_probs": reference.for_loss}
    pretrain = ops.pretrain_batch()
    models.actor.train(rollout, loss="ppo_clip", advantages=advantages, pretrain=pretrain, **past)
    for critic, inputs in learned:
        critic.train(rollout, loss="value", **inputs)


def _advantages(
    models: Models, rollout: Data, rewards: Data, costs: Data, values: Data, ops: Ops
) -> tuple[Data, list[tuple[Handle, dict[str, Data]]]]:
    """Reward and cost joined, and what each critic learns.

    Without a cost critic the critic learns reward and cost joined.
    """
    if "cost_critic" not in models:
        advantages, returns = ops.gae(ops.lagrangian(rewards, costs), values)
        return advantages, [(models.critic, {"values": values, "returns": returns})]
    cost_values = models.cost_critic.values(rollout)
    advantages, returns = ops.gae(rewards, values)
    cost_advantages, cost_returns = ops.gae(costs, cost_values)
    return ops.lagrangian(advantages, cost_advantages), [
        (models.critic, {"values": values, "returns": returns}),
        (models.cost_critic, {"values": cost_values, "returns": cost_returns}),
    ]


PROGRAM = Program(
    name="safe_rlhf",
    run=safe_rlhf,
    roles=("actor", "critic", "reward", "cost"),
    optional_roles=("reference", "cost_critic"),
    has_importance_ratio=True,
    paper="Dai et al. 2023, arXiv:2310.12773; one critic: Sheng et al. 2024, arXiv:2409.19256",
)
