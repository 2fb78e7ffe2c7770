"""The check accepts sound plans and names what is wrong with the time of broken ones."""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automap.planner import check
from automap.planner.check.check import recomputed_iteration_seconds, violations
from automap.planner.job.job import Job
from automap.planner.plan.types import Plan
from tests.planner.check.broken_plans import (
    BARRIER_JOB,
    BARRIER_PLAN,
    CYCLIC_JOB,
    CYCLIC_PLAN,
    Change,
    expect,
    shifted,
    with_call,
    with_copy,
    with_sync,
    with_totals,
)
from tests.planner.check.sound_plans import moved_to


@pytest.mark.parametrize(
    ("job", "plan"), [(BARRIER_JOB, BARRIER_PLAN), (CYCLIC_JOB, CYCLIC_PLAN)], ids=["ppo", "grpo"]
)
def test_sound_plans_have_no_violation(job: Job, plan: Plan) -> None:
    assert violations(job, plan) == []
    assert recomputed_iteration_seconds(job, plan) == pytest.approx(plan.iteration_seconds)
    again = Plan.model_validate_json(plan.model_dump_json(by_alias=True))
    assert violations(job, again) == []


BARRIER_TIMES: dict[str, tuple[Change, str]] = {
    "before its input": (
        lambda p: shifted(p, "critic.forward", -5.0),
        r"call critic\.forward starts at .*, before call actor\.generate ends at",
    ),
    "before the iteration": (
        lambda p: shifted(p, "actor.generate", -5.0),
        r"actor\.generate starts at -5\.0+ s, outside the period",
    ),
    "overlap": (
        lambda p: shifted(p, "reward.forward", -5.0),
        r"critic\.forward .* and call reward\.forward .* overlap by 5\.000000 s",
    ),
    "a hair too early": (
        lambda p: shifted(p, "reward.forward", -1e-5),
        r"critic\.forward .* and call reward\.forward .* overlap by 0\.000010 s",
    ),
    "after the end": (
        lambda p: shifted(p, "actor.train", 5.0),
        r"actor\.train ends at .* after the iteration's end",
    ),
    "stage under the barrier": (
        lambda p: with_call(p, "actor.train", stage=1),
        r"actor\.train is in stage 1, but the barrier",
    ),
    "range moved under another call": (
        lambda p: with_copy(p, "critic", first_gpu=0),
        r"call actor\.forward .* and call critic\.forward .* overlap",
    ),
}


@pytest.mark.parametrize("case", BARRIER_TIMES)
def test_broken_time_is_named(case: str) -> None:
    change, pattern = BARRIER_TIMES[case]
    expect(BARRIER_JOB, change(BARRIER_PLAN), pattern)


def overlap_across_the_end(plan: Plan) -> Plan:
    """Training runs over the period's end; the sync at its start is moved into its tail."""
    train = next(c for c in plan.calls if c.id == "actor.train")
    tail = train.end_seconds - plan.iteration_seconds
    assert tail > 1
    return with_totals(
        plan,
        transitions=[moved_to(s, tail - s.end_seconds + s.start_seconds) for s in plan.transitions],
    )


CYCLIC_TIMES: dict[str, tuple[Change, str]] = {
    "overlap across the end": (
        overlap_across_the_end,
        r"call actor\.train .* and weight sync .* 1 periods around\) overlap",
    ),
    "stage too early": (
        lambda p: with_call(p, "reward.forward", stage=0),
        r"call reward\.forward starts at .*, before call actor\.generate ends at",
    ),
    "training too late for the next sync": (
        lambda p: with_call(p, "actor.train", stage=3),
        r"weight sync .* starts at .*, before call actor\.train of 2 iterations earlier ends",
    ),
    "sync after its rollout": (
        lambda p: with_sync(p, stage=1),
        r"call actor\.generate starts at .*, before weight sync .* ends",
    ),
    "negative stage": (
        lambda p: with_call(p, "actor.train", stage=-1),
        r"actor\.train is in stage -1",
    ),
    "phase outside the period": (
        lambda p: shifted(p, "actor.train", p.iteration_seconds),
        r"actor\.train starts at .* outside the period",
    ),
    "bytes of the sync": (
        lambda p: with_sync(p, bytes_per_receiver=7),
        r"weight sync .* brings 7 bytes to a receiver, but 13476831232 are due to it",
    ),
    "sync too short": (
        lambda p: with_sync(p, end_seconds=p.transitions[0].start_seconds),
        r"weight sync .* lasts 0\.0+ s, but its price is",
    ),
}


@pytest.mark.parametrize("case", CYCLIC_TIMES)
def test_broken_cyclic_time_is_named(case: str) -> None:
    change, pattern = CYCLIC_TIMES[case]
    expect(CYCLIC_JOB, change(CYCLIC_PLAN), pattern)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(number=st.integers(0, 6), seconds=st.floats(-300.0, 300.0))
def test_any_shift_but_within_slack_is_found(number: int, seconds: float) -> None:
    """In the hand-made plan only two calls may come later: reward's until training waits for it."""
    calls = {call.id: call for call in BARRIER_PLAN.calls}
    call = BARRIER_PLAN.calls[number]
    latest_ends = {
        "reward.forward": calls["critic.train"].start_seconds,
        "critic.train": BARRIER_PLAN.iteration_seconds,
    }
    slack = latest_ends.get(call.id, call.end_seconds) - call.end_seconds
    found = violations(BARRIER_JOB, shifted(BARRIER_PLAN, call.id, seconds))
    if 0 <= seconds <= slack:
        assert found == []
    elif not -3e-6 < seconds < slack + 3e-6:
        assert found != []


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(turn=st.floats(0.0, 1.0))
def test_a_cyclic_schedule_may_be_turned(turn: float) -> None:
    """Where the period begins is a matter of taste: phases and stages move together."""
    period = CYCLIC_PLAN.iteration_seconds

    def turned(event):
        stage, phase = divmod(event.start_seconds + turn * period, period)
        return moved_to(event, phase, stage=event.stage + int(stage))

    plan = CYCLIC_PLAN.model_copy(
        update={
            "calls": [turned(call) for call in CYCLIC_PLAN.calls],
            "transitions": [turned(sync) for sync in CYCLIC_PLAN.transitions],
        }
    )
    assert violations(CYCLIC_JOB, plan) == []
    assert recomputed_iteration_seconds(CYCLIC_JOB, plan) == pytest.approx(period)


def test_the_check_imports_nothing_of_the_search() -> None:
    """Otherwise an error there could hide itself here."""
    files = list(Path(check.__file__).parent.rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert not name.startswith("automap.planner.search"), f"{path} imports {name}"
                assert "ortools" not in name
