"""Iterations of a plan as discrete events: equal to the check where lengths are constant."""

import json
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from automap.planner.assembly.intervals import with_intervals
from automap.planner.check.check import recomputed_iteration_seconds
from automap.planner.check.prices import call_price, price_again
from automap.planner.check.subject import Span, Subject
from automap.planner.check.time import Event, Schedule, Wait, least_period, schedule_of
from automap.planner.cost.pricing import Pricing
from automap.planner.errors import PlanCheckError
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.simulation.durations import planned_durations
from automap.planner.simulation.generation import Draw, Generation
from automap.planner.simulation.replay import replay
from automap.planner.simulation.report import simulate
from automap.planner.simulation.result import Simulation
from automap.planner.simulation.timeline import Occurrence
from automap.planner.simulation.trace_events import chrome_trace
from tests.helpers.specs import job_spec
from tests.planner.check.broken_plans import (
    BARRIER_JOB,
    BARRIER_PLAN,
    CYCLIC_JOB,
    CYCLIC_PLAN,
    shifted,
)
from tests.planner.check.sound_plans import barrier_plan, cyclic_plan

DRAWN = {
    "prompt_length": {"mean": 512, "max": 1024},
    "response_length": {"mean": 500, "max": 4096},
    "responses_per_prompt": 4,
    "prompts_per_iteration": 64,
    "updates_per_epoch": 8,
}
ONE_NODE = {"pools": [{"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 1}]}


def drawn_plan(kind: str) -> Plan:
    if kind == "barrier":
        job = resolve(job_spec("ppo", workload=DRAWN))
        return with_intervals(job, barrier_plan(job))
    job = resolve(job_spec("grpo", search__staleness=1, workload={**DRAWN, "kl": "loss"}))
    return with_intervals(job, cyclic_plan(job))


PLANS = {kind: drawn_plan(kind) for kind in ("barrier", "cyclic")}


@cache
def simulated(kind: str) -> tuple[Simulation, list[Occurrence]]:
    return simulate(PLANS[kind], iterations=12, seed=2)


@pytest.mark.parametrize(
    ("job", "plan"),
    [(BARRIER_JOB, BARRIER_PLAN), (CYCLIC_JOB, CYCLIC_PLAN)],
    ids=["barrier", "cyclic"],
)
def test_with_constant_lengths_it_is_what_the_check_says(job, plan):
    found, _ = simulate(plan, iterations=5, seed=3)
    expected = recomputed_iteration_seconds(job, plan)
    assert found.each_iteration_seconds == pytest.approx([expected] * 5, rel=1e-9)
    assert found.planned_seconds == pytest.approx(expected, rel=1e-9)
    for call in found.calls:
        assert call.seconds.lowest == call.seconds.highest == call.planned_seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"search__staleness": 1},
        {"search__iteration_barrier": False},
        {"models__reward": {"function": True, "seconds_per_response": 0.01}},
    ],
    ids=["stale", "no barrier", "function"],
)
def test_a_searched_plan_takes_what_it_states(changes):
    spec = job_spec("grpo", cluster=ONE_NODE, search__time_limit_seconds=2.0, **changes)
    plan = make_plan(spec)
    found, _ = simulate(plan, iterations=3, seed=0)
    assert found.each_iteration_seconds == pytest.approx([plan.iteration_seconds] * 3, rel=1e-6)


