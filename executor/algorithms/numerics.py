"""The numeric steps between model calls: rewards, advantages, the Lagrange multiplier.

Pure functions on whole batches. Rewards, values and advantages are ragged, one element per response
token; a score is a plain tensor, one element per row. `group` [rows] numbers the prompt that a row
responds to. No row only pads: those go to model calls alone. Statistics are taken in float64.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from automap.executor.batch import Ragged

KlEstimator = Literal["k1", "k2", "k3"]

GROUP_EPSILON = 1e-6
"""Added to a group's standard deviation; as in verl. The paper (GRPO) adds nothing."""
WHITEN_EPSILON = 1e-8
"""Added to the variance that whitening divides by; as in TRL and verl."""
LARGEST_EXPONENT = 20.0
"""Log-ratios are cut here before exp, whose overflow would turn one bad token into NaN; as verl."""


def kl_estimate(log_probs: Tensor, reference: Tensor, estimator: KlEstimator) -> Tensor:
    """KL(policy ‖ reference) from one sample of the policy per element.

    With d = log_probs − reference: k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d. k1 and k3 are unbiased,
    k2 and k3 never negative. As a loss k2 alone has the gradient of the KL in expectation; k1 has
    none. Source: Schulman 2020, "Approximating KL Divergence".
    """
    difference = log_probs - reference
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return 0.5 * difference.square()
    if estimator == "k3":
        bounded = difference.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
        return torch.expm1(-bounded) + bounded
    raise ValueError(f"kl_estimator={estimator!r}; use k1, k2 or k3")


def at_last_token(scores: Tensor, response_lengths: Tensor) -> Ragged:
    """Scores as rewards: each at its response's last token, 0 elsewhere.

    Raises:
        ValueError: a response has no token.
    """
    empty = (response_lengths == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"responses {empty[:8]} have no token; a score needs a last token")
    rewards = scores.new_zeros(int(response_lengths.sum()))
    rewards[response_lengths.cumsum(0) - 1] = scores
    return Ragged(rewards, response_lengths)


def outcomes(rewards: Ragged) -> Tensor:
    """[rows] The sum of each response's token rewards, float64."""
    sums = torch.zeros(len(rewards), dtype=torch.float64)
    return sums.index_add(0, rewards.row_of_value(), rewards.values.double())


def mean_outcome(rewards: Ragged | Tensor) -> float:
    """Mean over the rows of scores, or of the sums of token rewards."""
    scores = outcomes(rewards) if isinstance(rewards, Ragged) else rewards.double()
    return float(scores.mean())


def penalise_kl(
    scores: Tensor,
    log_probs: Ragged | None,
    reference: Ragged | None,
    *,
    response_lengths: Tensor,
    coefficient: float,
    estimator: KlEstimator = "k1",
) -> Ragged:
    """Rewards: the score at the last token, minus coefficient × KL estimate at every token.

    Without a reference the scores alone. Source: Ouyang et al. 2022, arXiv:2203.02155, eq. 2.
    """
    rewards = at_last_token(scores, response_lengths)
    if reference is None:
        return rewards
    if log_probs is None:
        raise ValueError("penalise_kl has a reference but no log_probs of the policy")
    _same_lengths(rewards, log_probs=log_probs, reference=reference)
    penalty = coefficient * kl_estimate(log_probs.values, reference.values, estimator)
    return rewards.with_values(rewards.values - penalty)


def penalise_overlong(
    scores: Tensor, *, response_lengths: Tensor, maximum_length: int, buffer: int
) -> Tensor:
    """Scores plus DAPO's soft penalty, from 0 down to −1 over the last `buffer` tokens.

    0 up to maximum_length − buffer, then linear, −1 at the maximum. Source: Yu et al. 2025,
    arXiv:2503.14476, soft overlong punishment.

    Raises:
        ValueError: the buffer is longer than the maximum.
    """
    if not 0 <= buffer <= maximum_length:
        raise ValueError(
            f"overlong_buffer_tokens={buffer} must lie between 0 and the longest response, "
            f"{maximum_length} tokens"
        )
    if buffer == 0:
        return scores
    excess = response_lengths.to(scores) - (maximum_length - buffer)
    return scores - (excess / buffer).clamp(0, 1)


