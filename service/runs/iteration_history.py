"""What a job keeps of its iterations, from its events: the first, the latest, means over time.

Drift is seen in a window of the latest, its causes by comparison with the first.
"""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from automap.planner.documented import Documented
from automap.planner.runs import QUANTILES, RECENT, Iteration, ObservedLengths, SlowRank, Window
from automap.service.schemas.documents import JsonObject

FIRST = 5
"""Iterations kept after the warm-up: what later ones are compared with."""
STRETCHES = 64
"""Stretches of a history, at most: when there are more, each two neighbours become one."""
_LENGTH = "response_length"
_SLOWER = 1.05
"""A rank is slow if it takes at least so many times as long as the others."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Stretch(Documented, _Model):
    """Means of some iterations in a row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int
    last: int
    """Numbers of iterations; those that warmed up are left out."""
    count: int
    """How many iterations these are the means of."""
    ended_at: str | None = None
    """When the last of them ended, as the run says."""
    seconds: float
    calls: dict[str, float] = {}
    response_tokens: float | None = None


class IterationHistory(_Model):
    """What a job keeps of its iterations, within bounds."""

    warming_up: bool = True
    """The next iteration is the first of its processes: compilation, cold caches."""
    number: int = 0
    """The iteration that `calls`, `lengths` and `slowest` belong to."""
    calls: dict[str, float] = {}
    lengths: ObservedLengths | None = None
    slowest: dict[str, SlowRank] = {}
    recent: list[Iteration] = []
    first: list[Iteration] = []
    stretches: list[Stretch] = []
    width: int = Field(default=1, ge=1)
    """Iterations of a whole stretch."""

    @property
    def observed_lengths(self) -> ObservedLengths | None:
        """The lengths of responses, over the latest iterations."""
        return ObservedLengths.over(each.lengths for each in self.recent if each.lengths)

    def latest_window(self, size: int) -> Window | None:
        """The medians of the latest iterations; None: there are not so many yet."""
        return Window.of(self.recent[-size:]) if len(self.recent) >= size else None

    def first_window(self, *, before: int) -> Window | None:
        """The medians of the first iterations, of those before the one numbered `before`."""
        first = [each for each in self.first if each.number < before]
        return Window.of(first) if first else None


def read(document: Any) -> IterationHistory:
    """The history that is stored; an empty one if it is missing or of another version."""
    try:
        return IterationHistory.model_validate(document or {})
    except ValidationError:
        return IterationHistory()


def with_events(document: Any, events: Iterable[JsonObject]) -> JsonObject | None:
    """What is to be stored after these events; None: they change nothing."""
    known: IterationHistory | None = None
    for event in events:
        take = _TAKERS.get(str(event["type"]))
        if take is not None:
            known = known or read(document)
            take(known, event)
    return None if known is None else known.model_dump(mode="json", exclude_defaults=True)


def _take_state(known: IterationHistory, event: JsonObject) -> None:
    """Processes start anew."""
    known.warming_up = True
    _begin(known, 0)


def _take_call(known: IterationHistory, event: JsonObject) -> None:
    name, seconds = event.get("call"), _seconds(event.get("seconds"))
    number = event.get("iteration")
    if not isinstance(name, str) or seconds is None or not isinstance(number, int):
        return
    if number != known.number:
        _begin(known, number)
    known.calls[name] = known.calls.get(name, 0.0) + seconds
    try:
        slowest = SlowRank.model_validate(event.get("slowest"))
    except ValidationError:
        return
    if slowest.ratio >= _SLOWER:
        known.slowest[name] = slowest


def _take_metrics(known: IterationHistory, event: JsonObject) -> None:
    metrics = event.get("metrics")
    if not isinstance(metrics, dict):
        return
    found = {
        name: value
        for name in ("mean", *QUANTILES, "max")
        if (value := _seconds(metrics.get(f"{_LENGTH}/{name}")))
    }
    known.lengths = ObservedLengths.model_validate(found) if "mean" in found else None


def _take_iteration(known: IterationHistory, event: JsonObject) -> None:
    number, seconds = event.get("iteration"), _seconds(event.get("seconds"))
    if not isinstance(number, int) or number < 1 or seconds is None:
        return
    if known.warming_up:
        known.warming_up = False
    else:
        calls = known.calls if known.number == number else {}
        done = Iteration(
            number=number,
            seconds=seconds,
            calls=calls,
            lengths=known.lengths,
            slowest=known.slowest if calls else {},
        )
        _add(known, done, event.get("time"))
    _begin(known, number + 1)


def _begin(known: IterationHistory, number: int) -> None:
    known.number, known.calls, known.lengths, known.slowest = number, {}, None, {}


def _add(known: IterationHistory, done: Iteration, time: object) -> None:
    """An iteration that is run again after a restart takes the place of what it was."""
    before = [each for each in known.recent if each.number < done.number]
    known.recent = [*before, done][-RECENT:]
    if len(known.first) < FIRST and all(each.number < done.number for each in known.first):
        known.first = [*known.first, done]
    if known.stretches and known.stretches[-1].last >= done.number:
        return  # it is in the history already
    one = Stretch(
        first=done.number,
        last=done.number,
        count=1,
        ended_at=time if isinstance(time, str) else None,
        seconds=done.seconds,
        calls=done.calls,
        response_tokens=done.lengths.mean if done.lengths else None,
    )
    last = known.stretches[-1] if known.stretches else None
    if last is not None and last.count < known.width:
        known.stretches = [*known.stretches[:-1], joined(last, one)]
    else:
        known.stretches = [*known.stretches, one]
    if len(known.stretches) > STRETCHES:
        pairs = [known.stretches[at : at + 2] for at in range(0, STRETCHES, 2)]
        known.stretches = [joined(*pair) for pair in pairs] + known.stretches[STRETCHES:]
        known.width *= 2


def joined(one: Stretch, other: Stretch) -> Stretch:
    """Two neighbours as one."""
    count = one.count + other.count

    def mean(mine: float | None, theirs: float | None) -> float | None:
        if mine is None or theirs is None:
            return theirs if mine is None else mine
        return (one.count * mine + other.count * theirs) / count

    calls = {name: mean(one.calls.get(name), other.calls.get(name)) for name in one.calls}
    calls |= {name: value for name, value in other.calls.items() if name not in calls}
    return Stretch(
        first=one.first,
        last=other.last,
        count=count,
        ended_at=other.ended_at,
        seconds=fmean((one.seconds, other.seconds), (one.count, other.count)),
        calls={name: value for name, value in calls.items() if value is not None},
        response_tokens=mean(one.response_tokens, other.response_tokens),
    )


def _seconds(value: Any) -> float | None:
    """The value if it is a number that seconds or tokens can be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e300:
        return None
    return float(value)


_TAKERS = {
    "state": _take_state,
    "call": _take_call,
    "metrics": _take_metrics,
    "iteration": _take_iteration,
}
