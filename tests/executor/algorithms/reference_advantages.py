"""The numbers of the independent trainer, and its rewards and advantages: floats and loops.

Rewards, values and advantages are lists of floats, one list per response, one float per token.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Rows = list[list[float]]


@dataclass(frozen=True)
class Numbers:
    """Everything that shapes an iteration."""

    kl: Literal["none", "reward", "loss"] = "reward"
    kl_coefficient: float = 0.05
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    weight_cap: float | None = None
    """Tokens whose π_p/μ is larger are left out; None: no such weights."""
    clip_value: float = 0.2
    entropy_coefficient: float = 0.0
    mean_over: Literal["tokens", "sequences"] = "tokens"
    overlong_buffer: int = 0
    maximum_response: int = 0
    multiplier: float = 1.0
    multiplier_learning_rate: float = 0.1
    maximum_multiplier: float = 5.0
    cost_limit: float = 0.0
    pretrain_coefficient: float = 1.0
    temperature: float = 1.0
    learning_rate: float = 1e-6
    schedule: Callable[[int], float] = field(default=lambda step: 1.0)
    """Factor of the learning rate at optimizer step 0, 1, …"""
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    """Not of vectors (norms and biases), as in Megatron."""
    clip_grad_norm: float = 1.0

    @classmethod
    def of(cls, algorithm: str, **changes: object) -> "Numbers":
        """What docs/concepts/algorithms.md lists for the algorithm, with changes."""
        own: dict[str, dict[str, object]] = {
            "grpo": {"mean_over": "sequences"},
            "safe_rlhf": {"whiten": False},
            "dapo": {"clip_high": 0.28},
        }
        numbers = replace(cls(), **own.get(algorithm, {}))  # type: ignore[arg-type]
        if changes.get("kl") == "loss":
            numbers = replace(numbers, kl_estimator="k3")
        return replace(numbers, **changes)  # type: ignore[arg-type]


def kl(log_prob: float, reference: float, estimator: str) -> float:
    """With r = reference ÷ ours: k1 = −log r, k2 = (log r)²/2, k3 = (r − 1) − log r."""
    log_ratio = reference - log_prob
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio**2 / 2
    return (math.exp(log_ratio) - 1) - log_ratio


def token_rewards(
    scores: Sequence[float], log_probs: Rows, reference: Rows | None, numbers: Numbers
) -> Rows:
    rewards = []
    for row, score in enumerate(scores):
        tokens = [0.0] * len(log_probs[row])
        if reference is not None:
            tokens = [
                -numbers.kl_coefficient * kl(ours, theirs, numbers.kl_estimator)
                for ours, theirs in zip(log_probs[row], reference[row], strict=True)
            ]
        tokens[-1] += score
        rewards.append(tokens)
    return rewards


def overlong_penalty(length: int, numbers: Numbers) -> float:
    soft = numbers.maximum_response - numbers.overlong_buffer
    if numbers.overlong_buffer == 0 or length <= soft:
        return 0.0
    if length <= numbers.maximum_response:
        return (soft - length) / numbers.overlong_buffer
    return -1.0


def gae(rewards: Rows, values: Rows, numbers: Numbers) -> tuple[Rows, Rows]:
    advantages, returns = [], []
    for row_rewards, row_values in zip(rewards, values, strict=True):
        row: list[float] = []
        advantage = next_value = 0.0
        for reward, value in zip(reversed(row_rewards), reversed(row_values), strict=True):
            error = reward + numbers.gamma * next_value - value
            advantage = error + numbers.gamma * numbers.lam * advantage
            next_value = value
            row.insert(0, advantage)
        advantages.append(row)
        returns.append([a + v for a, v in zip(row, row_values, strict=True)])
    return (whitened(advantages) if numbers.whiten else advantages), returns


def whitened(rows: Rows) -> Rows:
    tokens = [token for row in rows for token in row]
    mean = statistics.fmean(tokens)
    deviation = math.sqrt(statistics.variance(tokens) + 1e-8)
    return [[(token - mean) / deviation for token in row] for row in rows]


def returns_to_go(rewards: Rows, gamma: float) -> Rows:
    return [
        [
            sum(gamma**ahead * reward for ahead, reward in enumerate(row[start:]))
            for start in range(len(row))
        ]
        for row in rewards
    ]


def grpo_advantages(rewards: Rows, groups: Sequence[int]) -> Rows:
    totals = [sum(row) for row in rewards]
    advantages = []
    for row, total in enumerate(totals):
        own = [other for other, group in zip(totals, groups, strict=True) if group == groups[row]]
        deviation = statistics.stdev(own)
        advantage = (total - statistics.fmean(own)) / (deviation + 1e-6) if deviation else 0.0
        advantages.append([advantage] * len(rewards[row]))
    return advantages


def rloo_advantages(rewards: Rows, groups: Sequence[int]) -> Rows:
    totals = [sum(row) for row in rewards]
    advantages = []
    for row, total in enumerate(totals):
        others = [
            totals[other]
            for other in range(len(totals))
            if other != row and groups[other] == groups[row]
        ]
        advantages.append([total - statistics.fmean(others)] * len(rewards[row]))
    return advantages


def remax_advantages(rewards: Rows, groups: Sequence[int], greedy: dict[int, float]) -> Rows:
    returns = returns_to_go(rewards, 1.0)
    return [
        [token - greedy[group] for token in row] for row, group in zip(returns, groups, strict=True)
    ]


def lagrangian(rewards: Rows, costs: Rows, multiplier: float) -> Rows:
    return [
        [
            (reward - multiplier * cost) / (1 + multiplier)
            for reward, cost in zip(*pair, strict=True)
        ]
        for pair in zip(rewards, costs, strict=True)
    ]


def mixed_rows(scores: Sequence[float], groups: Sequence[int]) -> list[int]:
    """The rows that DAPO's dynamic sampling keeps."""
    return [
        row
        for row, group in enumerate(groups)
        if len({scores[other] for other, its in enumerate(groups) if its == group}) > 1
    ]
