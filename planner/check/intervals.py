"""Rules on intervals: each is the one that prices, spreads and the plan's order lead to."""

from collections.abc import Iterator

from planner.check.prices import Prices
from planner.check.subject import Subject, agrees
from planner.check.time import Schedule
from planner.intervals import intervals_of
from planner.result import Interval


def wrong_intervals(subject: Subject, schedule: Schedule, prices: Prices) -> Iterator[str]:
    """Every interval that does not follow, or does not hold its estimate."""
    plan = subject.plan
    if plan.iteration_seconds_interval is None:  # of a version that knew none
        return
    expected = intervals_of(subject, schedule, prices)
    yield from _differs(
        "iteration_seconds", plan.iteration_seconds_interval, expected.iteration_seconds
    )
    yield from _misses("iteration_seconds", plan.iteration_seconds_interval, plan.iteration_seconds)
    for call in plan.calls:
        name, seconds = f"call {call.id}", call.end_seconds - call.start_seconds
        yield from _differs(name, call.seconds_interval, expected.seconds[call.id])
        yield from _misses(name, call.seconds_interval, seconds)
        peak = f"the peak of call {call.id}"
        yield from _differs(peak, call.peak_bytes_interval, expected.peak_bytes.get(call.id))


def _differs(name: str, found: Interval | None, expected: Interval | None) -> Iterator[str]:
    if found is None or expected is None:
        if found != expected:
            yield f"the interval of {name} is {found}, but it should be {expected}"
    elif not (agrees(found.low, expected.low) and agrees(found.high, expected.high)):
        yield (
            f"the interval of {name} is {found.low:.6g} to {found.high:.6g}, but it should be "
            f"{expected.low:.6g} to {expected.high:.6g}"
        )


def _misses(name: str, interval: Interval | None, estimate: float) -> Iterator[str]:
    if interval is None:
        return
    below = interval.low <= estimate or agrees(interval.low, estimate)
    above = estimate <= interval.high or agrees(interval.high, estimate)
    if not (below and above):
        yield (
            f"the interval of {name}, {interval.low:.6g} to {interval.high:.6g}, does not hold "
            f"its estimate {estimate:.6g}"
        )
