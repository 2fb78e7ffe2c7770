"""Durations of a plan's calls in iterations whose prompts and responses are drawn anew."""

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
from automap.planner.simulation.continuous import ContinuousGeneration, FinishedBatch
from automap.planner.simulation.generation import Draw, Generation
from automap.planner.spec.lengths import LengthSpec

BINS = 64
"""Bins to which drawn lengths are reduced where training and scoring are priced."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of the events of several iterations, and of milestones while they run."""

    seconds: FloatArray
    """[iteration, event]: seconds that each event takes."""
    outs: dict[int, FloatArray] = field(default_factory=dict)
    """By number of an event that others stream from, seconds [iteration, chunk] from its start
    until each chunk, the last included, is ready."""
    splits: dict[int, FloatArray] = field(default_factory=dict)
    """By number of a generation with a tail, seconds [iteration] from its start until the tail
    begins."""

    def lag_seconds(self, schedule: Schedule, wait: Wait) -> FloatArray:
        """Least seconds [iteration of the source] from the source's start to the target's.

        A streamed target starts as late as it can without waiting between chunks; it ends no later
        for that.
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
    """Durations of iterations that are all as the plan has them."""
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
    """Durations of iterations whose lengths are drawn anew.

    Where all lengths are constant they are the planned ones, to the last digit.
    """
    rng = np.random.default_rng(seed)
    found = planned_durations(schedule, iterations=iterations)
    generations = {
        number: _generation(subject, number, schedule, iterations=iterations, rng=rng)
        for number, call in enumerate(subject.plan.calls)
        if call.kind == "generate" and call.copy_id is not None
    }
    for number, generation in generations.items():
        if generation.tail is not None:
            found.splits.setdefault(number, np.full(iterations, generation.planned[-2]))
    scored = dict(_scored(subject, list(generations)))
    for iteration in range(iterations):
        draws: dict[int, Draw | FinishedBatch] = {}
        for number, generation in generations.items():
            draws[number], milestones = _drawn(generation, rng)
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


def _generation(
    subject: Subject,
    number: int,
    schedule: Schedule,
    *,
    iterations: int,
    rng: np.random.Generator,
) -> Generation | ContinuousGeneration:
    """A generation whose batches are drawn; one that never drains is replayed as a whole."""
    call, event, report = (
        subject.plan.calls[number],
        schedule.events[number],
        subject.plan.continuous,
    )
    if report is None or not report.least_in_flight:
        return Generation(subject, call, event)
    return ContinuousGeneration(subject, call, event, report, iterations=iterations, rng=rng)


def _drawn(
    generation: Generation | ContinuousGeneration, rng: np.random.Generator
) -> tuple[Draw | FinishedBatch, FloatArray]:
    """An iteration's lengths, and the milestones of the generation with them."""
    if isinstance(generation, ContinuousGeneration):
        batch = generation.draw(rng)
        return batch, generation.milestones(batch)
    draw = generation.draw(rng)
    return draw, generation.milestones(draw)


def _scored(subject: Subject, generations: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of (training or scoring call, generate call whose drawn lengths it processes).

    That is the nearest one before it within the iteration; where there is none, the first of all.
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


def _reprice(
    subject: Subject, seconds: FloatArray, calls: list[int], draw: Draw | FinishedBatch
) -> None:
    """Price training and scoring of the drawn lengths by the cost model itself."""
    job = _job_of(subject.job, draw)
    if job is subject.job:
        return
    drawn = Subject(job, subject.plan)
    for number in calls:
        seconds[number] = call_price(drawn, drawn.pricing, subject.plan.calls[number]).seconds


def _job_of(job: Job, draw: Draw | FinishedBatch) -> Job:
    """The job with drawn lengths in place of distributions; unchanged where all are constant."""
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
    """Drawn lengths as a histogram of few bins, each at its mean; None for a constant length."""
    if len(lengths.distribution()[0]) == 1:
        return None
    parts = np.array_split(np.sort(drawn), min(BINS, len(drawn)))
    return LengthSpec(histogram=[(float(part.mean()), float(len(part))) for part in parts])
