"""The check's own clock against the search's, on random problems: same periods, nothing broken."""

import random
from dataclasses import replace

import pytest

from automap.planner.check.subject import Span
from automap.planner.check.time import (
    Event,
    Schedule,
    Wait,
    broken_times,
    least_period,
    wrong_period,
)
from automap.planner.search.model.problem import (
    Problem,
    Solution,
    call_seconds,
    chosen,
    copy_range,
    sync_seconds,
)
from automap.planner.search.model.solve import Limits, minimise_period
from tests.planner.search.instances import random_problem, tailed_problem

LIMITS = Limits(60.0, seed=1)


def schedule_of(problem: Problem, solution: Solution) -> Schedule:
    """A solution of the search in the check's terms."""
    assignment, timing = solution.assignment, solution.timing

    def spans(*copies: int) -> tuple[Span, ...]:
        ranges = [copy_range(problem, assignment, copy) for copy in copies]
        return tuple(Span("axis", r.first, r.end) for r in ranges if r is not None)

    events = []
    waits = [Wait(e.source, e.target, e.distance, e.streamed) for e in problem.precedences]
    for call, start in enumerate(timing.call_starts):
        option, seconds = chosen(problem, assignment, call), call_seconds(problem, assignment, call)
        shares = () if option is None else tuple(r / seconds for r in option.chunk_ready_seconds)
        on = () if option is None else spans(option.copy)
        stage = timing.call_stages[call]
        tail = None
        if option is not None and option.tail is not None:
            kept = Span("axis", on[0].first, on[0].first + option.tail.num_gpus)
            tail = (kept, option.tail.main_phase_seconds / seconds)
        name, end = f"call {call}", start + seconds
        events.append(Event(name, start, end, stage, on, seconds, shares, tail))
    for number, sync in enumerate(problem.syncs):
        seconds, start = sync_seconds(problem, assignment, sync), timing.sync_starts[number]
        if seconds is None or start is None:
            continue
        node, stage = len(events), timing.sync_stages[number]
        on = spans(sync.home, sync.shadow)
        events.append(Event("sync", start, start + seconds, stage, on, seconds))
        waits.append(Wait(sync.train, node, sync.distance))
        for call in range(len(problem.calls)):
            option = chosen(problem, assignment, call)
            if option is not None and option.copy == sync.shadow:
                waits.append(Wait(node, call, 0))
    return Schedule(events, waits, timing.period, cyclic=not problem.barrier)


def solved(seed: int, *, barrier: bool, tailed: bool = False) -> Schedule | None:
    problem = (tailed_problem if tailed else random_problem)(seed, barrier=barrier)
    outcome = minimise_period(problem, limits=LIMITS, cutoff_seconds=60.0 if barrier else 12.0)
    return None if outcome.solution is None else schedule_of(problem, outcome.solution)


@pytest.mark.parametrize("barrier", [True, False], ids=["barrier", "cyclic"])
@pytest.mark.parametrize("seed", range(60))
def test_both_clocks_agree(seed: int, barrier: bool) -> None:
    """The last third has streams and tails."""
    schedule = solved(5000 + seed, barrier=barrier, tailed=seed >= 40)
    if schedule is None:
        return
    assert list(broken_times(schedule)) == []
    assert list(wrong_period(schedule)) == []
    assert least_period(schedule) == pytest.approx(schedule.period, abs=1e-6)
    squeezed = replace(schedule, period=0.99 * schedule.period)
    assert list(broken_times(squeezed)) != []


@pytest.mark.parametrize("seed", range(20))
def test_a_cyclic_schedule_is_broken_exactly_where_ticks_collide(seed: int) -> None:
    """Random phases on the circle, against counting who runs in every second."""
    draw = random.Random(seed)
    for _ in range(50):
        period = draw.randint(4, 9)
        events = []
        for name in "abc":
            start, seconds = draw.randrange(period), draw.randint(1, min(4, period))
            first = draw.randint(0, 2)
            spans = (Span("axis", first, first + draw.randint(1, 2)),)
            events.append(Event(name, float(start), float(start + seconds), 0, spans, seconds))
        busy: list[tuple[int, int]] = []
        for event in events:
            ticks = {t % period for t in range(int(event.start), int(event.end))}
            gpus = range(event.spans[0].first, event.spans[0].end)
            busy += [(tick, gpu) for tick in ticks for gpu in gpus]
        collides = len(busy) > len(set(busy))
        found = list(broken_times(Schedule(events, [], float(period), cyclic=True)))
        assert bool(found) == collides, (events, period, found)


def test_three_stages_on_disjoint_gpus() -> None:
    """Three calls of 100 s in a ring: 300, 150 and 100 s an iteration for staleness 0, 1 and 2."""
    for staleness, period in ((0, 300.0), (1, 150.0), (2, 100.0)):
        ring = [Wait(0, 1, 0), Wait(1, 2, 0), Wait(2, 0, staleness + 1)]
        events = [Event(str(n), 0.0, 100.0, 0, (Span("axis", n, n + 1),), 100.0) for n in range(3)]
        schedule = Schedule(events, ring, period, cyclic=True)
        assert least_period(schedule) == pytest.approx(period)


def test_an_order_against_the_dataflow_has_no_period() -> None:
    span = (Span("axis", 0, 1),)
    events = [Event("late", 5.0, 10.0, 0, span, 5.0), Event("early", 0.0, 5.0, 0, span, 5.0)]
    schedule = Schedule(events, [Wait(0, 1, 0)], 10.0, cyclic=False)
    assert least_period(schedule) is None
    assert any("contradicts the dataflow" in line for line in wrong_period(schedule))
