"""Rules on how well calls use their GPUs: the figures follow from FLOPs, tokens and seconds."""

import math
from collections.abc import Iterator

from automap.planner.check.subject import Subject
from automap.planner.cost.model_flops import (
    model_flops,
    peak_flops_per_second,
    tokens_processed,
)
from automap.planner.plan.types import CallPlan


def wrong_efficiency(subject: Subject) -> Iterator[str]:
    """Model FLOPs utilization and tokens per second and GPU that do not follow.

    Plans of versions that did not say have neither.
    """
    for call in subject.plan.calls:
        flops, tokens = _flops_and_tokens(subject, call)
        yield from _follows(call.id, "model_flops_utilization", call.model_flops_utilization, flops)
        yield from _follows(
            call.id, "tokens_per_second_per_gpu", call.tokens_per_second_per_gpu, tokens
        )


def _follows(call: str, name: str, found: float | None, expected: float | None) -> Iterator[str]:
    if found is None:
        return
    if expected is None:
        yield f"call {call} is a function and takes no GPU, but has {name}"
    elif not math.isclose(found, expected, rel_tol=1e-9):
        yield f"{name} of call {call} is {found:.6f}, but it is {expected:.6f}"


def _flops_and_tokens(subject: Subject, call: CallPlan) -> tuple[float | None, float | None]:
    """(share of the GPUs' peak that the model's FLOPs take, tokens per second and GPU)."""
    wanted, seconds = subject.calls[call.id], call.end_seconds - call.start_seconds
    if call.copy_id is None or wanted.model is None or seconds <= 0:
        return None, None
    copy, workload = subject.copies[call.copy_id], subject.job.spec.workload
    model, pool = subject.job.models[wanted.model], subject.pool_of(copy)
    available = peak_flops_per_second(model, wanted, workload, pool) * copy.num_gpus * seconds
    tokens = tokens_processed(wanted, workload) / copy.num_gpus / seconds
    return model_flops(model, wanted, workload) / available, tokens
