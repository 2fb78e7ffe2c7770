"""The program of examples/own-dataflow-two-rewards-16xa100.yaml, whose calls have other names."""

from typing import Any

from automap.planner.dataflow import Data, Models, Ops, Program


def two_rewards(models: Models, prompts: Data, ops: Ops) -> None:
    """One iteration."""
    rollout = models.actor.generate(prompts)
    helpful, harmless = models.reward.score(rollout), models.judge_reward.score(rollout)
    reference = models.reference.log_probs(rollout)
    own = ops.rollout_log_probs(rollout)
    rewards = ops.penalise_kl(ops.apply(total, helpful, harmless), own, reference)
    models.actor.train(rollout, loss="policy_gradient", advantages=ops.group_normalise(rewards))


def total(first: Any, second: Any) -> Any:
    """Scores, one per response."""
    return first + second


PROGRAM = Program(
    name="two_rewards",
    run=two_rewards,
    roles=("actor", "reward", "judge_reward", "reference"),
    optional_roles=(),
    has_importance_ratio=False,
    paper="none",
)
