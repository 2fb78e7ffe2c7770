"""Regret of predicted layouts: what choosing by predictions costs among measured layouts of a job.

A plan needs the order of layouts more than their seconds. A job is what a run computes, on which
GPUs and with which software; its layouts are how.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from automap.planner.validation.predictions import Prediction
from automap.planner.validation.rows import Row, RunRow

COMPARED = ("iteration_seconds", "decode_step_seconds")
"""Quantities of which less is better, for the same work."""
JOB = (
    "source",
    "year",
    "model",
    "num_layers",
    "gpu_type",
    "num_gpus",
    "precision",
    "quantization",
    "workload",
    "engine",
    "engine_version",
    "load",
    "system",
    "synchrony",
    "global_batch_size",
    "num_rollouts",
    "sequence_length",
    "prompt_length",
    "response_length",
    "concurrency",
)
LAYOUT = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "virtual_pipeline_parallel_size",
    "data_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
    "generation_tensor_parallel_size",
    "sharding",
    "recompute",
    "micro_batch_size",
)


@dataclass(frozen=True, slots=True)
class LayoutRegret:
    """Regrets over the jobs of which several layouts were measured."""

    num_jobs: int
    mean: float
    """Mean over jobs of measured seconds of the layout predicted best ÷ those of the best − 1."""
    worst: float


def _values(row: Row, names: Iterable[str]) -> tuple[object, ...]:
    return tuple(getattr(row, name, None) for name in names)


def layout_regret(predictions: Iterable[Prediction]) -> LayoutRegret | None:
    """The regret of choosing layouts by prediction; None without a job of several layouts."""
    jobs: dict[tuple[object, ...], list[Prediction]] = defaultdict(list)
    for one in predictions:
        if isinstance(one.row, RunRow) and one.quantity in COMPARED and one.predicted is not None:
            jobs[one.quantity, *_values(one.row, JOB)].append(one)
    regrets = []
    for runs in jobs.values():
        if len({_values(one.row, LAYOUT) for one in runs}) > 1:
            chosen = min(runs, key=lambda one: one.predicted or 0.0)
            regrets.append(chosen.measured / min(one.measured for one in runs) - 1.0)
    if not regrets:
        return None
    return LayoutRegret(len(regrets), sum(regrets) / len(regrets), max(regrets))
