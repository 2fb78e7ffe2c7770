"""An independent trainer: one process, padded tensors and explicit loops, straight from the papers.

Engines and the controller are tested against it. It shares nothing with executor/ but Batch, and
runs whole iterations of every built-in algorithm on given rollouts and scores:

    trainer = ReferenceTrainer("ppo", {"actor": ..., "critic": ...}, Numbers.of("ppo"))
    iteration = trainer.iteration(rollout, scores=scores, updates=[[0, 1], [2, 3]])

Models are transformers': a causal language model for actor and reference, a sequence classifier of
one label (`.model` and `.score`) for the critics. A rollout has the columns prompt_tokens,
response_tokens and group, and no rows that pad. Rewards and advantages are lists of floats, one
list per response.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from automap.executor.batch import Batch
from tests.executor.algorithms.reference_advantages import (
    Numbers,
    Rows,
    gae,
    grpo_advantages,
    lagrangian,
    overlong_penalty,
    remax_advantages,
    returns_to_go,
    rloo_advantages,
    token_rewards,
    whitened,
)

Model = Any
"""Of transformers, whose attributes have no types."""


@dataclass(frozen=True)
class Step:
    """One optimizer step."""

    loss: float
    grad_norm: float
    gradients: dict[str, Tensor]
    """Before clipping."""


@dataclass
class Iteration:
    """What an iteration computed."""

    old_log_probs: Rows
    rewards: Rows = field(default_factory=list)
    advantages: Rows = field(default_factory=list)
    returns: Rows = field(default_factory=list)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    """Role → its optimizer steps."""


class ReferenceTrainer:
    """Trains the given models in place."""

    def __init__(self, algorithm: str, models: dict[str, Model], numbers: Numbers):
        self.algorithm, self.models, self.numbers = algorithm, models, numbers
        self.multiplier = numbers.multiplier
        self.optimizers = {
            role: _optimizer(model, numbers)
            for role, model in models.items()
            if role in ("actor", "critic", "cost_critic")
        }
        self.steps_done = dict.fromkeys(self.optimizers, 0)

    def iteration(
        self,
        rollout: Batch,
        *,
        scores: Sequence[float],
        updates: Sequence[Sequence[int]],
        costs: Sequence[float] | None = None,
        greedy_scores: dict[int, float] | None = None,
        old_log_probs: Rows | None = None,
        pretrain: Sequence[Sequence[int]] | None = None,
    ) -> Iteration:
        """One iteration.

        Args:
            rollout: All responses of the iteration.
            scores: Of every response.
            updates: The rows of each optimizer step, over all epochs.
            costs: Of every response (safe_rlhf).
            greedy_scores: Group → score of the greedy response (remax).
            old_log_probs: Those that the generation engine recorded; None: from the actor.
            pretrain: Token ids of pre-train text, one sequence beside each response.
        """
        numbers = self.numbers
        with torch.no_grad():
            if old_log_probs is None:
                old_log_probs = self._log_probs("actor", rollout)
            reference = self._log_probs("reference", rollout) if numbers.kl != "none" else None
            values = self._values("critic", rollout) if "critic" in self.models else None
            cost_values = self._values("cost_critic", rollout) if self._has_cost_critic else None
        done = Iteration(old_log_probs)
        lengths = [len(row) for row in old_log_probs]
        final = list(scores)
        if self.algorithm == "dapo":
            final = [
                score + overlong_penalty(length, numbers)
                for score, length in zip(final, lengths, strict=True)
            ]
        penalty = reference if numbers.kl == "reward" else None
        done.rewards = token_rewards(final, old_log_probs, penalty, numbers)
        cost_returns = self._advantages(done, rollout, values, cost_values, costs, greedy_scores)
        done.steps["actor"] = [
            self._actor_step(rollout, rows, done, reference, pretrain) for rows in updates
        ]
        if values is not None:
            done.steps["critic"] = [
                self._critic_step("critic", rollout, rows, values, done.returns) for rows in updates
            ]
        if cost_values is not None:
            done.steps["cost_critic"] = [
                self._critic_step("cost_critic", rollout, rows, cost_values, cost_returns)
                for rows in updates
            ]
        return done

    @property
    def _has_cost_critic(self) -> bool:
        return "cost_critic" in self.models

    def _advantages(
        self,
        done: Iteration,
        rollout: Batch,
        values: Rows | None,
        cost_values: Rows | None,
        costs: Sequence[float] | None,
        greedy_scores: dict[int, float] | None,
    ) -> Rows:
        """Fills in advantages and returns; gives the cost critic's returns."""
        rewards, numbers = done.rewards, self.numbers
        groups = rollout.tensor("group").tolist()
        if self.algorithm == "ppo":
            done.advantages, done.returns = gae(rewards, values or [], numbers)
        elif self.algorithm in ("grpo", "dapo"):
            done.advantages = grpo_advantages(rewards, groups)
        elif self.algorithm == "rloo":
            done.advantages = rloo_advantages(rewards, groups)
        elif self.algorithm == "remax":
            done.advantages = remax_advantages(rewards, groups, greedy_scores or {})
        elif self.algorithm == "reinforce_plus_plus":
            done.advantages = whitened(returns_to_go(rewards, numbers.gamma))
        elif self.algorithm == "safe_rlhf":
            return self._safe_rlhf(done, values or [], cost_values, list(costs or []))
        return []

    def _safe_rlhf(
        self, done: Iteration, values: Rows, cost_values: Rows | None, costs: list[float]
    ) -> Rows:
        numbers = self.numbers
        excess = statistics.fmean(costs) - numbers.cost_limit
        log_multiplier = math.log(self.multiplier)
        log_multiplier += numbers.multiplier_learning_rate * self.multiplier * excess
        self.multiplier = min(math.exp(log_multiplier), numbers.maximum_multiplier)
        token_costs = [
            [0.0] * (len(row) - 1) + [cost] for row, cost in zip(done.rewards, costs, strict=True)
        ]
        if cost_values is None:
            joined = lagrangian(done.rewards, token_costs, self.multiplier)
            done.advantages, done.returns = gae(joined, values, numbers)
            return []
        reward_advantages, done.returns = gae(done.rewards, values, numbers)
        cost_advantages, cost_returns = gae(token_costs, cost_values, numbers)
        done.advantages = lagrangian(reward_advantages, cost_advantages, self.multiplier)
        return cost_returns

    def _actor_step(
        self,
        rollout: Batch,
        rows: Sequence[int],
        done: Iteration,
        reference: Rows | None,
        pretrain: Sequence[Sequence[int]] | None,
    ) -> Step:
        numbers, actor = self.numbers, self.models["actor"]
        new, entropy = response_log_probs(actor, rollout, rows, numbers.temperature)
        losses = []
        for row, log_probs, entropies in zip(rows, new, entropy, strict=True):
            advantages = torch.tensor(done.advantages[row], dtype=log_probs.dtype)
            old = torch.tensor(done.old_log_probs[row], dtype=log_probs.dtype)
            if self.algorithm in ("remax", "rloo"):
                loss = -advantages * log_probs
            else:
                loss = clipped_loss(log_probs, old, advantages, numbers)
                if numbers.weight_cap is not None:
                    weight = (old - rollout.ragged("response_log_probs").rows()[row]).exp()
                    loss = loss * torch.where(weight > numbers.weight_cap, 0, weight)
            if numbers.kl == "loss" and reference is not None:
                other = torch.tensor(reference[row], dtype=log_probs.dtype)
                loss = loss + numbers.kl_coefficient * kl(log_probs, other, numbers.kl_estimator)
            losses.append(loss - numbers.entropy_coefficient * entropies)
        total = self._mean(losses)
        if pretrain is not None:
            total = total + self._pretrain_loss(rollout, rows, pretrain)
        return self._step("actor", total)

    def _pretrain_loss(
        self, rollout: Batch, rows: Sequence[int], pretrain: Sequence[Sequence[int]]
    ) -> Tensor:
        """Coefficient × mean −log π, scaled so that all updates of an epoch weigh tokens alike."""
        likelihoods = []
        for row in rows:
            tokens = torch.tensor([pretrain[row]])
            logits = self.models["actor"](input_ids=tokens).logits[0, :-1]
            log_probs = (logits / self.numbers.temperature).log_softmax(-1)
            likelihoods.append(-log_probs[torch.arange(len(log_probs)), tokens[0, 1:]])
        coefficient = self.numbers.pretrain_coefficient
        responses = rollout.ragged("response_tokens").lengths.tolist()
        if self.numbers.mean_over == "sequences":
            return coefficient * self._mean(likelihoods)
        all_pretrain_tokens = sum(len(text) - 1 for text in pretrain)
        in_update = sum(responses[row] for row in rows)
        scale = sum(responses) / all_pretrain_tokens / in_update
        return coefficient * scale * torch.cat(likelihoods).sum()

    def _critic_step(
        self, role: str, rollout: Batch, rows: Sequence[int], old_values: Rows, returns: Rows
    ) -> Step:
        losses = []
        predicted = response_values(self.models[role], rollout, rows)
        for row, values in zip(rows, predicted, strict=True):
            old = torch.tensor(old_values[row], dtype=values.dtype)
            target = torch.tensor(returns[row], dtype=values.dtype)
            low, high = old - self.numbers.clip_value, old + self.numbers.clip_value
            clipped = torch.minimum(torch.maximum(values, low), high)
            losses.append(0.5 * torch.maximum((values - target) ** 2, (clipped - target) ** 2))
        return self._step(role, self._mean(losses))

    def _mean(self, losses: list[Tensor]) -> Tensor:
        if self.numbers.mean_over == "tokens":
            return torch.cat(losses).mean()
        return torch.stack([loss.mean() for loss in losses]).mean()

    def _step(self, role: str, loss: Tensor) -> Step:
        model, optimizer, numbers = self.models[role], self.optimizers[role], self.numbers
        optimizer.zero_grad()
        loss.backward()
        gradients = {
            name: parameter.grad.clone()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), numbers.clip_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = numbers.learning_rate * numbers.schedule(self.steps_done[role])
        optimizer.step()
        self.steps_done[role] += 1
        return Step(float(loss.detach()), float(norm), gradients)

    def _log_probs(self, role: str, rollout: Batch) -> Rows:
        every = range(rollout.num_rows)
        log_probs, _ = response_log_probs(
            self.models[role], rollout, every, self.numbers.temperature
        )
        return [row.tolist() for row in log_probs]

    def _values(self, role: str, rollout: Batch) -> Rows:
        every = range(rollout.num_rows)
        return [row.tolist() for row in response_values(self.models[role], rollout, every)]


