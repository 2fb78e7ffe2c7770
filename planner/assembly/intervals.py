"""The intervals of a plan: what its seconds and bytes may turn out to be, and whether they fit.

Errors go together: runs of one kind on one cluster share the software, the clocks and the network
that an estimate gets wrong, and how far the errors of different kinds are linked is not known. So
within a call and over an iteration all bounds are taken at once, as if every error had one cause:
wider than if they were independent. Only what lengths do by chance is independent of them.
"""

from dataclasses import dataclass, replace
from itertools import product

from automap.planner.check.prices import Prices, engine_of, price_again, row_of
from automap.planner.check.subject import Subject
from automap.planner.check.time import Schedule, least_period, schedule_of
from automap.planner.cost.intervals import (
    SPREADS,
    bounds,
    exceedance_probability,
)
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlan, Interval, Plan


@dataclass(frozen=True, slots=True)
class _Intervals:
    """The 80 % intervals of one plan; those of calls by id.

    A reward function has no peak of memory, and its seconds, which the spec states, no spread.
    """

    seconds: dict[str, Interval]
    peak_bytes: dict[str, Interval]
    out_of_memory: dict[str, float]
    """Chance by call that its peak exceeds the GPU."""
    iteration_seconds: Interval


def with_intervals(job: Job, plan: Plan, prices: Prices | None = None) -> Plan:
    """The plan with the intervals of its calls and of the iteration; `prices` where known.

    And with its chances of running out of memory: as all errors have one cause, that of the plan
    is the largest of its calls'.
    """
    subject = Subject(job, plan)
    prices = prices or price_again(subject)
    found = _intervals_of(subject, schedule_of(subject, prices), prices)
    calls = [
        call.model_copy(
            update={
                "seconds_interval": found.seconds[call.id],
                "peak_bytes_interval": found.peak_bytes.get(call.id),
                "out_of_memory_probability": found.out_of_memory.get(call.id),
            }
        )
        for call in plan.calls
    ]
    provenance = plan.provenance.model_copy(update={"spreads": dict(SPREADS)})
    return plan.model_copy(
        update={
            "calls": calls,
            "iteration_seconds_interval": found.iteration_seconds,
            "out_of_memory_probability": max(found.out_of_memory.values(), default=0.0),
            "provenance": provenance,
        }
    )


def _intervals_of(subject: Subject, schedule: Schedule, prices: Prices) -> _Intervals:
    """All intervals of a plan whose prices and schedule are known."""
    pricing = subject.pricing
    calls = subject.plan.calls
    seconds = {call.id: _call_interval(subject, pricing, call, prices) for call in calls}
    syncs = [_sync_interval(pricing, sync.price_seconds) for sync in schedule.events[len(calls) :]]
    placed = [call for call in calls if call.copy_id is not None]
    events = [*(seconds[call.id] for call in calls), *syncs]
    return _Intervals(
        seconds=seconds,
        peak_bytes={call.id: _interval(*bounds(call.peak_bytes, "memory")) for call in placed},
        out_of_memory={
            call.id: exceedance_probability(call.peak_bytes, call.capacity_bytes, "memory")
            for call in placed
        },
        iteration_seconds=_iteration_interval(schedule, events),
    )


def _call_interval(subject: Subject, pricing: Pricing, call: CallPlan, prices: Prices) -> Interval:
    price = prices.calls[call.id]
    if call.copy_id is None or price.estimates is None:
        return Interval(low=price.seconds, high=price.seconds)
    wanted, pool = subject.calls[call.id], subject.pool_of(subject.copies[call.copy_id])
    deviation = 0.0
    if call.kind == "generate":
        cache = row_of(call.kv_cache_bytes or 0)
        found = pricing.generation_deviation(wanted, pool, engine_of(call), kv_cache_bytes=cache)
        deviation = float(found[0])
    parts = price.estimates.seconds
    return _interval(
        *pricing.call_bounds(wanted, pool, price.seconds, parts=parts, deviation=deviation)
    )


def _sync_interval(pricing: Pricing, seconds: float) -> Interval:
    return _interval(*bounds(seconds, pricing.transfer_kind))


def _iteration_interval(schedule: Schedule, events: list[Interval]) -> Interval:
    """The iteration with every call and sync at its lower, and at its upper bound."""
    ends = []
    for side in ("low", "high"):
        moved = [
            replace(event, price_seconds=getattr(interval, side))
            for event, interval in zip(schedule.events, events, strict=True)
        ]
        period = least_period(replace(schedule, events=moved))
        ends.append(schedule.period if period is None else period)
    return _interval(*ends)


def _interval(low: float, high: float) -> Interval:
    return Interval(low=low, high=high)


def difference_bounds(one: Plan, other: Plan) -> tuple[float, float]:
    """Least and most seconds by which an iteration of the first of two plans is longer, 80 %.

    Generation, training with scoring, and what moves weights have an error each, which is the same
    in both plans; how these go together is not known, so every combination counts.
    """
    sides = list(product(("low", "high"), repeat=3))
    ends = [_ends(one, sides), _ends(other, sides)]
    gains = [before - after for before, after in zip(*ends, strict=True)]
    return min(gains), max(gains)


def _ends(plan: Plan, sides: list[tuple[str, ...]]) -> list[float]:
    """The period with (generation, training and scoring, moving weights) at ends of intervals."""
    subject = Subject(resolve(plan.spec), plan)
    schedule = schedule_of(subject, price_again(subject))
    calls = plan.calls
    kinds = [0 if call.kind == "generate" else 1 for call in calls]
    spreads = [call.seconds_interval for call in calls]
    for sync in schedule.events[len(calls) :]:
        kinds.append(2)
        spreads.append(_sync_interval(subject.pricing, sync.price_seconds))
    found = []
    for side in sides:
        moved = [
            event if spread is None else replace(event, price_seconds=getattr(spread, side[kind]))
            for event, kind, spread in zip(schedule.events, kinds, spreads, strict=True)
        ]
        period = least_period(replace(schedule, events=moved))
        found.append(schedule.period if period is None else period)
    return found
