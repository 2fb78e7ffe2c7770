"""Detect drift: calls and lengths of a run that have moved away from the plan, and why."""

from collections.abc import Mapping, Sequence
from math import log
from typing import Literal

from pydantic import BaseModel, ConfigDict

from automap.planner.documented import Documented
from automap.planner.runs.iterations import Window

THRESHOLD = 0.15
"""Relative deviation from the plan that suggests another one; RLinf's."""


LENGTHS = 1 / 3
"""Share of the threshold below which lengths explain nothing: a call that they move by less has not
drifted because of them."""
COUNTS = 0.01
"""Share of an iteration's seconds below which the deviation of a call explains nothing."""


NO_SECONDS = 2e-6
"""Planned seconds of a call whose spec gives none: a schedule has no call of less than 1e-6."""


class _Model(Documented, BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Deviation(_Model):
    """A quantity as planned and as measured."""

    planned: float
    measured: float

    @property
    def ratio(self) -> float:
        """Ratio of measured to planned."""
        return self.measured / self.planned

    def beyond(self, threshold: float) -> bool:
        """Whether it deviates by more than a share of what was planned."""
        return abs(self.measured - self.planned) > threshold * self.planned


class Drift(_Model):
    """How far a run is from its plan."""

    threshold: float
    iteration_seconds: Deviation
    calls: dict[str, Deviation] = {}
    """Seconds of the calls that are beyond the threshold, the largest difference first."""
    response_tokens: Deviation | None = None
    """Mean length of a response; None: the run does not say."""
    replan: bool
    """Whether the iteration, or the lengths, are beyond it: another plan may be better."""


class Cause(_Model):
    """What the evidence says of why calls take other than planned."""

    kind: Literal["lengths", "slow_device", "slowdown", "estimate", "between_calls"]
    """lengths: responses are longer or shorter, and the cost model prices that so; slow_device: one
    device is slower than the others of its calls; slowdown: calls take longer than estimated, and
    than in the run's first iterations; estimate: they did not become so, the cost model is wrong or
    the seconds that the spec gives a function; between_calls: no call takes other than planned, but
    the iteration does."""
    calls: list[str] = []
    device: str | None = None
    ratio: float
    """Factor that the cause explains: on the seconds of its calls together, or of the iteration."""


class CallSeconds(_Model):
    """A call's seconds at each step of the explanation."""

    planned: float
    expected: float
    """Seconds of the plan priced with the lengths that were measured."""
    first: float | None
    """Seconds measured in the run's first iterations; null: they are the ones looked at."""
    first_expected: float
    """Seconds of the plan priced with the lengths of the first iterations."""
    measured: float


def causes_of(
    calls: Mapping[str, CallSeconds], window: Window, *, iteration: Deviation, threshold: float
) -> list[Cause]:
    """Each call that has drifted under the causes that explain it, the largest first.

    What the cost model makes of the measured lengths comes off first. Of what then remains beyond
    the threshold, a device that is always the slowest explains most; else what takes longer, and
    has grown beyond the threshold since the first iterations, is a slowdown, and all other is an
    error of the estimate.
    """
    found: dict[tuple[str, str | None], list[str]] = {}
    counts = COUNTS * iteration.planned
    drifted = [
        name
        for name, each in calls.items()
        if Deviation(planned=each.planned, measured=each.measured).beyond(threshold)
        and abs(each.measured - each.planned) > counts
    ]
    for name in drifted:
        for kind, device in _causes(calls[name], window, name, threshold):
            found.setdefault((kind, device), []).append(name)
    if not drifted and iteration.beyond(threshold):
        return [Cause(kind="between_calls", ratio=iteration.ratio)]
    causes = [
        Cause.model_validate(
            {
                "kind": kind,
                "device": device,
                "calls": names,
                "ratio": _explained(kind, [calls[name] for name in names]),
            }
        )
        for (kind, device), names in found.items()
    ]
    return sorted(causes, key=lambda cause: -abs(log(cause.ratio)))


def _causes(
    call: CallSeconds, window: Window, name: str, threshold: float
) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    moved = Deviation(planned=call.planned, measured=call.expected)
    nearer = abs(log(call.measured / call.expected)) < abs(log(call.measured / call.planned))
    if nearer and moved.beyond(LENGTHS * threshold):
        found.append(("lengths", None))
    remaining = Deviation(planned=call.expected, measured=call.measured)
    if not remaining.beyond(threshold):
        return found
    slow = window.slow_devices.get(name)
    if slow is not None and slow.ratio > 1 + threshold and remaining.ratio > 1:
        found.append(("slow_device", slow.device))
        return found
    slower = remaining.ratio > 1 and _has_grown(call, remaining.ratio, threshold)
    found.append(("slowdown" if slower else "estimate", None))
    return found


def _has_grown(call: CallSeconds, remaining: float, threshold: float) -> bool:
    """Whether what remains is more, by the threshold, than it was in the first iterations."""
    if call.first is None:
        return False
    return remaining * call.first_expected > (1 + threshold) * call.first


def _explained(kind: str, calls: Sequence[CallSeconds]) -> float:
    """Factor over all these calls that lengths explain, or that was measured beyond that."""
    expected = sum(call.expected for call in calls)
    if kind == "lengths":
        return expected / sum(call.planned for call in calls)
    return sum(call.measured for call in calls) / expected


def drift(
    iteration_seconds: Deviation,
    calls: Mapping[str, Deviation],
    *,
    response_tokens: Deviation | None = None,
    threshold: float = THRESHOLD,
) -> Drift:
    """Compare a run with its plan: which calls are beyond the threshold, and whether to replan."""
    beyond = {name: each for name, each in calls.items() if each.beyond(threshold)}
    largest = sorted(beyond, key=lambda name: -abs(beyond[name].measured - beyond[name].planned))
    lengths = response_tokens is not None and response_tokens.beyond(threshold)
    return Drift(
        threshold=threshold,
        iteration_seconds=iteration_seconds,
        calls={name: beyond[name] for name in largest},
        response_tokens=response_tokens,
        replan=iteration_seconds.beyond(threshold) or lengths,
    )


def in_words(found: Drift) -> list[str]:
    """What has drifted, line by line; nothing if no other plan is called for."""
    if not found.replan:
        return []
    lines = [f"an iteration takes {_seconds(found.iteration_seconds)}"]
    tokens = found.response_tokens
    if tokens is not None and tokens.beyond(found.threshold):
        lines.append(
            f"responses have {tokens.measured:.4g} tokens in the mean, {tokens.ratio:.2f} times "
            f"the {tokens.planned:.4g} that were planned"
        )
    return lines + [f"{name} takes {_seconds(each)}" for name, each in found.calls.items()]


def _seconds(each: Deviation) -> str:
    if each.planned <= NO_SECONDS:
        return f"{each.measured:.3g} s, and was planned as taking none"
    return (
        f"{each.measured:.3g} s, {each.ratio:.2f} times the {each.planned:.3g} s that were planned"
    )