def schedule(rng: np.random.Generator, *, cyclic: bool, streams: bool) -> Schedule:
    """Events on four GPUs, in a random order, with random waits between them.

    With streams, some waits are for three chunks, and some events narrow to their first GPU.
    """
    events = []
    for number in range(int(rng.integers(2, 6))):
        first, size = int(rng.integers(0, 4)), int(rng.integers(1, 4))
        spans = (Span("p", first, first + size),)
        start, seconds = float(rng.random()), float(rng.integers(1, 9))
        stage = int(rng.integers(0, 2)) if cyclic else 0
        outs = tuple(np.sort(rng.integers(1, 65, size=2)) / 64) if streams else ()
        tail = (Span("p", first, first + 1), float(rng.integers(8, 57)) / 64)
        narrows = streams and rng.random() < 0.5
        events.append(
            Event(
                f"{number}",
                start,
                start + seconds,
                stage,
                spans,
                seconds,
                outs,
                tail if narrows else None,
            )
        )
    waits = []
    for source, target in combinations(rng.permutation(len(events)), 2):
        if rng.random() < 0.4:
            distance = int(rng.integers(0, 2))
            streamed = streams and distance == 0 and rng.random() < 0.7
            waits.append(Wait(int(source), int(target), distance, streamed))
    return Schedule(events, waits, 10.0, cyclic)


@pytest.mark.parametrize("streams", [False, True], ids=["whole calls", "streams and tails"])
@pytest.mark.parametrize("cyclic", [False, True], ids=["barrier", "cyclic"])
def test_random_schedules_take_the_least_period(cyclic, streams):
    rng, agreed, refused = np.random.default_rng(5), 0, 0
    for _ in range(60):
        one = schedule(rng, cyclic=cyclic, streams=streams)
        period, iterations = least_period(one), 120
        planned = planned_durations(one, iterations=iterations)
        if period is None:
            with pytest.raises(ValueError, match="contradicts the dataflow"):
                replay(one, planned)
            refused += 1
            continue
        complete = (replay(one, planned).starts + planned.seconds).max(axis=1)
        # A cycle of waits that spans several iterations brings the average to the period.
        assert (complete[100] - complete[40]) / 60 == pytest.approx(period, rel=1e-3)
        agreed += 1
    assert agreed > 20
    assert refused > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANS)
def test_drawn_lengths_spread_the_iterations_around_the_plan(kind):
    found, _ = simulated(kind)
    spread = found.iteration_seconds
    assert spread.lowest < spread.p50 < spread.p95 <= spread.highest
    assert spread.mean == pytest.approx(np.mean(found.each_iteration_seconds))
    assert spread.mean == pytest.approx(found.planned_seconds, rel=0.08)
    by_name = {call.name: call for call in found.calls}
    for name in ("call actor.generate", "call actor.train"):
        call = by_name[name]
        assert call.seconds.lowest < call.seconds.highest
        assert call.seconds.mean == pytest.approx(call.planned_seconds, rel=0.08)


@pytest.mark.slow
def test_a_seed_repeats_and_another_differs():
    one, other, third = (
        simulate(PLANS["barrier"], iterations=2, seed=seed)[0] for seed in (7, 7, 8)
    )
    assert one == other
    assert one.each_iteration_seconds != third.each_iteration_seconds
    assert Simulation.model_validate_json(one.model_dump_json()) == one


def event_of(subject: Subject, call_id: str) -> Event:
    events = schedule_of(subject, price_again(subject)).events
    return next(event for event in events if event.name == f"call {call_id}")


def excess_seconds(generation: Generation, draw: Draw) -> float:
    return float(generation.milestones(draw)[-1] - generation.planned[-1])


def test_generation_spreads_as_its_closed_form_says():
    plan = PLANS["barrier"]
    subject = Subject(resolve(plan.spec), plan)
    call = next(call for call in plan.calls if call.kind == "generate")
    generation = Generation(subject, call, event_of(subject, call.id))
    rng = np.random.default_rng(0)
    excess = [excess_seconds(generation, generation.draw(rng)) for _ in range(200)]
    stated = float(generation.phases.deviation_seconds[0])
    assert np.std(excess) == pytest.approx(stated, rel=0.3)
    assert abs(np.mean(excess)) < 0.3 * stated


