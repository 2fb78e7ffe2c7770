"""Rules on time: shared GPUs, the dataflow's edges, weight syncs, and the least period.

A plan is a periodic schedule. Event e of iteration i runs from start + (stage + i) · P on, with the
start in [0, P]; under the barrier every stage is 0 and every end is at most P. An edge (u, v, δ)
holds when start_v + (stage_v + δ) · P ≥ end_u + stage_u · P. A streamed edge lets v start before
the end of u, at the first moment from which v, taking the responses in equal chunks one after
another, never waits for one.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from automap.planner.check.prices import Prices
from automap.planner.check.subject import (
    Span,
    Subject,
    agrees,
    span_of,
    sync_name,
    tolerance_seconds,
)
from automap.planner.layout import FloatArray
from automap.planner.plan.types import CallPlan, WeightSync

BISECTIONS = 64


@dataclass(frozen=True, slots=True)
class Event:
    """A call or a weight sync: when it runs, on which GPUs, and what it should last."""

    name: str
    start: float
    end: float
    stage: int
    spans: tuple[Span, ...]
    price_seconds: float
    chunk_ready_shares: tuple[float, ...] = ()
    """Shares of the seconds after which each chunk but the last is ready; empty: none is taken."""
    tail: tuple[Span, float] | None = None
    """(GPUs that are held to the end, share of the seconds after which the others are free)."""

    def held_share(self, other: "Event") -> float:
        """Share of its seconds for which it holds GPUs that another event needs."""
        if self.tail is None or any(self.tail[0].shares_gpus(span) for span in other.spans):
            return 1.0
        return self.tail[1]

    def shares_gpus(self, other: "Event") -> bool:
        """True when both need some GPU."""
        return any(one.shares_gpus(two) for one in self.spans for two in other.spans)


@dataclass(frozen=True, slots=True)
class Wait:
    """Event `target` starts after event `source` of `distance` iterations earlier has ended.

    Where it is streamed the target may start before that end.
    """

    source: int
    target: int
    distance: int
    streamed: bool = False
    for_gpus: bool = False
    """True where the target needs nothing but GPUs: some may be free before the source ends."""

    def seconds(self, events: "list[Event]") -> float:
        """Least time from the source's start to the target's, in whole microseconds."""
        source = events[self.source]
        if self.for_gpus:
            held = source.held_share(events[self.target])
            return microseconds_up(held * source.price_seconds)
        if not self.streamed:
            return source.price_seconds
        outs = [microseconds_up(s * source.price_seconds) for s in source.chunk_ready_shares]
        outs.append(source.price_seconds)
        each = events[self.target].price_seconds / len(outs)
        return microseconds_up(max(out - k * each for k, out in enumerate(outs)))


def microseconds_up(seconds: float) -> float:
    """Seconds rounded up to whole microseconds, the unit of prices."""
    return math.ceil(1e6 * seconds - 1e-3) * 1e-6


@dataclass(frozen=True, slots=True)
class Schedule:
    """The events of an iteration, what they wait for, and the period."""

    events: list[Event]
    waits: list[Wait]
    period: float
    cyclic: bool


def schedule_of(subject: Subject, prices: Prices) -> Schedule:
    """A plan's calls, then its weight syncs, with the edges of the dataflow and of the syncs."""
    plan = subject.plan
    events = []
    for call in plan.calls:
        spans = () if call.copy_id is None else (span_of(subject.copies[call.copy_id]),)
        price = prices.calls[call.id]
        events.append(
            Event(
                f"call {call.id}",
                call.start_seconds,
                call.end_seconds,
                call.stage,
                spans,
                price.seconds,
                price.chunk_ready_shares,
                _tail(call, spans, price.main_phase_share),
            )
        )
    for sync in plan.transitions:
        home, shadow = subject.sync_sides(sync)
        events.append(
            Event(
                sync_name(sync),
                sync.start_seconds,
                sync.end_seconds,
                sync.stage,
                (span_of(home), span_of(shadow)),
                prices.sync_seconds[shadow.id],
            )
        )
    waits = list(_waits(subject))
    return Schedule(events, waits, plan.iteration_seconds, subject.job.spec.search.cyclic)


def _tail(
    call: CallPlan, spans: tuple[Span, ...], main_phase_share: float | None
) -> tuple[Span, float] | None:
    if call.tail is None or main_phase_share is None:
        return None
    first = spans[0].first
    return Span(spans[0].pool, first, first + call.tail.num_gpus), main_phase_share