def response_log_probs(
    model: Model, rollout: Batch, rows: Sequence[int], temperature: float = 1.0
) -> tuple[list[Tensor], list[Tensor]]:
    """(log-probabilities, entropies) of the given rows' response tokens."""
    tokens, mask, spans = _padded(rollout, rows)
    logits = model(input_ids=tokens, attention_mask=mask).logits / temperature
    log_probs, entropies = [], []
    for row, (prompt, end) in enumerate(spans):
        # The logits at a place predict the token after it.
        predicted = logits[row, prompt - 1 : end - 1].log_softmax(-1)
        log_probs.append(predicted[torch.arange(end - prompt), tokens[row, prompt:end]])
        entropies.append(-(predicted.exp() * predicted).sum(-1))
    return log_probs, entropies


def response_values(model: Model, rollout: Batch, rows: Sequence[int]) -> list[Tensor]:
    """A critic's value before each response token of the given rows."""
    tokens, mask, spans = _padded(rollout, rows)
    hidden = model.model(input_ids=tokens, attention_mask=mask).last_hidden_state
    values = model.score(hidden).squeeze(-1)
    return [values[row, prompt - 1 : end - 1] for row, (prompt, end) in enumerate(spans)]


def kl(log_probs: Tensor, reference: Tensor, estimator: str) -> Tensor:
    ratio = (reference - log_probs).exp()
    return {
        "k1": -ratio.log(),
        "k2": ratio.log() ** 2 / 2,
        "k3": (ratio - 1) - ratio.log(),
    }[estimator]


