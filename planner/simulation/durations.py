"""What the calls of a plan take in iterations whose prompts and responses are drawn anew."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from automap.planner.check.prices import call_price
from automap.planner.check.subject import Subject
from automap.planner.check.time import Schedule, Wait
from automap.planner.cost.generation.streaming import ready_seconds
from automap.planner.cost.pricing import whole_microseconds
from automap.planner.job.job import Job
from automap.planner.layout import FloatArray, IntArray
from automap.planner.simulation.generation import Draw, Generation
from automap.planner.spec.lengths import LengthSpec

BINS = 64
"""Lengths that stand for the drawn ones where training and scoring are priced."""


@dataclass(frozen=True, slots=True)
class Durations:
    """What the events of several iterations take, and what happens while they run."""

    seconds: FloatArray
    """[iteration, event]"""
    outs: dict[int, FloatArray] = field(default_factory=dict)
    """[iteration, chunk] of events that others stream from: until each chunk, the last included,
    is out."""
    splits: dict[int, FloatArray] = field(default_factory=dict)
    """[iteration] of generations with a tail: until it begins."""

    def lag_seconds(self, schedule: Schedule, wait: Wait) -> FloatArray:
        """[iteration of the source]: least time from its start to the target's.

        That of a streamed target, if it is not to wait between chunks; it ends no later for that.
        """
        source, target = schedule.events[wait.source], schedule.events[wait.target]
        seconds = self.seconds[:, wait.source]
        if wait.for_gpus and wait.source in self.splits and source.held_share(target) < 1.0:
            return self.splits[wait.source]
        if not wait.streamed or wait.source not in self.outs:
            return seconds
        outs = self.outs[wait.source]
        places = np.arange(len(seconds)) + wait.distance
        taking = self.seconds[np.minimum(places, len(seconds) - 1), wait.target]
        before = np.arange(outs.shape[1]) * (taking / outs.shape[1])[:, None]
        return whole_microseconds((outs - before).max(axis=1))


def planned_durations(schedule: Schedule, *, iterations: int) -> Durations:
    """Every iteration as the plan has it."""
    found = Durations(np.tile([event.price_seconds for event in schedule.events], (iterations, 1)))
    for number, event in enumerate(schedule.events):
        column = np.array([event.price_seconds])
        if event.chunk_ready_shares:
            shares = np.array([[*event.chunk_ready_shares, 1.0]])
            found.outs[number] = np.tile(ready_seconds(shares, column), (iterations, 1))
        if event.tail is not None:
            split = ready_seconds(np.array([[event.tail[1]]]), column)
            found.splits[number] = np.repeat(split[0], iterations)
    return found


def sampled_durations(
    subject: Subject, schedule: Schedule, *, iterations: int, seed: int
) -> Durations:
    """With lengths drawn anew; with constant lengths as planned, to the last digit."""
    rng = np.random.default_rng(seed)
    found = planned_durations(schedule, iterations=iterations)
    generations = {
        number: Generation(subject, call, schedule.events[number])
        for number, call in enumerate(subject.plan.calls)
        if call.kind == "generate" and call.copy_id is not None
    }
    for number, generation in generations.items():
        if generation.tail is not None:
            found.splits.setdefault(number, np.full(iterations, generation.planned[-2]))
    scored = dict(_scored(subject, list(generations)))
    for iteration in range(iterations):
        draws = {}
        for number, generation in generations.items():
            draws[number] = generation.draw(rng)
            milestones = generation.milestones(draws[number])
            found.seconds[iteration, number] = milestones[-1]
            if number in found.outs:
                chunks = found.outs[number].shape[1] - 1
                found.outs[number][iteration] = [*milestones[:chunks], milestones[-1]]
            if generation.tail is not None:
                found.splits[number][iteration] = milestones[-2]
        for number, draw in draws.items():
            calls = [call for call, generation in scored.items() if generation == number]
            _reprice(subject, found.seconds[iteration], calls, draw)
    return found


def _scored(subject: Subject, generations: list[int]) -> Iterator[tuple[int, int]]:
    """(training or scoring call, the generate call nearest before it, whose draw it has).

    Where nothing is generated before it within an iteration, the first of all.
    """
    calls = subject.plan.calls
    numbers = {call.id: number for number, call in enumerate(calls)}
    before: dict[int, set[int]] = {number: set() for number in numbers.values()}
    for edge in subject.flow.edges:
        if edge.distance == 0:
            before[numbers[edge.target]].add(numbers[edge.source])
    for number, call in enumerate(calls):
        if not generations or call.kind == "generate" or call.copy_id is None:
            continue
        frontier = before[number]
        while frontier and not frontier.intersection(generations):
            frontier = set().union(*(before[one] for one in frontier))
        yield number, min(frontier.intersection(generations), default=generations[0])


def _reprice(subject: Subject, seconds: FloatArray, calls: list[int], draw: Draw) -> None:
    """Training and scoring of the drawn lengths, by the cost model itself."""
    job = _job_of(subject.job, draw)
    if job is subject.job:
        return
    drawn = Subject(job, subject.plan)
    for number in calls:
        seconds[number] = call_price(drawn, drawn.pricing, subject.plan.calls[number]).seconds


def _job_of(job: Job, draw: Draw) -> Job:
    """The job with the drawn lengths for its distributions; the same where they are constant."""
    workload = job.spec.workload
    lengths = {
        "prompt_length": _histogram(workload.prompt_length, draw.prompts),
        "response_length": _histogram(workload.response_length, draw.responses.ravel()),
    }
    changed = {name: value for name, value in lengths.items() if value is not None}
    if not changed:
        return job
    workload = workload.model_copy(update=changed)
    return replace(job, spec=job.spec.model_copy(update={"workload": workload}))


def _histogram(lengths: LengthSpec, drawn: IntArray) -> LengthSpec | None:
    """What was drawn, in few bins, each at its mean; none of a constant."""
    if len(lengths.distribution()[0]) == 1:
        return None
    parts = np.array_split(np.sort(drawn), min(BINS, len(drawn)))
    return LengthSpec(histogram=[(float(part.mean()), float(len(part))) for part in parts])
