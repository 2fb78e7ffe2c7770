"""Simulated plans whose calls stream, whose generations have tails or grow their tensor size."""

import json
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from automap.planner.check.prices import engine_of, price_again
from automap.planner.check.subject import Subject
from automap.planner.check.time import least_period, schedule_of
from automap.planner.cost.generation.kv_cache import kv_bytes_per_token
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.simulation.durations import planned_durations, sampled_durations
from automap.planner.simulation.generation import Generation
from automap.planner.simulation.replay import replay
from automap.planner.simulation.report import simulate
from automap.planner.simulation.result import Simulation
from automap.planner.simulation.timeline import Occurrence
from automap.planner.simulation.trace_events import chrome_trace
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job
from tests.helpers.tailed_jobs import LONG_TAIL, scheduled_job, tailed_job
from tests.planner.simulation.engine import Requests, run_engine
from tests.planner.simulation.steps import StepCosts

APART = [["actor", "reference"], ["actor", "reward"]]
ITERATIONS = 5
SLACK = 2e-6
"""Starts and lengths are whole microseconds."""


def streaming_job(**changes: object) -> JobSpec:
    search = {"streaming": True, "num_workers": 1, "time_limit_seconds": 3.0}
    return small_job("grpo", constraints__separate=APART, search=search, **changes)


def overlapped_job() -> JobSpec:
    """Streams, tails, two pools, a reward function and iterations that overlap."""
    search = {"streaming": True, "generation_tail": True, "staleness": 1, "num_workers": 1}
    return small_job(
        "reinforce_plus_plus",
        models__reward={"function": True, "seconds_per_response": 0.001},
        workload__response_length=LONG_TAIL,
        cluster__pools=[pool(1), pool(1, name="h100", gpu="h100-80gb-sxm")],
        search={**search, "stream_chunks": 3, "time_limit_seconds": 3.0},
    )


JOBS = {
    "streams": streaming_job,
    "streams and tail": tailed_job,
    "tensor size": lambda: scheduled_job(tensor_schedule=True),
    "overlapped": overlapped_job,
}


@cache
def plan_of(kind: str) -> Plan:
    return make_plan(JOBS[kind]())