def clipped_loss(log_probs: Tensor, old: Tensor, advantages: Tensor, numbers: Numbers) -> Tensor:
    ratio = (log_probs - old).exp()
    clipped = ratio.clamp(1 - numbers.clip_low, 1 + numbers.clip_high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    if numbers.dual_clip is not None:
        bound = torch.maximum(objective, numbers.dual_clip * advantages)
        objective = torch.where(advantages < 0, bound, objective)
    return -objective


def _padded(rollout: Batch, rows: Sequence[int]) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """Tokens and attention mask [rows, longest], padded on the right; (prompt length, length)."""
    prompts = rollout.ragged("prompt_tokens").rows()
    responses = rollout.ragged("response_tokens").rows()
    spans = [(len(prompts[row]), len(prompts[row]) + len(responses[row])) for row in rows]
    longest = max(end for _, end in spans)
    tokens = torch.zeros((len(rows), longest), dtype=torch.int64)
    mask = torch.zeros_like(tokens)
    for place, row in enumerate(rows):
        prompt, end = spans[place]
        tokens[place, :prompt] = prompts[row]
        tokens[place, prompt:end] = responses[row]
        mask[place, :end] = 1
    return tokens, mask, spans


def _optimizer(model: Model, numbers: Numbers) -> torch.optim.AdamW:
    matrices = [each for each in model.parameters() if each.dim() > 1]
    vectors = [each for each in model.parameters() if each.dim() <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": numbers.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=numbers.learning_rate,
        betas=numbers.betas,
        eps=numbers.epsilon,
    )
