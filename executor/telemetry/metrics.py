"""The numbers of an iteration under the names that people know from verl.

timing_s/*, timing_per_token_ms/*, perf/*: how long it took. prompt_length/*, response_length/*:
what was generated. critic/score, rewards, advantages, returns, values: what it earned. actor/*,
critic/*: how the training went.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from automap.executor.batch import Batch, Ragged
from automap.executor.telemetry.call_records import CallRecord

_FORWARD_NAMES = {
    "actor": "old_log_prob",
    "reference": "ref",
    "critic": "values",
    "cost_critic": "cost_values",
}
_NAMES_OF_KIND = {
    "reshard": "update_weights",
    "weight_sync": "update_weights",
    "operation": "adv",
    "checkpoint": "save_checkpoint",
    "iteration": "step",
}
QUANTILES = (50, 90, 99)
ROUNDING = 1e-6
"""Share of the largest return below which a spread is that of rounding."""
_NOT_PER_TOKEN = {"update_weights", "save_checkpoint", "step"}
_TRAINING_NAMES = {"learning_rate": "lr"}


def timing_name(record: CallRecord) -> str:
    """What comes after `timing_s/`, such as gen, old_log_prob, ref, values or update_actor.

    A model whose role verl does not know scores under its role's name.
    """
    match record.kind:
        case "generate":
            # verl's name of ReMax's second, greedy generation
            return "gen_max" if record.call_id.endswith(".greedy") else "gen"
        case "forward":
            return _FORWARD_NAMES.get(record.role, record.role)
        case "train":
            return f"update_{record.role}"
        case kind:
            return _NAMES_OF_KIND[kind]


def timing_metrics(
    records: Iterable[CallRecord], *, prompt_tokens: int, response_tokens: int, num_devices: int
) -> dict[str, float]:
    """timing_s/*, timing_per_token_ms/* and perf/* of one iteration.

    Calls of one name add up: weights of several models, rounds of dynamic sampling. perf/throughput
    is in tokens (prompts and responses) per second and device.

    Args:
        records: Calls of the iteration.
        prompt_tokens: Prompt tokens of the batch that was trained on.
        response_tokens: Likewise.
        num_devices: Devices of the whole run, idle ones included.
    """
    seconds: dict[str, float] = defaultdict(float)
    for record in records:
        seconds[timing_name(record)] += record.seconds
    total = prompt_tokens + response_tokens
    metrics = {f"timing_s/{name}": value for name, value in seconds.items()}
    for name, value in seconds.items():
        tokens = response_tokens if name.startswith("gen") else total
        if name not in _NOT_PER_TOKEN and tokens:
            metrics[f"timing_per_token_ms/{name}"] = 1000 * value / tokens
    metrics["perf/total_num_tokens"] = float(total)
    if seconds.get("step"):
        metrics["perf/time_per_step"] = seconds["step"]
        metrics["perf/throughput"] = total / (seconds["step"] * num_devices)
    return metrics


def rollout_metrics(
    batch: Batch, *, max_prompt_length: int, max_response_length: int
) -> dict[str, float]:
    """Lengths, and what the columns scores, rewards, advantages, returns and values say.

    Columns that the batch lacks are left out, and rows of weight 0. `clip_ratio` is the share of
    rows of the maximum length. critic/rewards is the sum of a response's rewards, KL penalty
    included; critic/score is without it.
    """
    weights = batch.weights()
    kept = batch if bool(weights.all()) else batch.take(torch.nonzero(weights).flatten())
    metrics: dict[str, float] = {}
    limits = {"prompt": max_prompt_length, "response": max_response_length}
    for name, limit in limits.items():
        if f"{name}_tokens" in kept:
            lengths = kept.ragged(f"{name}_tokens").lengths
            metrics |= _summary(f"{name}_length", lengths)
            metrics |= _quantiles(f"{name}_length", lengths)
            metrics[f"{name}_length/clip_ratio"] = float((lengths >= limit).double().mean())
    if "scores" in kept:
        metrics |= _summary("critic/score", kept.tensor("scores"))
    if "rewards" in kept:
        metrics |= _summary("critic/rewards", _outcomes(kept["rewards"]))
    for name in ("advantages", "returns", "values"):
        if name in kept:
            metrics |= _summary(f"critic/{name}", _elements(kept[name]))
    if "values" in kept and "returns" in kept:
        metrics |= _explained_variance(_elements(kept["values"]), _elements(kept["returns"]))
    return metrics


def training_metrics(role: str, steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """actor/pg_loss, actor/grad_norm, actor/lr, …: means over an iteration's optimizer steps.

    Args:
        role: Whose steps; another critic than `critic` has its own name in front.
        steps: What `TrainingEngine.train_step` returned. Names of losses (critic/vf_loss) have
            their prefix already, grad_norm and learning_rate get one.
    """
    metrics: dict[str, float] = {}
    for name in {name for step in steps for name in step}:
        values = [step[name] for step in steps if name in step]
        short = _TRAINING_NAMES.get(name, name.rpartition("/")[2])
        # The rate at the end of the iteration, not one that no step had.
        metrics[f"{role}/{short}"] = (
            values[-1] if name == "learning_rate" else sum(values) / len(values)
        )
    return metrics


def _summary(name: str, values: Tensor) -> dict[str, float]:
    if not len(values):
        return {}
    exact = values.double()
    return {
        f"{name}/mean": float(exact.mean()),
        f"{name}/max": float(exact.max()),
        f"{name}/min": float(exact.min()),
    }


def _quantiles(name: str, values: Tensor) -> dict[str, float]:
    """The quantiles of `values` by which a job spec describes lengths, by metric name."""
    if not len(values):
        return {}
    found = torch.quantile(values.double(), torch.tensor(QUANTILES, dtype=torch.float64) / 100)
    return {f"{name}/p{level}": float(value) for level, value in zip(QUANTILES, found, strict=True)}


def _outcomes(rewards: Tensor | Ragged) -> Tensor:
    if not isinstance(rewards, Ragged):
        return rewards
    sums = torch.zeros(len(rewards), dtype=torch.float64)
    return sums.index_add(0, rewards.row_of_value(), rewards.values.double())


def _elements(column: Tensor | Ragged) -> Tensor:
    return column.values if isinstance(column, Ragged) else column


def _explained_variance(values: Tensor, returns: Tensor) -> dict[str, float]:
    """1 − Var(returns − values) ÷ Var(returns): 1 is a perfect critic, 0 one that knows nothing."""
    spread = returns.double().var(correction=0)
    # Returns that are equal but for rounding have nothing to explain.
    if spread <= (ROUNDING * returns.double().abs().max().clamp(min=1e-30)) ** 2:
        return {}
    unexplained = (returns.double() - values.double()).var(correction=0)
    return {"critic/vf_explained_var": float(1 - unexplained / spread)}