@cache
def simulated(kind: str) -> tuple[Simulation, list[Occurrence]]:
    return simulate(plan_of(kind), iterations=ITERATIONS, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
def test_as_planned_every_event_runs_when_the_plan_says(kind):
    plan = plan_of(kind)
    subject = Subject(resolve(plan.spec), plan)
    schedule = schedule_of(subject, price_again(subject))
    planned = planned_durations(schedule, iterations=40)
    run = replay(schedule, planned)
    complete = np.maximum.accumulate((run.starts + planned.seconds).max(axis=1))
    if schedule.cyclic:
        assert (complete[30] - complete[10]) / 20 == pytest.approx(plan.iteration_seconds, rel=1e-6)
    else:
        assert np.diff(complete) == pytest.approx(plan.iteration_seconds, abs=SLACK)
        ends = [event.end for event in schedule.events]
        assert run.starts[0] + planned.seconds[0] == pytest.approx(ends, abs=SLACK)


@pytest.mark.slow
def test_constant_lengths_stream_as_planned():
    plan = make_plan(streaming_job(workload__response_length={"mean": 512, "max": 512}))
    assert any(call.streamed_from for call in plan.calls)
    found, _ = simulate(plan, iterations=3, seed=0)
    assert found.each_iteration_seconds == pytest.approx([plan.iteration_seconds] * 3, abs=SLACK)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
def test_no_gpu_is_held_twice_and_none_is_idle_for_less_than_nothing(kind):
    found, timeline = simulated(kind)
    held = [
        (one, span, piece)
        for one in timeline
        for span in one.spans
        for piece in one.pieces(with_tail=one.tail_span is None)
    ]
    held += [
        (one, one.tail_span, one.tail) for one in timeline if one.tail and one.tail_span is not None
    ]
    for (_, one, first), (_, other, second) in combinations(held, 2):
        if one.shares_gpus(other):
            ends_before = first.end_seconds <= second.start_seconds + SLACK
            assert ends_before or second.end_seconds <= first.start_seconds + SLACK
    for use in found.gpus:
        assert use.idle_seconds >= 0
        assert use.busy_seconds + use.idle_seconds == pytest.approx(found.iteration_seconds.mean)
    assert sum(pool.idle_gpu_seconds for pool in found.pools) >= 0


@pytest.mark.parametrize("kind", ["streams", "streams and tail", "overlapped"])
def test_chunks_are_taken_after_they_are_out_and_the_last_after_the_end(kind):
    plan, seen = plan_of(kind), 0
    _, timeline = simulated(kind)
    generations = {one.iteration: one for one in timeline if one.name == "call actor.generate"}
    for one in timeline:
        if one.chunks:
            generation = generations[one.iteration]
            assert len(one.chunks) == plan.spec.search.stream_chunks
            assert generation.start_seconds < one.start_seconds < generation.end_seconds
            assert one.chunks[-1].start_seconds >= generation.end_seconds - SLACK
            assert one.end_seconds == pytest.approx(one.chunks[-1].end_seconds, abs=SLACK * 10)
            starts = [chunk.start_seconds for chunk in one.chunks]
            ends = [chunk.end_seconds for chunk in one.chunks]
            assert all(end <= start + SLACK for end, start in zip(ends, starts[1:], strict=False))
            seen += 1
    assert seen >= ITERATIONS


@pytest.mark.parametrize("kind", ["streams and tail", "tensor size"])
def test_a_tail_begins_when_the_drawn_batch_has_shrunk(kind):
    found, timeline = simulated(kind)
    generation = next(call for call in found.calls if call.name == "call actor.generate")
    assert generation.bulk_seconds is not None
    assert generation.bulk_seconds.lowest < generation.bulk_seconds.highest
    for one in timeline:
        if one.tail is not None:
            assert one.start_seconds < one.tail.start_seconds < one.end_seconds
    labels = {one.tail.name for one in timeline if one.tail is not None}
    assert labels <= {"tail on 2 GPUs", "tail on 1 GPU", "tail with tensor size 8"}
    begun = [one.tail.start_seconds for one in timeline if one.tail and one.tail_span is not None]
    freed = [one.start_seconds for one in timeline if one.chunks]
    if kind == "streams and tail":
        assert set(np.round(begun, 5)) <= set(np.round(freed, 5)), "who takes the free GPUs"


def test_the_trace_nests_chunks_and_tails_in_their_calls():
    _, timeline = simulated("streams and tail")
    trace = json.loads(json.dumps(chrome_trace(timeline)))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    whole = [event for event in events if event["cat"] != "part"]
    names = {event["name"] for event in events if event["cat"] == "part"}
    assert {"bulk", "tail on 2 GPUs", "chunk 1 of 8", "chunk 8 of 8"} <= names
    for part in (event for event in events if event["cat"] == "part"):
        assert any(
            one["tid"] == part["tid"]
            and one["ts"] <= part["ts"]
            and part["ts"] + part["dur"] <= one["ts"] + one["dur"] + 0.002
            for one in whole
        )
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events)