def _waits(subject: Subject) -> Iterator[Wait]:
    """The dataflow's edges; a weight sync lies between the training and every use of its shadow."""
    numbers = {call.id: number for number, call in enumerate(subject.plan.calls)}
    for edge in subject.flow.edges:
        streamed = bool(edge.streamed)
        yield Wait(numbers[edge.source], numbers[edge.target], edge.distance, streamed)
    for number, sync in enumerate(subject.plan.transitions, start=len(numbers)):
        users = [call.id for call in subject.plan.calls if call.copy_id == sync.target_copy]
        for user in users:
            yield Wait(number, numbers[user], 0)
            for train, distance in _trainings_before(subject, sync, user):
                yield Wait(numbers[train], number, distance)


def _trainings_before(subject: Subject, sync: WeightSync, user: str) -> Iterator[tuple[str, int]]:
    """(train call, distance) whose weights a generate call must see, as its edges say.

    A generate call that follows a training within the iteration through other calls has no edge
    from it, and sees its weights all the same.
    """
    edges = subject.flow.edges
    ancestors, frontier = set(), {user}
    while frontier:
        ancestors |= frontier
        before = {edge.source for edge in edges if edge.target in frontier and edge.distance == 0}
        frontier = before - ancestors
    for call in subject.flow.calls:
        if call.kind == "train" and call.model == sync.role:
            direct = [e.distance for e in edges if (e.source, e.target) == (call.id, user)]
            yield from ((call.id, distance) for distance in direct)
            if not direct and call.id in ancestors:
                yield call.id, 0


def broken_times(schedule: Schedule) -> Iterator[str]:
    """Every event outside its iteration, overlap on a GPU, and edge that does not hold."""
    for event in schedule.events:
        yield from _event_lies_in_the_period(schedule, event)
    for one, other in combinations(schedule.events, 2):
        if one.shares_gpus(other):
            yield from _events_do_not_overlap(one, other, schedule.period)
    for wait in schedule.waits:
        yield from _target_waits(schedule, wait)


def wrong_streams(subject: Subject, schedule: Schedule) -> Iterator[str]:
    """Every call that names other generations than it overlaps, and every wrong start of a tail."""
    for number, call in enumerate(subject.plan.calls):
        event = schedule.events[number]
        due = None
        if event.tail is not None:
            due = event.start + microseconds_up(event.tail[1] * event.price_seconds)
        stated = call.bulk_end_seconds
        if (due is None) != (stated is None) or (
            due is not None and stated is not None and not agrees(stated, due)
        ):
            yield f"the main phase of {event.name} ends at {stated} s, but it should at {due}"
        begins = event.start + event.stage * schedule.period
        overlapped = set()
        for wait in schedule.waits:
            if wait.streamed and wait.target == number:
                source = schedule.events[wait.source]
                end = source.end + source.stage * schedule.period
                if begins < end - tolerance_seconds(begins, end):
                    overlapped.add(subject.plan.calls[wait.source].id)
        if set(call.streamed_from) != overlapped:
            yield (
                f"{event.name} says that it streams from {_names(call.streamed_from)}, but it "
                f"starts before the end of {_names(overlapped)}"
            )


def _names(calls: Iterable[str]) -> str:
    return ", ".join(sorted(calls)) or "none"


def _event_lies_in_the_period(schedule: Schedule, event: Event) -> Iterator[str]:
    period, seconds = schedule.period, event.end - event.start
    allowed = tolerance_seconds(period)
    if seconds < -allowed:
        yield f"{event.name} ends at {event.end:.6f} s, before its start at {event.start:.6f} s"
    if not -allowed <= event.start <= period + allowed:
        yield f"{event.name} starts at {event.start:.6f} s, outside the period of {period:.6f} s"
    if schedule.cyclic:
        if event.stage < 0:
            yield f"{event.name} is in stage {event.stage}, before the iteration"
        if seconds > period + allowed:
            yield f"{event.name} lasts {seconds:.6f} s, longer than the period of {period:.6f} s"
        return
    if event.stage != 0:
        yield f"{event.name} is in stage {event.stage}, but the barrier knows stage 0 alone"
    if event.end > period + allowed:
        yield (
            f"{event.name} ends at {event.end:.6f} s, after the iteration's end at {period:.6f} s"
        )