def gae(
    rewards: Ragged | Tensor, values: Ragged, *, gamma: float, lam: float, whiten: bool
) -> tuple[Ragged, Ragged]:
    """(advantages, returns) of every response token; a plain tensor of scores counts at the end.

    δ_t = r_t + γ·V_{t+1} − V_t with V = 0 after the last token, also of a response that was cut;
    A_t = δ_t + γλ·A_{t+1}; returns = A + V, before A is whitened.
    Source: Schulman et al. 2015, arXiv:1506.02438, eq. 11 to 16.
    """
    rewards = rewards if isinstance(rewards, Ragged) else at_last_token(rewards, values.lengths)
    _same_lengths(rewards, values=values)
    value = values.values.double()
    following = torch.cat([value[1:], value.new_zeros(1)])
    following[values.lengths.cumsum(0) - 1] = 0
    errors = rewards.values.double() + gamma * following - value
    advantages = _discounted_sums(rewards.with_values(errors), gamma * lam)
    returns = advantages.values + value
    if whiten:
        advantages = _whiten(advantages)
    dtype = values.values.dtype
    return values.with_values(advantages.values.to(dtype)), values.with_values(returns.to(dtype))


def batch_normalise(rewards: Ragged, *, gamma: float) -> Ragged:
    """REINFORCE++: the return from each token on, whitened over the batch's tokens.

    Source: Hu et al. 2025, arXiv:2501.03262.
    """
    returns = _discounted_sums(rewards.with_values(rewards.values.double()), gamma)
    return rewards.with_values(_whiten(returns).values.to(rewards.values.dtype))


def group_normalise(rewards: Ragged, *, group: Tensor) -> Ragged:
    """GRPO: (outcome − mean) / (standard deviation + 1e-6) within the group, at every token.

    The sample standard deviation (n − 1), as torch.std in verl and TRL; the paper does not say.
    A group whose outcomes are all equal gets 0. Source: Shao et al. 2024,
    arXiv:2402.03300, outcome supervision.

    Raises:
        ValueError: a group has one response.
    """
    groups = _Groups.of(group, user="group_normalise")
    outcome = outcomes(rewards)
    centred = outcome - (groups.sum(outcome) / groups.size)[groups.member]
    variance = groups.sum(centred.square()) / (groups.size - 1)
    advantages = centred / (variance.sqrt() + GROUP_EPSILON)[groups.member]
    # The mean of equal numbers may differ from them by a rounding error.
    mixed = groups.mixed(outcome)[groups.member]
    return _at_every_token(torch.where(mixed, advantages, 0.0), rewards)


def leave_one_out(rewards: Ragged, *, group: Tensor) -> Ragged:
    """RLOO: outcome minus the mean outcome of the group's other responses, at every token.

    Source: Ahmadian et al. 2024, arXiv:2402.14740.

    Raises:
        ValueError: a group has one response.
    """
    groups = _Groups.of(group, user="leave_one_out")
    outcome = outcomes(rewards)
    others = (groups.sum(outcome)[groups.member] - outcome) / (groups.size - 1)[groups.member]
    return _at_every_token(outcome - others, rewards)


def mixed_groups(scores: Tensor, *, group: Tensor) -> Tensor:
    """[rows] bool: DAPO's dynamic sampling keeps the rows whose group has unlike scores.

    Source: Yu et al. 2025, arXiv:2503.14476.

    Raises:
        ValueError: a group has one response.
    """
    groups = _Groups.of(group, user="mixed_groups")
    return groups.mixed(scores.double())[groups.member]


def subtract(rewards: Ragged, baseline: Tensor, *, group: Tensor, baseline_group: Tensor) -> Ragged:
    """ReMax: rewards summed from each token on, minus the score of the prompt's greedy response.

    From the token on, as in the authors' code, because a KL penalty paid before a token
    says nothing about it; without a KL in the reward this is the outcome minus the baseline. A
    prompt's baseline is the mean over its rows. Source: Li et al. 2023, arXiv:2310.10505.

    Args:
        rewards: Rewards of the sampled responses.
        baseline: [baseline rows] scores of the greedy responses.
        group: [rows] prompt of each sampled response.
        baseline_group: [baseline rows] prompt of each greedy response.

    Raises:
        ValueError: a prompt has no baseline.
    """
    known, member = torch.unique(baseline_group, return_inverse=True)
    sums = torch.zeros(len(known), dtype=torch.float64).index_add(0, member, baseline.double())
    means = sums / torch.bincount(member, minlength=len(known))
    absent = group[~torch.isin(group, known)]
    if len(absent):
        raise ValueError(f"prompts {sorted(set(absent.tolist()))[:8]} have no greedy response")
    returns = _discounted_sums(rewards.with_values(rewards.values.double()), 1.0)
    shift = _at_every_token(means[torch.searchsorted(known, group)], returns)
    return rewards.with_values((returns.values - shift.values).to(rewards.values.dtype))


