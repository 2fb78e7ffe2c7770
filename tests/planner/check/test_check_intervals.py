"""The check names intervals that are wrong or missing, by the spreads that the plan carries."""

from math import exp

import pytest

from automap.planner.check.check import violations
from automap.planner.cost.intervals import SPREADS
from automap.planner.plan.types import CallPlan, Interval, Plan
from tests.planner.check.broken_plans import (
    BARRIER_JOB,
    BARRIER_PLAN,
    CYCLIC_JOB,
    CYCLIC_PLAN,
    Change,
    expect,
    with_call,
    with_totals,
)
from tests.planner.check.sound_plans import in_program_order


def interval_of(plan: Plan, call_id: str) -> Interval:
    found = call_of(plan, call_id).seconds_interval
    assert found is not None
    return found


def call_of(plan: Plan, call_id: str) -> CallPlan:
    return next(call for call in plan.calls if call.id == call_id)


def with_bound(plan: Plan, side: str, factor: float) -> Plan:
    """The training call with one bound of its seconds moved."""
    found = interval_of(plan, "actor.train")
    moved = found.model_copy(update={side: getattr(found, side) * factor})
    return with_call(plan, "actor.train", seconds_interval=moved)


def with_spreads(plan: Plan, **changes: float) -> Plan:
    spreads = plan.provenance.spreads | changes
    provenance = plan.provenance.model_copy(update={"spreads": spreads})
    return plan.model_copy(update={"provenance": provenance})


def without_intervals(plan: Plan) -> Plan:
    stripped = {
        "seconds_interval": None,
        "peak_bytes_interval": None,
        "out_of_memory_probability": None,
    }
    for call in plan.calls:
        plan = with_call(plan, call.id, **stripped)
    plan = with_totals(plan, iteration_seconds_interval=None, out_of_memory_probability=None)
    return plan.model_copy(
        update={"provenance": plan.provenance.model_copy(update={"spreads": {}})}
    )


INTERVALS: dict[str, tuple[Change, str]] = {
    "low": (
        lambda p: with_bound(p, "low", 0.99),
        r"the interval of call actor\.train is .* to .*, but it should be",
    ),
    "high": (
        lambda p: with_bound(p, "high", 1.01),
        r"the interval of call actor\.train is .* to .*, but it should be",
    ),
    "call's seconds": (
        lambda p: with_call(p, "actor.generate", seconds_interval=None),
        r"the interval of call actor\.generate is missing, but it should be",
    ),
    "call's peak": (
        lambda p: with_call(p, "critic.train", peak_bytes_interval=None),
        r"the interval of the peak of call critic\.train is missing, but it should be",
    ),
    "iteration alone": (
        lambda p: with_totals(p, iteration_seconds_interval=None),
        r"the interval of iteration_seconds is missing, but it should be",
    ),
    "spreads alone": (
        lambda p: p.model_copy(
            update={"provenance": p.provenance.model_copy(update={"spreads": {}})}
        ),
        r"provenance\.spreads has None for generation, dense, but needs a number",
    ),
    "another spread": (
        lambda p: with_spreads(p, memory=0.5),
        r"the interval of the peak of call actor\.train is",
    ),
    "call's chance": (
        lambda p: with_call(p, "actor.train", out_of_memory_probability=0.2),
        r"call actor\.train states a chance of 0\.2 to run out of memory, but it is",
    ),
    "no chance of a call": (
        lambda p: with_call(p, "actor.train", out_of_memory_probability=None),
        r"call actor\.train states a chance of None to run out of memory",
    ),
    "plan's chance": (
        lambda p: with_totals(p, out_of_memory_probability=0.2),
        r"the plan states a chance of 0\.2 to run out of memory, but it is",
    ),
    "negative spread": (
        lambda p: with_spreads(p, memory=-0.5),
        r"provenance\.spreads has -0\.5 for memory",
    ),
}


@pytest.mark.parametrize("case", INTERVALS)
def test_wrong_interval_is_named(case: str) -> None:
    change, pattern = INTERVALS[case]
    expect(BARRIER_JOB, change(BARRIER_PLAN), pattern)


@pytest.mark.parametrize(("job", "plan"), [(BARRIER_JOB, BARRIER_PLAN), (CYCLIC_JOB, CYCLIC_PLAN)])
def test_plans_with_intervals_and_those_of_earlier_versions_are_sound(job, plan) -> None:
    assert violations(job, plan) == []
    assert violations(job, without_intervals(plan)) == []


def test_spreads_that_are_fitted_anew_leave_a_stored_plan_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in SPREADS:
        monkeypatch.setitem(SPREADS, kind, 2 * SPREADS[kind])
    assert violations(BARRIER_JOB, BARRIER_PLAN) == []


def test_the_bounds_of_a_plan_are_those_of_its_spreads() -> None:
    """Training moves nothing; nobody published this software on this GPU."""
    factor = exp(SPREADS["training, dense, 16-bit, unseen"])
    call = call_of(BARRIER_PLAN, "actor.train")
    seconds = call.end_seconds - call.start_seconds
    found = interval_of(BARRIER_PLAN, "actor.train")
    assert found.low == pytest.approx(seconds / factor)
    assert found.high == pytest.approx(seconds * factor)


@pytest.mark.parametrize("side", ["low", "high"])
def test_an_iteration_at_a_bound_has_every_call_at_that_bound(side: str) -> None:
    at_once = []
    for call in BARRIER_PLAN.calls:
        seconds = getattr(interval_of(BARRIER_PLAN, call.id), side)
        at_once.append(call.model_copy(update={"start_seconds": 0.0, "end_seconds": seconds}))
    placed = in_program_order(BARRIER_JOB, BARRIER_PLAN.copies, at_once)
    found = getattr(BARRIER_PLAN.iteration_seconds_interval, side)
    assert found == pytest.approx(max(call.end_seconds for call in placed))