def _events_do_not_overlap(one: Event, other: Event, period: float) -> Iterator[str]:
    """On the circle of a period: what runs over its end meets what starts at 0."""
    nearest = round((one.start - other.start) / period)
    one_end = one.start + one.held_share(other) * (one.end - one.start)
    other_end = other.start + other.held_share(one) * (other.end - other.start)
    for shift in (nearest - 1, nearest, nearest + 1):
        start, end = other.start + shift * period, other_end + shift * period
        shared = min(one_end, end) - max(one.start, start)
        if shared > tolerance_seconds(one_end, end, period):
            around = f", {shift} periods around" if shift else ""
            yield (
                f"{one.name} ({one.start:.6f} to {one_end:.6f} s) and {other.name} "
                f"({other.start:.6f} to {other_end:.6f} s{around}) overlap by {shared:.6f} s on "
                f"shared GPUs"
            )
            return


def _target_waits(schedule: Schedule, wait: Wait) -> Iterator[str]:
    source, target = schedule.events[wait.source], schedule.events[wait.target]
    start = target.start + (target.stage + wait.distance) * schedule.period
    begin = source.start + source.stage * schedule.period
    end = (
        begin + wait.seconds(schedule.events)
        if wait.streamed
        else begin + source.end - source.start
    )
    if start < end - tolerance_seconds(start, end):
        earlier = f" of {wait.distance} iterations earlier" if wait.distance else ""
        does = "is far enough" if wait.streamed else "ends"
        yield (
            f"{target.name} starts at {start:.6f} s, before {source.name}{earlier} {does} at "
            f"{end:.6f} s"
        )


def wrong_period(schedule: Schedule) -> Iterator[str]:
    """The period that the prices and the plan's order lead to, where the plan states another."""
    least = least_period(schedule)
    if least is None:
        yield "the order of the calls on shared GPUs contradicts the dataflow: no period is enough"
    elif not agrees(schedule.period, least):
        yield f"iteration_seconds is {schedule.period:.6f}, but the calls take {least:.6f} s"


def least_period(schedule: Schedule) -> float | None:
    """Seconds of the shortest iteration with the plan's order; None when no period is enough.

    Under the barrier the longest chain of events. In a cyclic schedule the least P for which no
    cycle of waits has Σ seconds > P · Σ distances, found by bisection (Lawler 1976). It is at most
    the sum of all seconds, as every cycle that can be waited for has a distance of at least 1.
    """
    waits = [*schedule.waits, *waits_for_gpus(schedule)]
    seconds = np.array([event.price_seconds for event in schedule.events])
    if not schedule.cyclic:
        inside = [wait for wait in waits if wait.distance == 0]
        starts = _earliest_starts(schedule, inside, period=0.0)
        return None if starts is None else float((starts + seconds).max())
    low, high = float(seconds.max()), float(seconds.sum())
    if _earliest_starts(schedule, waits, period=high) is None:
        return None
    if _earliest_starts(schedule, waits, period=low) is not None:
        return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _earliest_starts(schedule, waits, period=middle) is None:
            low = middle
        else:
            high = middle
    return high


def waits_for_gpus(schedule: Schedule) -> Iterator[Wait]:
    """Waits between events on a shared GPU: in the order of their starts, and again a period later.

    With starts φ and stages q, the u that starts before v precedes the v of q_u − q_v iterations
    later, and follows the v one iteration before that.
    """
    for u, v in combinations(range(len(schedule.events)), 2):
        one, other = schedule.events[u], schedule.events[v]
        if not one.shares_gpus(other):
            continue
        first, second = (u, v) if (one.start, one.end) <= (other.start, other.end) else (v, u)
        ahead = schedule.events[first].stage - schedule.events[second].stage
        yield Wait(first, second, ahead, for_gpus=True)
        if schedule.cyclic:
            yield Wait(second, first, 1 - ahead, for_gpus=True)


def _earliest_starts(schedule: Schedule, waits: list[Wait], *, period: float) -> FloatArray | None:
    """Longest paths over the waits; None when they go round a circle that never ends."""
    starts = np.zeros(len(schedule.events))
    noise = 1e-12 * max(sum(event.price_seconds for event in schedule.events), 1.0)
    seconds = [wait.seconds(schedule.events) for wait in waits]
    for _ in range(len(starts) + 1):
        later = starts.copy()
        for wait, length in zip(waits, seconds, strict=True):
            need = later[wait.source] + length - wait.distance * period
            later[wait.target] = max(later[wait.target], need)
        if np.all(later <= starts + noise):
            return later
        starts = later
    return None