def lagrangian(rewards: Ragged, costs: Ragged | Tensor, *, multiplier: float) -> Ragged:
    """Safe-RLHF: (rewards − λ·costs) / (1 + λ), of rewards or of advantages.

    A plain tensor of costs counts at the last token. Source: Dai et al. 2023,
    arXiv:2310.12773.
    """
    costs = costs if isinstance(costs, Ragged) else at_last_token(costs, rewards.lengths)
    _same_lengths(rewards, costs=costs)
    joined = (rewards.values - multiplier * costs.values) / (1 + multiplier)
    return rewards.with_values(joined)


def update_multiplier(
    multiplier: float,
    *,
    mean_cost: float,
    cost_limit: float,
    learning_rate: float,
    maximum: float,
) -> float:
    """One step of gradient ascent of ln λ on λ·(mean_cost − cost_limit), at most `maximum`.

    ln λ ← ln λ + learning_rate·λ·(mean_cost − cost_limit). The authors' code bounds λ as well,
    since it grows doubly exponentially while the cost stays above the limit, and updates λ on a
    batch's costs before it joins that batch's advantages. Source: Dai et al. 2023,
    arXiv:2310.12773.
    """
    exponent = learning_rate * multiplier * (mean_cost - cost_limit)
    bounded = torch.tensor(exponent, dtype=torch.float64).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    return min(multiplier * float(bounded.exp()), maximum)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows by prompt."""

    member: Tensor
    """[rows] int64: their groups, counted from 0."""
    size: Tensor
    """[groups] float64: rows in each."""

    @classmethod
    def of(cls, group: Tensor, *, user: str) -> "_Groups":
        names, member, counts = torch.unique(group, return_inverse=True, return_counts=True)
        alone = names[counts == 1].tolist()
        if alone:
            raise ValueError(
                f"{user} compares the responses to one prompt, but prompts {alone[:8]} have one; "
                "set responses_per_prompt to at least 2"
            )
        return cls(member, counts.double())

    def sum(self, values: Tensor) -> Tensor:
        """[groups] of float64 values [rows]."""
        return torch.zeros_like(self.size).index_add(0, self.member, values)

    def mixed(self, values: Tensor) -> Tensor:
        """[groups] bool: whether the values [rows] of the group differ."""
        empty = torch.zeros_like(self.size)
        largest = empty.scatter_reduce(0, self.member, values, "amax", include_self=False)
        smallest = empty.scatter_reduce(0, self.member, values, "amin", include_self=False)
        return largest > smallest


def _same_lengths(rewards: Ragged, **columns: Ragged) -> None:
    for name, column in columns.items():
        if not torch.equal(column.lengths, rewards.lengths):
            raise ValueError(
                f"{name} has rows of {column.lengths.tolist()[:8]}… tokens, the responses have "
                f"{rewards.lengths.tolist()[:8]}…"
            )


def _at_every_token(values: Tensor, like: Ragged) -> Ragged:
    """Values [rows] at each token of their rows."""
    return like.with_values(torch.repeat_interleave(values.to(like.values.dtype), like.lengths))


def _discounted_sums(column: Ragged, factor: float) -> Ragged:
    """y_t = x_t + factor·y_{t+1} in every row; one step per position, over all rows at once."""
    sums = column.values.clone()
    lengths, order = column.lengths.sort(descending=True)
    last = (column.lengths.cumsum(0) - 1)[order]
    steps = torch.arange(1, int(lengths[0]) if len(lengths) else 0)
    longer = len(lengths) - torch.searchsorted(lengths.flip(0).contiguous(), steps, right=True)
    for step, count in zip(steps.tolist(), longer.tolist(), strict=True):
        here = last[:count] - step
        sums[here] += factor * sums[here + 1]
    return column.with_values(sums)


def _whiten(column: Ragged) -> Ragged:
    """Zero mean, unit sample variance (n − 1, as in TRL and verl) over the tokens."""
    centred = column.values - column.values.mean()
    variance = centred.square().sum() / max(len(centred) - 1, 1)
    return column.with_values(centred * torch.rsqrt(variance + WHITEN_EPSILON))
