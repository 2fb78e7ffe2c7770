"""What twins run that plans leave open: a reward, and the program of an explicit dataflow."""

from typing import Any

from automap.planner.dataflow import Data, Models, Ops, Program


def share_of_even_tokens(response_tokens: list[list[int]]) -> list[float]:
    """A reward in which two responses to a prompt mostly differ, as dynamic sampling needs."""
    return [
        sum(token % 2 == 0 for token in response) / max(len(response), 1)
        for response in response_tokens
    ]


def two_rewards(models: Models, prompts: Data, ops: Ops) -> None:
    """One iteration of examples/own-dataflow-two-rewards-16xa100.yaml."""
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
