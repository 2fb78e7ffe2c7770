"""Read logs of other frameworks' runs as calls of a plan, by the metric names they document."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Literal

from automap.planner.errors import SpecError
from automap.planner.plan.types import CallPlan, Plan
from automap.planner.runs.calibration import Observed

FormatName = Literal["verl", "openrlhf", "nemo-rl", "slime", "trl", "skyrl", "areal"]
Metrics = Mapping[str, float]
Steps = Mapping[int, Metrics]
"""Metrics by number of the step, in the order of the log."""

SHOWN = 6
"""Most names of metrics, or numbers of steps, that a message lists."""


@dataclass(frozen=True, slots=True)
class Span:
    """The calls that a metric times: all of a kind, or those of one role if it is named."""

    metric: str
    kind: str
    role: str | None = None

    def covers(self, call: CallPlan) -> bool:
        """Whether a call of the plan is timed by it."""
        return (
            call.kind == self.kind and self.role in (None, call.role) and call.copy_id is not None
        )


@dataclass(frozen=True, slots=True)
class Format:
    """Names under which a framework logs what is read here."""

    iteration: str
    """Metric of a whole iteration; empty: it logs none."""
    spans: tuple[Span, ...]
    transition: str | None = None
    """Metric of moving weights from training to generation, if not part of generation's."""
    response_tokens: tuple[str, ...] = ()
    """Metrics, any of which is the mean length of a response in tokens."""
    prompt_tokens: tuple[str, ...] = ()
    """Likewise, of a prompt."""
    prefixes: tuple[str, ...] = ()
    """What its loggers may write before each of these names."""
    per_update: bool = False
    """The iteration's metric is that of an optimizer step, in lines of other steps than calls."""

    def named(self, steps: Steps) -> Steps:
        """The steps with these names, without what a logger has written before them."""
        return {
            number: {self._plain(name): value for name, value in step.items()}
            for number, step in steps.items()
        }

    def _plain(self, name: str) -> str:
        begins = next((each for each in self.prefixes if name.startswith(each)), "")
        return name.removeprefix(begins)

    def times(self, step: Metrics) -> bool:
        """Whether a step has the time of any call; one that only validates has none."""
        return any(span.metric in step for span in self.spans)


