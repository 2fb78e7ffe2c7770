"""The planner's programs in one process on the executor's mathematics: no engine, no controller.

Models are transformers'. Generation gives back rollouts that the test made, scoring gives back
scores; everything between is executor/algorithms on packed micro-batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from automap.executor.algorithms import numerics
from automap.executor.algorithms.losses import build_loss
from automap.executor.algorithms.ppo_ptx import join_pretrain, pretrain_row_weight
from automap.executor.batch import Batch, Ragged
from automap.executor.engines.micro_batches import Packed, pack
from automap.executor.engines.training_engine import Loss
from automap.executor.settings import AlgorithmSettings
from tests.executor.padding import pad_rows

TRAINED = ("advantages", "returns", "values", "old_log_probs", "reference_log_probs")
PER_TOKEN = "of_tokens"
"""The column of a result that has one element per response token."""


@dataclass
class Given:
    """What the test decides: data of an iteration, and which rows each optimizer step takes."""

    rollout: Batch
    scores: dict[str, Tensor]
    """Role → score of every row."""
    updates: list[list[int]]
    greedy: Batch | None = None
    greedy_scores: Tensor | None = None
    pretrain: Batch | None = None
    rows_per_micro_batch: int = 3


@dataclass
class Step:
    loss: float
    metrics: dict[str, float]
    gradients: dict[str, Tensor]


class LocalHandle:
    def __init__(
        self, role: str, model: Any, optimizer: Any, settings: AlgorithmSettings, given: Given
    ):
        self.role, self.model, self.optimizer = role, model, optimizer
        self.settings, self.given = settings, given
        self.steps: list[Step] = []

    def generate(self, prompts: object, *, greedy: bool = False) -> Batch:
        chosen = self.given.greedy if greedy else self.given.rollout
        assert chosen is not None
        return chosen

    def score(self, rollout: Batch, *, name: str = "") -> Batch:
        scores = self.given.greedy_scores if name else self.given.scores[self.role]
        assert scores is not None
        return rollout.with_columns(scores=scores)

    def log_probs(self, rollout: Batch) -> Batch:
        return self._forward(rollout)

    def values(self, rollout: Batch) -> Batch:
        return self._forward(rollout)

    def train(self, rollout: Batch, *, loss: str, **inputs: Any) -> None:
        batch, pretrain = rollout, inputs.get("pretrain")
        for name in TRAINED:
            if inputs.get(name) is not None:
                batch = batch.with_columns(**{name: inputs[name].ragged(PER_TOKEN)})
        built = build_loss(loss, self.settings, inputs)
        updates = self.given.updates
        if pretrain is not None:
            assert self.settings.aggregate is not None
            row_weight = pretrain_row_weight(
                batch.ragged("response_tokens").lengths,
                pretrain.ragged("tokens").lengths,
                coefficient=self.settings.pretrain_coefficient,
                aggregate=self.settings.aggregate,
            )
            batch = join_pretrain(batch, pretrain, row_weight=row_weight)
            updates = [[2 * row + side for row in rows for side in (0, 1)] for rows in updates]
        for rows in updates:
            # As on its way to data-parallel ranks: the rows that pad change nothing.
            self._step(pad_rows(batch.take(rows), len(rows) + 2), built)

    def _forward(self, rollout: Batch) -> Batch:
        with torch.no_grad():
            values, _ = self.predict(rollout)
        column = Ragged(values, rollout.ragged("response_tokens").lengths)
        return rollout.with_columns(**{PER_TOKEN: column})

    def predict(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities with entropies, or values, of a packed micro-batch."""
        packed = pack(batch)
        dtype = self.model.dtype
        mask = torch.zeros((), dtype=dtype).masked_fill(~may_attend(packed), -torch.inf)
        tokens = {
            "input_ids": packed.tokens[None],
            "attention_mask": mask[None, None],
            "position_ids": packed.positions[None],
        }
        if "critic" in self.role:
            hidden = self.model.model(**tokens).last_hidden_state[0]
            return self.model.score(hidden[packed.predicting]).squeeze(-1), None
        logits = self.model(**tokens).logits[0, packed.predicting].log_softmax(-1)
        chosen = batch.ragged("response_tokens").values
        return logits.gather(1, chosen[:, None]).squeeze(1), -(logits.exp() * logits).sum(1)

    def _step(self, batch: Batch, loss: Loss) -> None:
        weight = loss.weight(batch)
        self.optimizer.zero_grad()
        sums: dict[str, float] = {}
        total = 0.0
        for rows in torch.arange(batch.num_rows).split(self.given.rows_per_micro_batch):
            part = batch.take(rows)
            prediction, entropy = self.predict(part)
            terms = loss.terms(prediction, entropy if loss.needs_entropy else None, part)
            (terms.loss_sum / weight).backward()
            total += float(terms.loss_sum.detach()) / weight
            for name, value in terms.metric_sums.items():
                sums[name] = sums.get(name, 0.0) + float(value) / weight
        gradients = {
            name: parameter.grad.clone()
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.steps.append(Step(total, sums, gradients))


class LocalModels:
    def __init__(self, handles: dict[str, LocalHandle]):
        self._handles = handles

    def __getattr__(self, role: str) -> LocalHandle:
        return self._handles[role]

    def __contains__(self, role: str) -> bool:
        return role in self._handles


@dataclass
class LocalOps:
    workload: Any
    settings: AlgorithmSettings
    given: Given
    multiplier: float = 1.0
    costs: Tensor | None = None
    """Scores of the cost model, which the multiplier follows."""
    results: dict[str, Ragged] = field(default_factory=dict)

    def rollout_log_probs(self, rollout: Batch) -> Batch:
        return rollout.with_columns(**{PER_TOKEN: rollout.ragged("response_log_probs")})

    def penalise_kl(self, scores: Batch, log_probs: Batch | None, reference: Batch | None) -> Batch:
        assert self.settings.kl_estimator is not None
        rewards = numerics.penalise_kl(
            scores.tensor("scores"),
            log_probs.ragged(PER_TOKEN) if log_probs is not None else None,
            reference.ragged(PER_TOKEN) if reference is not None else None,
            response_lengths=scores.ragged("response_tokens").lengths,
            coefficient=self.settings.kl_coefficient,
            estimator=self.settings.kl_estimator,
        )
        return self._result(scores, rewards=rewards)

    def penalise_overlong(self, scores: Batch, rollout: Batch) -> Batch:
        penalised = numerics.penalise_overlong(
            scores.tensor("scores"),
            response_lengths=rollout.ragged("response_tokens").lengths,
            maximum_length=self.workload.response_length.max_tokens,
            buffer=self.settings.overlong_buffer_tokens,
        )
        return scores.with_columns(scores=penalised)

    def gae(self, rewards: Batch, values: Batch) -> tuple[Batch, Batch]:
        assert self.settings.whiten_advantages is not None
        advantages, returns = numerics.gae(
            rewards.ragged(PER_TOKEN) if PER_TOKEN in rewards else rewards.tensor("scores"),
            values.ragged(PER_TOKEN),
            gamma=self.settings.gamma,
            lam=self.settings.lam,
            whiten=self.settings.whiten_advantages,
        )
        return (
            self._result(rewards, advantages=advantages),
            self._result(rewards, returns=returns),
        )

    def group_normalise(self, rewards: Batch) -> Batch:
        return self._grouped(numerics.group_normalise, rewards)

    def leave_one_out(self, rewards: Batch) -> Batch:
        return self._grouped(numerics.leave_one_out, rewards)

    def batch_normalise(self, rewards: Batch) -> Batch:
        advantages = numerics.batch_normalise(rewards.ragged(PER_TOKEN), gamma=self.settings.gamma)
        return self._result(rewards, advantages=advantages)

    def subtract(self, rewards: Batch, baseline: Batch) -> Batch:
        advantages = numerics.subtract(
            rewards.ragged(PER_TOKEN),
            baseline.tensor("scores"),
            group=rewards.tensor("group"),
            baseline_group=baseline.tensor("group"),
        )
        return self._result(rewards, advantages=advantages)

    def lagrangian(self, rewards: Batch, costs: Batch) -> Batch:
        settings = self.settings
        assert self.costs is not None
        self.multiplier = numerics.update_multiplier(
            self.multiplier,
            mean_cost=numerics.mean_outcome(self.costs),
            cost_limit=settings.cost_limit,
            learning_rate=settings.multiplier_learning_rate,
            maximum=settings.maximum_multiplier,
        )
        joined = numerics.lagrangian(
            rewards.ragged(PER_TOKEN),
            costs.ragged(PER_TOKEN) if PER_TOKEN in costs else costs.tensor("scores"),
            multiplier=self.multiplier,
        )
        return self._result(rewards, advantages=joined)

    def pretrain_batch(self) -> Batch | None:
        return self.given.pretrain

    def repeat_until(
        self,
        draw: Callable[[object], tuple[Batch, Batch]],
        prompts: object,
        *,
        keep: str,
        expected_rounds: float,
    ) -> tuple[Batch, Batch]:
        rollout, scores = draw(prompts)
        mask = numerics.mixed_groups(scores.tensor("scores"), group=rollout.tensor("group"))
        rows = mask.nonzero().flatten()
        return rollout.take(rows), scores.take(rows)

    def _grouped(self, function: Callable[..., Ragged], rewards: Batch) -> Batch:
        advantages = function(rewards.ragged(PER_TOKEN), group=rewards.tensor("group"))
        return self._result(rewards, advantages=advantages)

    def _result(self, like: Batch, **named: Ragged) -> Batch:
        self.results.update(named)
        return like.with_columns(**{PER_TOKEN: next(iter(named.values()))})


def may_attend(packed: Packed) -> torch.Tensor:
    """[T, T] bool: causal, and within the same sequence."""
    sequence = torch.repeat_interleave(torch.arange(len(packed.lengths)), packed.lengths)
    same = sequence[:, None] == sequence[None, :]
    return same & torch.ones_like(same).tril()


def ragged(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Ragged:
    """Lists as a column."""
    return Ragged.of([torch.tensor(row, dtype=dtype) for row in rows])
