"""The numeric operations of a program as functions on batches, for `NumericsWorker.run`.

A column travels as a batch of that one column.
"""

from collections.abc import Callable

import torch

from automap.executor.algorithms import numerics
from automap.executor.algorithms.losses import Aggregate
from automap.executor.algorithms.numerics import KlEstimator
from automap.executor.algorithms.ppo_ptx import join_pretrain, pretrain_row_weight
from automap.executor.batch import Batch, Column, Ragged
from automap.executor.telemetry.metrics import rollout_metrics


def penalise_kl(
    scores: Batch,
    rollout: Batch,
    log_probs: Batch | None,
    reference: Batch | None,
    *,
    coefficient: float,
    estimator: KlEstimator,
) -> Batch:
    """See `numerics.penalise_kl`; rewards of every token."""
    rewards = numerics.penalise_kl(
        _tensor(scores),
        None if log_probs is None else _ragged(log_probs),
        None if reference is None else _ragged(reference),
        response_lengths=rollout.ragged("response_tokens").lengths,
        coefficient=coefficient,
        estimator=estimator,
    )
    return Batch({"rewards": rewards})


def penalise_overlong(scores: Batch, rollout: Batch, *, maximum_length: int, buffer: int) -> Batch:
    """See `numerics.penalise_overlong`."""
    penalised = numerics.penalise_overlong(
        _tensor(scores),
        response_lengths=rollout.ragged("response_tokens").lengths,
        maximum_length=maximum_length,
        buffer=buffer,
    )
    return Batch({"scores": penalised})


def gae(rewards: Batch, values: Batch, *, gamma: float, lam: float, whiten: bool) -> Batch:
    """See `numerics.gae`; both results as columns."""
    advantages, returns = numerics.gae(
        _only(rewards), _ragged(values), gamma=gamma, lam=lam, whiten=whiten
    )
    return Batch({"advantages": advantages, "returns": returns})


def group_normalise(rewards: Batch, rollout: Batch) -> Batch:
    """See `numerics.group_normalise`."""
    advantages = numerics.group_normalise(_ragged(rewards), group=rollout.tensor("group"))
    return Batch({"advantages": advantages})


def leave_one_out(rewards: Batch, rollout: Batch) -> Batch:
    """See `numerics.leave_one_out`."""
    advantages = numerics.leave_one_out(_ragged(rewards), group=rollout.tensor("group"))
    return Batch({"advantages": advantages})


def batch_normalise(rewards: Batch, *, gamma: float) -> Batch:
    """See `numerics.batch_normalise`."""
    return Batch({"advantages": numerics.batch_normalise(_ragged(rewards), gamma=gamma)})


def subtract(rewards: Batch, rollout: Batch, baseline: Batch, baseline_rollout: Batch) -> Batch:
    """See `numerics.subtract`."""
    advantages = numerics.subtract(
        _ragged(rewards),
        _tensor(baseline),
        group=rollout.tensor("group"),
        baseline_group=baseline_rollout.tensor("group"),
    )
    return Batch({"advantages": advantages})


def next_multiplier(
    multiplier: float,
    costs: Batch,
    *,
    cost_limit: float,
    learning_rate: float,
    maximum: float,
) -> float:
    """See `numerics.update_multiplier`, with the mean over rows of the costs."""
    return numerics.update_multiplier(
        multiplier,
        mean_cost=numerics.mean_outcome(_only(costs)),
        cost_limit=cost_limit,
        learning_rate=learning_rate,
        maximum=maximum,
    )


def lagrangian(rewards: Batch, costs: Batch, multiplier: float) -> Batch:
    """See `numerics.lagrangian`."""
    joined = numerics.lagrangian(_ragged(rewards), _only(costs), multiplier=multiplier)
    return Batch({"advantages": joined})


def rows_of_mixed_groups(scores: Batch, rollout: Batch) -> list[int]:
    """The rows whose group has unlike scores; see `numerics.mixed_groups`."""
    mask = numerics.mixed_groups(_tensor(scores), group=rollout.tensor("group"))
    kept: list[int] = mask.nonzero().flatten().tolist()
    return kept