FORMATS: dict[FormatName, Format] = {
    "verl": Format(
        "timing_s/step",
        (
            Span("timing_s/gen", "generate", "actor"),
            Span("timing_s/reward", "forward", "reward"),
            Span("timing_s/old_log_prob", "forward", "actor"),
            Span("timing_s/ref", "forward", "reference"),
            Span("timing_s/values", "forward", "critic"),
            Span("timing_s/update_critic", "train", "critic"),
            Span("timing_s/update_actor", "train", "actor"),
        ),
        transition="timing_s/update_weights",
        response_tokens=("response_length/mean",),
        prompt_tokens=("prompt_length/mean",),
    ),
    "openrlhf": Format(
        "timing/step_total",
        (
            Span("timing/generation", "generate"),
            Span("timing/make_experience", "forward"),
            Span("timing/ppo_train", "train"),
        ),
        transition="timing/broadcast",
        response_tokens=("rollout/response_length_mean",),
        prefixes=("train/",),
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
    "slime": Format(
        "perf/step_time",
        (
            # Where rollouts are ahead it is what the trainer waits for them, not all they take.
            Span("perf/train_wait_time", "generate", "actor"),
            Span("perf/log_probs_time", "forward", "actor"),
            Span("perf/ref_log_probs_time", "forward", "reference"),
            Span("perf/actor_train_time", "train", "actor"),
        ),
        response_tokens=("rollout/response_lengths", "rollout/response_len/mean"),
    ),
    "trl": Format(
        "step_time",
        # It times no pass over a whole batch beside generation.
        (Span("vLLM.generate", "generate", "actor"),),
        transition="sync_weights",
        response_tokens=("completions/mean_length",),
        prefixes=(
            "train/",
            "profiling/Time taken: GRPOTrainer.",
            "profiling/Time taken: RLOOTrainer.",
        ),
        per_update=True,
    ),
    "skyrl": Format(
        "timing/step",
        (
            # Where rollouts are ahead it logs how long it waits for them alone.
            Span("timing/generate", "generate", "actor"),
            Span("timing/fwd_logprobs_values_reward", "forward"),
            Span("timing/critic_train", "train", "critic"),
            Span("timing/policy_train", "train", "actor"),
        ),
        transition="timing/sync_weights",
        response_tokens=("generate/avg_num_tokens",),
    ),
    "areal": Format(
        "",
        (
            # Where rollouts are ahead it is what the trainer waits for them, not all they take.
            Span("timeperf/rollout", "generate", "actor"),
            Span("timeperf/critic_values", "forward", "critic"),
            Span("timeperf/ref_logp", "forward", "reference"),
            Span("timeperf/recompute_logp", "forward", "actor"),
            Span("timeperf/train_step", "train", "actor"),
            Span("timeperf/critic_train_step", "train", "critic"),
        ),
        transition="timeperf/update_weights",
        prompt_tokens=("ppo_actor/prompt_len/avg",),
    ),
}


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """Measurements of a plan that was run elsewhere, from that run's log."""

    observed: list[Observed]
    lengths: dict[str, float]
    missing: list[str]
    """Metrics that the plan has calls for, but the log lacks."""
    iteration_seconds: float | None = None
    """Median seconds of an iteration; None: the log does not say."""
    warnings: list[str] = field(default_factory=list)
    """Messages on what of the log could not be used, and how much that is."""


def read_lines(text: str, *, source: str) -> Steps:
    """Steps of a log of JSON lines: `{"step": 3, "data": {...}}`, or the metrics by themselves.

    A line without a step is that of its number. Lines of one step add up; what a restarted run
    logged again counts as it was logged last.

    Raises:
        SpecError: a line is no JSON object; names it.
    """
    steps: dict[int, dict[str, float]] = defaultdict(dict)
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
        step = found.get("step")
        given = step if isinstance(step, int) and not isinstance(step, bool) else number
        numbers = {name: value for name, value in metrics.items() if _is_number(value)}
        steps[given].update(numbers)
    return steps


def _is_number(value: object) -> bool:
    """Whether a value can be a measurement: JSON has numbers of any length."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, float)


def foreign_run(steps: Steps, name: FormatName, plan: Plan, *, source: str) -> ForeignRun:
    """The plan's calls as a log times them: medians without the first step, which warms up.

    Where one metric times several calls, each has its share of it by the plan. Values that are no
    positive numbers are left out, with a warning.

    Raises:
        SpecError: the log has no metric of the format, or none with a usable value; names them.
    """
    known = FORMATS[name]
    steps = known.named(steps)
    log = _Log(_after_warm_up(steps, known))
    observed, missing = _observed(log, known, plan)
    if not observed:
        raise _useless(steps, log, name, source)
    every = _Log(dict(list(steps.items())[1:]), log.warnings) if known.per_update else log
    lengths = _lengths(every, known)
    if sum(map(known.times, steps.values())) == 1:
        log.warnings.append(
            "it times one step alone, which warms up (compilation, cold caches): what is learnt "
            "of it is likely too slow; give a log of more steps"
        )
    iteration = _iteration(every.values(known.iteration), known, plan)
    return ForeignRun(observed, lengths, missing, iteration, log.warnings)


def _iteration(seconds: Sequence[float], known: Format, plan: Plan) -> float | None:
    """Median seconds of an iteration; of optimizer steps the mean, times those of an iteration.

    Of the steps of an iteration one generates.
    """
    if not seconds or not known.per_update:
        return median(seconds) if seconds else None
    workload = plan.spec.workload
    return sum(seconds) / len(seconds) * workload.updates_per_epoch * workload.epochs


def _observed(log: "_Log", known: Format, plan: Plan) -> tuple[list[Observed], list[str]]:
    """The plan's calls that the log times, and the metrics that would time the others."""
    observed, missing = [], []
    for span in known.spans:
        calls = [call for call in plan.calls if span.covers(call)]
        seconds = log.values(span.metric) if calls else []
        if seconds:
            reshards = known.transition if span.kind == "generate" else None
            observed += _shared(calls, seconds, log.values(reshards) if reshards else [])
        elif calls:
            missing.append(span.metric)
    return observed, missing


def _after_warm_up(steps: Steps, known: Format) -> dict[int, Metrics]:
    """The steps that time something, but the first, unless it is the only one."""
    timed = {number: step for number, step in steps.items() if known.times(step)}
    return dict(list(timed.items())[1:]) or timed


def _useless(steps: Steps, log: "_Log", name: FormatName, source: str) -> SpecError:
    wanted = ", ".join(span.metric for span in FORMATS[name].spans)
    if log.warnings:
        message = f"none of its times can be used: {'; '.join(log.warnings)}"
        return SpecError(source, message, remedy=f"log positive seconds of {wanted}")
    return SpecError(
        source,
        f"none of the metrics that {name} times calls with is in it: {wanted}; "
        f"{_has(steps.values())}",
        remedy="name the format of the log with --format, or log these metrics",
    )


def _has(steps: Iterable[Metrics]) -> str:
    """Names of the metrics in a log for a message, those of times first."""
    names = sorted({name for step in steps for name in step})
    names.sort(key=lambda name: "tim" not in name)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"it has {', '.join(names[:SHOWN]) or 'no numbers'}{more}"


@dataclass(frozen=True, slots=True)
class _Log:
    """The steps of a log that count, and warnings about values in them that do not."""

    steps: Steps
    warnings: list[str] = field(default_factory=list)

    def values(self, metric: str) -> list[float]:
        """The positive numbers that were logged under a name."""
        found = {number: step[metric] for number, step in self.steps.items() if metric in step}
        bad = [n for n, value in found.items() if not (isfinite(value) and value > 0)]
        if bad:
            shown = ", ".join(f"{found[number]:g} in step {number}" for number in bad[:SHOWN])
            more = f" and {len(bad) - SHOWN} more steps" if len(bad) > SHOWN else ""
            self.warnings.append(f"{metric} is {shown}{more}: left out, not above 0")
        return [value for number, value in found.items() if number not in bad]


def _shared(
    calls: Sequence[CallPlan], seconds: Sequence[float], moved: Sequence[float]
) -> list[Observed]:
    planned = [call.measurable_seconds for call in calls]
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


def mean_lengths(steps: Steps, name: FormatName) -> dict[str, float]:
    """Mean tokens by `prompt` and `response`, over all steps of a log; without what it lacks."""
    known = FORMATS[name]
    log = _Log(known.named(steps))
    metrics = {"prompt": known.prompt_tokens, "response": known.response_tokens}
    found = {
        what: [value for name in names for value in log.values(name)]
        for what, names in metrics.items()
    }
    return {what: sum(values) / len(values) for what, values in found.items() if values}


def _lengths(log: _Log, known: Format) -> dict[str, float]:
    for metric in known.response_tokens:
        if found := log.values(metric):
            return {"mean": sum(found) / len(found)}
    return {}
