"""The losses that engines minimise, as weighted sums over response tokens.

A loss is a handful of numbers, so it travels to the workers as it is. It reads its columns from the
micro-batch and leaves out the tokens of rows of weight 0 before it computes anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from automap.executor.algorithms.numerics import LARGEST_EXPONENT, KlEstimator, kl_estimate
from automap.executor.algorithms.off_policy import OffPolicyCorrection
from automap.executor.batch import Batch
from automap.executor.engines.training_engine import Loss, LossTerms
from automap.executor.settings import AlgorithmSettings

Aggregate = Literal["token_mean", "sequence_mean"]


@dataclass(frozen=True, slots=True)
class Clip:
    """Between 1 − low and 1 + high a ratio still moves the loss; `dual` bounds it, None: not."""

    low: float
    high: float
    dual: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """PPO's clipped loss, or REINFORCE; plus the KL to a reference, less an entropy bonus.

    Reads the columns advantages, and old_log_probs and reference_log_probs if it says so, and
    behaviour_log_probs for a correction. Rows that the column `pretrain` marks
    (executor/algorithms/ppo_ptx.py) add their negative log-likelihood.
    """

    aggregate: Aggregate
    clip: Clip | None
    """How the ratio to an older policy is clipped; None: −A·log π with no ratio (ReMax, RLOO)."""
    reads_old_log_probs: bool = True
    """False: the ratio is to the policy itself, which is right for one update per iteration."""
    kl_estimator: KlEstimator | None = None
    """Estimator of the KL divergence from the reference; None: there is no reference."""
    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0
    pretrain_coefficient: float | None = None
    """What the weights of pre-train rows already hold; None: there are no such rows."""
    correction: OffPolicyCorrection | None = None
    """Weighs the clipped loss; KL and entropy are not weighed."""

    @property
    def needs_entropy(self) -> bool:
        """Only a bonus reads it."""
        return self.entropy_coefficient > 0

    def weight(self, batch: Batch) -> float:
        """Tokens of the responses, or responses; pre-train rows do not count."""
        weights = batch.weights().double()
        if "pretrain" in batch:
            weights = weights * ~batch.tensor("pretrain").to(weights.device, torch.bool)
        return _weight(batch, weights, self.aggregate)

    def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
        """Loss: actor/pg_loss + KL − entropy bonus + pre-train loss, each a metric too."""
        weights = _token_weights(batch, self.aggregate, like=prediction)
        policy = weights > 0
        pretrain = torch.zeros_like(policy)
        if "pretrain" in batch:
            lengths = batch.ragged("response_tokens").lengths
            marks = torch.repeat_interleave(batch.tensor("pretrain").bool(), lengths)
            pretrain = policy & marks.to(policy.device)
            policy = policy & ~pretrain
        losses = self._token_losses(prediction, entropy, batch, policy)
        terms = _sums(weights[policy], losses)
        if self.pretrain_coefficient is None:
            return terms
        likelihood = -(prediction[pretrain] * weights[pretrain]).sum()
        # Weighed by the coefficient already: the metric shows the plain loss.
        scale = 1 / self.pretrain_coefficient if self.pretrain_coefficient else 0.0
        metric = {"actor/pretrain_loss": likelihood.detach() * scale}
        return LossTerms(terms.loss_sum + likelihood, terms.metric_sums | metric)

    def _token_losses(
        self, prediction: Tensor, entropy: Tensor | None, batch: Batch, chosen: Tensor
    ) -> "_TokenLosses":
        log_probs = prediction[chosen]
        advantages = _column(batch, "advantages", prediction)[chosen]
        if self.clip is None:
            loss = -advantages * log_probs
            metrics = {"actor/pg_loss": loss}
        else:
            old = log_probs.detach()
            if self.reads_old_log_probs:
                old = _column(batch, "old_log_probs", prediction)[chosen]
            loss, metrics = _clipped(log_probs, old, advantages, self.clip)
            if self.correction is not None:
                behaviour = _column(batch, "behaviour_log_probs", prediction)[chosen]
                weights, of_weights = self.correction.weights(old, behaviour)
                loss = weights * loss
                metrics |= {"actor/pg_loss": loss, **of_weights}
        if self.kl_estimator is not None:
            reference = _column(batch, "reference_log_probs", prediction)[chosen]
            divergence = kl_estimate(log_probs, reference, self.kl_estimator)
            loss = loss + self.kl_coefficient * divergence
            metrics["actor/kl_loss"] = divergence
        if self.needs_entropy:
            if entropy is None:
                raise ValueError("the loss has an entropy bonus but the engine gave no entropy")
            loss = loss - self.entropy_coefficient * entropy[chosen]
            metrics["actor/entropy"] = entropy[chosen]
        return _TokenLosses(loss, metrics)


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """0.5·max((V − R)², (V clipped to V_old ± clip − R)²); reads returns, and values for V_old.

    Source: Schulman et al.'s PPO code; as in TRL and verl.
    """

    aggregate: Aggregate
    clip: float | None
    """How far values may move from the old ones; None: not clipped, old values are not read."""

    @property
    def needs_entropy(self) -> bool:
        """A critic has none."""
        return False

    def weight(self, batch: Batch) -> float:
        """Tokens of the responses, or responses."""
        return _weight(batch, batch.weights().double(), self.aggregate)

    def terms(self, prediction: Tensor, entropy: Tensor | None, batch: Batch) -> LossTerms:
        """Loss critic/vf_loss; metrics critic/vf_clipfrac and critic/vpred_mean."""
        weights = _token_weights(batch, self.aggregate, like=prediction)
        chosen = weights > 0
        values = prediction[chosen]
        returns = _column(batch, "returns", prediction)[chosen]
        errors = (values - returns).square()
        metrics = {"critic/vpred_mean": values}
        if self.clip is not None:
            old = _column(batch, "values", prediction)[chosen]
            clipped = old + (values - old).clamp(-self.clip, self.clip)
            clipped_errors = (clipped - returns).square()
            metrics["critic/vf_clipfrac"] = clipped_errors > errors
            errors = torch.maximum(errors, clipped_errors)
        loss = 0.5 * errors
        return _sums(weights[chosen], _TokenLosses(loss, {"critic/vf_loss": loss, **metrics}))


_READS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "ppo_clip": (
        frozenset({"advantages"}),
        frozenset({"old_log_probs", "reference_log_probs", "pretrain"}),
    ),
    "policy_gradient": (frozenset({"advantages"}), frozenset({"reference_log_probs", "pretrain"})),
    "value": (frozenset({"returns"}), frozenset({"values"})),
}
"""Kind of loss → columns that it needs, columns that it reads when given."""
_POLICY_NUMBERS = frozenset(
    {"kl_coefficient", "kl_estimator", "entropy_coefficient", "pretrain_coefficient", "aggregate"}
)
_NUMBERS: dict[str, frozenset[str]] = {
    "ppo_clip": _POLICY_NUMBERS | {"clip_low", "clip_high", "dual_clip"},
    "policy_gradient": _POLICY_NUMBERS,
    "value": frozenset({"clip_value", "aggregate"}),
}
"""Kind of loss → settings that a program may give with the call."""


def build_loss(kind: str, settings: AlgorithmSettings, inputs: Mapping[str, object]) -> Loss:
    """The loss of a train call.

    Args:
        kind: ppo_clip, policy_gradient or value.
        settings: As `resolve_settings` gives them.
        inputs: The call's further arguments: of columns only whether they are None matters, the
            batches bring them under the same names; numbers go before the settings.

    Raises:
        ValueError: an unknown kind or input, a missing column, or a number out of its range.
    """
    if kind not in _READS:
        raise ValueError(f"loss={kind!r}; use one of {', '.join(_READS)}")
    needed, optional = _READS[kind]
    given = {name: value for name, value in inputs.items() if value is not None}
    columns = given.keys() & (needed | optional)
    numbers = {name: value for name, value in given.items() if name in _NUMBERS[kind]}
    unknown = sorted(given.keys() - columns - numbers.keys())
    if unknown:
        raise ValueError(
            f"loss={kind!r} does not read {unknown}; it reads {sorted(needed | optional)} "
            f"and the numbers {sorted(_NUMBERS[kind])}"
        )
    if not needed <= columns:
        raise ValueError(f"loss={kind!r} needs {sorted(needed - columns)}")
    chosen = AlgorithmSettings.model_validate({**settings.model_dump(), **numbers})
    if chosen.aggregate is None or chosen.kl_estimator is None or chosen.clip_high is None:
        raise ValueError(
            f"aggregate={chosen.aggregate}, kl_estimator={chosen.kl_estimator} and "
            f"clip_high={chosen.clip_high} must be set; resolve_settings fills in the algorithm's"
        )
    if kind == "value":
        return ValueLoss(chosen.aggregate, chosen.clip_value if "values" in columns else None)
    clip = Clip(chosen.clip_low, chosen.clip_high, chosen.dual_clip)
    return _policy_loss(kind, chosen, columns, chosen.aggregate, clip)


def _policy_loss(
    kind: str, settings: AlgorithmSettings, columns: set[str], aggregate: Aggregate, clip: Clip
) -> PolicyLoss:
    correction = OffPolicyCorrection.of(settings)
    if correction is not None and kind != "ppo_clip":
        raise ValueError(
            f"loss={kind!r} has no ratio to correct, but off_policy_correction is "
            f"{settings.off_policy_correction}; leave it out"
        )
    return PolicyLoss(
        aggregate=aggregate,
        clip=clip if kind == "ppo_clip" else None,
        reads_old_log_probs="old_log_probs" in columns,
        kl_estimator=settings.kl_estimator if "reference_log_probs" in columns else None,
        kl_coefficient=settings.kl_coefficient,
        entropy_coefficient=settings.entropy_coefficient,
        pretrain_coefficient=settings.pretrain_coefficient if "pretrain" in columns else None,
        correction=correction,
    )


@dataclass(frozen=True, slots=True)
class _TokenLosses:
    """[chosen tokens] the loss, and metrics beside it."""

    loss: Tensor
    metrics: dict[str, Tensor]


def _clipped(
    log_probs: Tensor, old: Tensor, advantages: Tensor, clip: Clip
) -> tuple[Tensor, dict[str, Tensor]]:
    """Schulman et al. 2017, eq. 7; low and high apart: DAPO; the dual bound: Ye et al. 2019."""
    log_ratio = (log_probs - old).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    ratio = log_ratio.exp()
    free = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - clip.low, 1 + clip.high)
    loss = torch.maximum(free, bounded)
    metrics = {"actor/pg_clipfrac": bounded > free, "actor/ppo_kl": -log_ratio}
    if clip.dual is not None:
        ceiling = -advantages * clip.dual
        cut = (advantages < 0) & (loss > ceiling)
        metrics["actor/pg_clipfrac_lower"] = cut
        loss = torch.where(cut, ceiling, loss)
    return loss, {"actor/pg_loss": loss, **metrics}


def _sums(weights: Tensor, losses: _TokenLosses) -> LossTerms:
    return LossTerms(
        loss_sum=(losses.loss * weights).sum(),
        metric_sums={
            name: (metric.detach() * weights).sum() for name, metric in losses.metrics.items()
        },
    )


def _weight(batch: Batch, row_weights: Tensor, aggregate: Aggregate) -> float:
    lengths = batch.ragged("response_tokens").lengths
    counts = lengths if aggregate == "token_mean" else lengths > 0
    return float((row_weights * counts.to(row_weights)).sum())


def _token_weights(batch: Batch, aggregate: Aggregate, *, like: Tensor) -> Tensor:
    """[response tokens] what each counts; they sum to `_weight`."""
    lengths = batch.ragged("response_tokens").lengths
    if len(like) != int(lengths.sum()):
        raise ValueError(
            f"{len(like)} predictions for {int(lengths.sum())} response tokens of the micro-batch"
        )
    rows = batch.weights().double()
    if aggregate == "sequence_mean":
        rows = rows / lengths.clamp(min=1).to(rows)
    return torch.repeat_interleave(rows, lengths).to(like)


def _column(batch: Batch, name: str, like: Tensor) -> Tensor:
    """A column's values beside a prediction, which it must match token by token."""
    column = batch.ragged(name)
    if len(column.values) != len(like):
        raise ValueError(f"{name} has {len(column.values)} values for {len(like)} response tokens")
    return column.values.to(like)