def test_a_corrected_generation_spreads_by_the_same_share_of_its_price(monkeypatch):
    plan = PLANS["barrier"]
    subject = Subject(resolve(plan.spec), plan)
    call = next(call for call in plan.calls if call.kind == "generate")
    shares = []
    for factor in (1.0, 1.5):
        monkeypatch.setattr(Pricing, "factor", lambda *_, factor=factor: factor)
        price = call_price(subject, Pricing(subject.job), call).seconds
        generation = Generation(subject, call, event_of(subject, call.id))
        excess = excess_seconds(generation, generation.draw(np.random.default_rng(0)))
        shares.append(excess / price)
    assert shares[0] == pytest.approx(shares[1], rel=1e-5)
    assert abs(shares[0]) > 1e-4


@pytest.mark.parametrize("kind", PLANS)
def test_no_gpu_does_two_things_and_every_edge_holds(kind):
    plan, (_, timeline) = PLANS[kind], simulated(kind)
    for one, other in combinations(timeline, 2):
        if any(a.shares_gpus(b) for a in one.spans for b in other.spans):
            apart = (
                one.end_seconds <= other.start_seconds + 1e-9
                or other.end_seconds <= one.start_seconds + 1e-9
            )
            assert apart, (one, other)
    subject = Subject(resolve(plan.spec), plan)
    events = schedule_of(subject, price_again(subject))
    place = {(one.name, one.iteration): one for one in timeline}
    held = 0
    for wait in events.waits:
        source, target = events.events[wait.source].name, events.events[wait.target].name
        for iteration in range(wait.distance, 12):
            before, after = place[source, iteration - wait.distance], place[target, iteration]
            assert before.end_seconds <= after.start_seconds + 1e-9
            held += 1
    assert held > 10


@pytest.mark.parametrize("kind", PLANS)
def test_busy_and_idle_make_up_the_iteration(kind):
    found, _ = simulated(kind)
    for use in found.gpus:
        assert use.busy_seconds + use.idle_seconds == pytest.approx(found.iteration_seconds.mean)
        assert 0 <= use.idle_share < 1
    (pool,) = found.pools
    assert pool.num_gpus == 16
    idle = sum(use.num_gpus * use.idle_seconds for use in found.gpus)
    assert pool.idle_gpu_seconds == pytest.approx(idle)
    assert idle > 0


def test_the_trace_has_every_event_on_every_row_of_its_gpus():
    timeline = [
        Occurrence("call a", 0, -1.0, 2.0, (Span("p", 0, 8),)),
        Occurrence("call b", 0, 2.0, 3.5, (Span("p", 4, 8),)),
        Occurrence("call c", 0, 2.0, 2.5, ()),
    ]
    trace = json.loads(json.dumps(chrome_trace(timeline)))
    names = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert names == {0: "host", 1: "p 0-3", 2: "p 4-7"}
    shown = [
        (event["name"], event["tid"], event["ts"], event["dur"])
        for event in trace["traceEvents"]
        if event["ph"] == "X"
    ]
    assert sorted(shown) == [
        ("call a", 1, 0.0, 3e6),
        ("call a", 2, 0.0, 3e6),
        ("call b", 2, 3e6, 1.5e6),
        ("call c", 0, 3e6, 0.5e6),
    ]


def test_functions_side_by_side_have_rows_of_their_own():
    timeline = [
        Occurrence("call a", 0, 0.0, 2.0, ()),
        Occurrence("call b", 0, 1.0, 3.0, ()),
        Occurrence("call a", 1, 2.0, 4.0, ()),
    ]
    shown = [event for event in chrome_trace(timeline)["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["tid"]) for event in shown] == [
        ("call a", 0),
        ("call b", 1),
        ("call a", 0),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "iterations=0: give 1 to 1000"),
        ({"iterations": 1001}, "iterations=1001"),
        ({"seed": -1}, "seed=-1: give 0 or more"),
    ],
)
def test_numbers_out_of_range_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        simulate(BARRIER_PLAN, **{"iterations": 2, "seed": 0, **changes})


def test_a_plan_that_fails_the_check_is_not_simulated():
    broken = shifted(BARRIER_PLAN, "actor.train", 5.0)
    with pytest.raises(PlanCheckError, match="fails the check"):
        simulate(broken, iterations=2, seed=0)