def test_drawn_chunks_are_out_when_the_simulated_engine_has_ended_them():
    plan = plan_of("streams")
    subject = Subject(resolve(plan.spec), plan)
    (call,) = (call for call in plan.calls if call.kind == "generate")
    schedule = schedule_of(subject, price_again(subject))
    number = plan.calls.index(call)
    generation = Generation(subject, call, schedule.events[number])
    per_token = kv_bytes_per_token(subject.job.models["actor"], engine_of(call), tokens=1000)
    room = (call.kv_cache_bytes or 0) // int(per_token[0])
    costs, rng = StepCosts.of(generation.phases, row=0, stages=1), np.random.default_rng(4)
    spread = []
    for _ in range(3):
        draw = generation.draw(rng)
        runs = []
        for prompts, responses in zip(draw.prompt_tokens, draw.responses, strict=True):
            prompt = np.arange(len(prompts)) // plan.spec.workload.responses_per_prompt
            runs.append(run_engine(Requests(prompts, responses, prompt), costs, cache_tokens=room))
        ends = np.sort(np.concatenate([run.finished_seconds for run in runs]))
        chunks = plan.spec.search.stream_chunks
        outs = [ends[len(ends) * k // chunks - 1] for k in range(1, chunks + 1)]
        # A chunk's part is rounded up to 1/64; the prompts of this job take as long.
        assert generation.milestones(draw) == pytest.approx(outs, abs=0.05 * outs[-1])
        spread.append(outs[-1])
    assert np.std(spread) > 0.01 * np.mean(spread)


@pytest.mark.slow
def test_more_spread_lengths_make_no_shorter_percentile():
    """Without streams: these gain from responses that end early."""
    percentiles = []
    for lengths in ({"mean": 512, "max": 512}, {"histogram": [[256, 0.5], [768, 0.5]]}):
        plan = make_plan(small_job("grpo", workload__response_length=lengths))
        found, _ = simulate(plan, iterations=4, seed=1)
        percentiles.append(found.iteration_seconds.p95)
    assert percentiles[0] < percentiles[1]


@pytest.mark.slow
def test_an_iteration_is_the_longest_chain_of_what_was_drawn():
    """As the check finds it, with the drawn durations for the prices."""
    plan = plan_of("streams and tail")
    subject = Subject(resolve(plan.spec), plan)
    schedule = schedule_of(subject, price_again(subject))
    drawn = sampled_durations(subject, schedule, iterations=2, seed=3)
    found, _ = simulated("streams and tail")
    for iteration in range(2):
        events = []
        for number, event in enumerate(schedule.events):
            seconds, tail = float(drawn.seconds[iteration, number]), event.tail
            outs = drawn.outs[number][iteration, :-1] if number in drawn.outs else []
            if tail is not None:
                tail = (tail[0], float(drawn.splits[number][iteration]) / seconds)
            shares = tuple(float(out) / seconds for out in outs)
            events.append(
                replace(event, price_seconds=seconds, chunk_ready_shares=shares, tail=tail)
            )
        longest = least_period(replace(schedule, events=events))
        assert found.each_iteration_seconds[iteration] == pytest.approx(longest, abs=5e-6)


@pytest.mark.slow
def test_a_seed_repeats_with_streams_and_tails():
    found, _ = simulated("streams and tail")
    again, _ = simulate(plan_of("streams and tail"), iterations=2, seed=3)
    other, _ = simulate(plan_of("streams and tail"), iterations=1, seed=4)
    assert again.each_iteration_seconds == pytest.approx(found.each_iteration_seconds[:2])
    assert other.each_iteration_seconds[0] != pytest.approx(found.each_iteration_seconds[0])


def test_milestones_are_in_order_whatever_is_drawn():
    plan = plan_of("streams and tail")
    subject = Subject(resolve(plan.spec), plan)
    schedule = schedule_of(subject, price_again(subject))
    number = next(n for n, call in enumerate(plan.calls) if call.kind == "generate")
    generation = Generation(subject, plan.calls[number], schedule.events[number])
    rng = np.random.default_rng(5)
    found = np.array([generation.milestones(generation.draw(rng)) for _ in range(100)])
    outs, splits, ends = found[:, :-2], found[:, -2], found[:, -1]
    assert np.all(np.diff(outs, axis=1) >= 0)
    assert np.all((outs[:, -1] <= ends) & (splits > 0) & (splits < ends))
    assert found.mean(axis=0) == pytest.approx(generation.planned, rel=0.1)
    assert splits.std() > 0.01 * splits.mean()