def with_pretrain(
    batch: Batch, pretrain: Batch, *, coefficient: float, aggregate: Aggregate
) -> Batch:
    """Rollout and pre-train rows by turns; see `automap.executor.algorithms.ppo_ptx`."""
    row_weight = pretrain_row_weight(
        batch.ragged("response_tokens").lengths,
        pretrain.ragged("tokens").lengths,
        coefficient=coefficient,
        aggregate=aggregate,
    )
    return join_pretrain(batch, pretrain, row_weight=row_weight)


_SUMMARISED = {
    "reward.score": "scores",
    "rewards": "rewards",
    "advantages": "advantages",
    "returns": "returns",
    "critic.values": "values",
}
"""What the columns of an iteration are called in `rollout_metrics`."""


def rollout_summary(
    rollout: Batch,
    *,
    iteration: int,
    max_prompt_length: int,
    max_response_length: int,
    **columns: Batch,
) -> dict[str, float]:
    """See `metrics.rollout_metrics`; also how far log-probabilities of the two engines differ.

    And how many iterations older the weights were that generated than those that training starts
    from. `columns` are named by role and method, or by what operation made them.

    In fp32 the two engines differ by some 1e-6. A few tokens of a trained model can differ by 1e-5
    and more: there, half an ulp of every weight moves the log-probability as far in exact
    arithmetic, and both engines are as far from that (measured on a Safe-RLHF run).
    """
    named = {
        _SUMMARISED[name]: _only(each) for name, each in columns.items() if name in _SUMMARISED
    }
    metrics = rollout_metrics(
        rollout.with_columns(**named),
        max_prompt_length=max_prompt_length,
        max_response_length=max_response_length,
    )
    for side in ("prompt", "response"):
        metrics[f"rollout/{side}_tokens"] = float(rollout.ragged(f"{side}_tokens").lengths.sum())
    for name, each in columns.items():
        role, _, method = name.partition(".")
        if method == "score" and name not in _SUMMARISED:
            metrics[f"{role}/score/mean"] = float(_tensor(each).double().mean())
    behind = iteration - 1 - rollout.tensor("weights_version").double()
    metrics["rollout/staleness_max"] = float(behind.max())
    metrics["rollout/staleness_mean"] = float(behind.mean())
    if "token_versions" in rollout:
        metrics |= _span_metrics(rollout, iteration)
    recomputed = columns.get("actor.log_probs")
    if recomputed is not None and len(_ragged(recomputed).values):
        generated, computed = (
            rollout.ragged("response_log_probs").values,
            _ragged(recomputed).values,
        )
        of_probs = (generated.exp() - computed.exp()).abs()
        metrics["training/rollout_probs_diff_max"] = float(of_probs.max())
        metrics["training/rollout_probs_diff_mean"] = float(of_probs.mean())
        metrics["training/rollout_log_probs_diff_max"] = float((generated - computed).abs().max())
    return metrics


def _span_metrics(rollout: Batch, iteration: int) -> dict[str, float]:
    """How old the tokens are, and the share of responses that several weights drew."""
    versions = rollout.ragged("token_versions")
    behind = iteration - 1 - versions.values.double()
    spans = [bool(row[-1] != row[0]) for row in versions.rows() if len(row)]
    return {
        "rollout/token_staleness_mean": float(behind.mean()),
        "rollout/spanning_share": sum(spans) / max(len(spans), 1),
    }


def applied(function: Callable[..., Column], columns: tuple[bool, ...], *inputs: object) -> Batch:
    """A function of the user's: of inputs that are columns it gets the tensors.

    Raises:
        TypeError: it returned neither a tensor nor a ragged one.
    """
    given = [
        _only(each) if is_column and isinstance(each, Batch) else each
        for each, is_column in zip(inputs, columns, strict=True)
    ]
    result = function(*given)
    if not isinstance(result, torch.Tensor | Ragged):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"{name} returned {type(result).__name__}; return a Tensor or a Ragged")
    return Batch({"result": result})


def _only(batch: Batch) -> Column:
    (name,) = batch
    return batch[name]


def _tensor(batch: Batch) -> torch.Tensor:
    (name,) = batch
    return batch.tensor(name)


def _ragged(batch: Batch) -> Ragged:
    (name,) = batch
    return batch.ragged(name)
