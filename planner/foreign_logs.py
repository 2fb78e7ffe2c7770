"""Metrics of other frameworks' runs as calls of a plan, by the names that they document."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Literal

from planner.calibration import Observed
from planner.errors import SpecError
from planner.result import CallPlan, Plan

FormatName = Literal["verl", "openrlhf", "nemo-rl"]
Metrics = Mapping[str, float]


SHOWN = 6
"""Names of metrics in a message."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a metric times: all calls of a kind, of one role if it is named."""

    metric: str
    kind: str
    role: str | None = None
    without: str | None = None
    """A metric whose seconds are part of this one's, but not of these calls."""

    def covers(self, call: CallPlan) -> bool:
        """Whether a call of the plan is timed by it."""
        return (
            call.kind == self.kind and self.role in (None, call.role) and call.copy_id is not None
        )


@dataclass(frozen=True, slots=True)
class Format:
    """Where a framework says what."""

    iteration: str
    spans: tuple[Span, ...]
    transition: str | None = None
    """Weights from training to generation, beside the metric of generation."""
    response_tokens: tuple[str, ...] = ()
    """Mean length of a response, under any of these names."""


FORMATS: dict[FormatName, Format] = {
    "verl": Format(
        "timing_s/step",
        (
            Span("timing_s/gen", "generate", "actor"),
            Span("timing_s/old_log_prob", "forward", "actor"),
            Span("timing_s/ref", "forward", "reference"),
            Span("timing_s/values", "forward", "critic"),
            Span("timing_s/update_critic", "train", "critic"),
            Span("timing_s/update_actor", "train", "actor"),
        ),
        transition="timing_s/update_weights",
        response_tokens=("response_length/mean",),
    ),
    "openrlhf": Format(
        "timing/step_total",
        (
            Span("timing/generation", "generate"),
            Span("timing/make_experience", "forward", without="timing/generation"),
            Span("timing/ppo_train", "train"),
        ),
        transition="timing/broadcast",
        response_tokens=("response_length",),
    ),
    "nemo-rl": Format(
        "timing/train/total_step_time",
        (
            Span("timing/train/generation", "generate"),
            Span("timing/train/policy_and_reference_logprobs", "forward"),
            Span("timing/train/policy_training", "train"),
        ),
        response_tokens=("train/mean_gen_tokens_per_sample",),
    ),
}


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """What a log says of a plan that was run elsewhere."""

    observed: list[Observed]
    lengths: dict[str, float]
    missing: list[str]
    """Metrics of the format that the plan has calls for, and the log has not."""


def read_lines(text: str, *, source: str) -> list[Metrics]:
    """Steps of a log of JSON lines: `{"step": 3, "data": {...}}`, or the metrics by themselves.

    Raises:
        SpecError: a line is no JSON object; names it.
    """
    steps: list[Metrics] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise SpecError(source, f"line {number} is no JSON object", remedy="give JSON lines")
        data = found.get("data")
        metrics = data if isinstance(data, dict) else found
        steps.append({name: value for name, value in metrics.items() if _is_number(value)})
    return steps


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def foreign_run(
    steps: Sequence[Metrics], name: FormatName, plan: Plan, *, source: str
) -> ForeignRun:
    """The plan's calls as a log times them: medians without the first step, which warms up.

    Where one metric times several calls, each has its share of it by the plan.

    Raises:
        SpecError: the log has no metric of the format; names them.
    """
    known = FORMATS[name]
    counted = steps[1:] or steps
    observed, missing = [], []
    for span in known.spans:
        calls = [call for call in plan.calls if span.covers(call)]
        seconds = _seconds(counted, span)
        if calls and not seconds:
            missing.append(span.metric)
        elif calls:
            moved = _values(counted, known.transition) if span.kind == "generate" else []
            observed += _shared(calls, seconds, moved)
    if not observed:
        wanted = ", ".join(span.metric for span in known.spans)
        raise SpecError(
            source,
            f"none of the metrics that {name} times calls with is in it: {wanted}; {_has(steps)}",
            remedy="name the format of the log with --format, or log these metrics",
        )
    return ForeignRun(observed, _lengths(counted, known), missing)


def _has(steps: Sequence[Metrics]) -> str:
    """What a log has, to compare names: those of times first."""
    names = sorted({name for step in steps for name in step})
    names.sort(key=lambda name: "tim" not in name)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"it has {', '.join(names[:SHOWN]) or 'no numbers'}{more}"


def _seconds(steps: Sequence[Metrics], span: Span) -> list[float]:
    if span.without is None:
        return _values(steps, span.metric)
    whole = [step for step in steps if span.metric in step and span.without in step]
    return [step[span.metric] - step[span.without] for step in whole]


def _values(steps: Sequence[Metrics], metric: str | None) -> list[float]:
    return [step[metric] for step in steps if metric is not None and metric in step]


def _shared(
    calls: Sequence[CallPlan], seconds: Sequence[float], moved: Sequence[float]
) -> list[Observed]:
    planned = [call.end_seconds - call.start_seconds for call in calls]
    whole, transition = median(seconds), median(moved) if moved else None
    return [
        Observed(
            call=call.id,
            seconds=(whole + (transition or 0.0)) * part / sum(planned),
            iterations=len(seconds),
            transition_seconds=None if transition is None else transition * part / sum(planned),
        )
        for call, part in zip(calls, planned, strict=True)
    ]


def _lengths(steps: Sequence[Metrics], known: Format) -> dict[str, float]:
    for metric in known.response_tokens:
        if found := _values(steps, metric):
            return {"mean": sum(found) / len(found)}
    return {}
