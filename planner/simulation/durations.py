"""What the calls of a plan take in iterations whose prompts and responses are drawn anew."""

from dataclasses import replace

import numpy as np

from planner.check.prices import call_price, engine_of, row_of
from planner.check.subject import Subject
from planner.check.time import Schedule
from planner.cost.admission import BUSY_CELLS
from planner.cost.generation import GenerationPhases
from planner.cost.pricing import Pricing
from planner.job import Job
from planner.layout import FloatArray, IntArray
from planner.lengths import LengthSpec
from planner.result import CallPlan
from planner.simulation.comparison import load, sampled
from planner.spec import WorkloadSpec

CELLS = 64
"""Parts of equal length that the drawn responses are cut into."""
BINS = 64
"""Lengths that stand for the drawn ones where training and scoring are priced."""
REFERENCE_SEQUENCES = 2**19
REFERENCE_DRAWS = (16, 512)
"""Least and most draws of all lengths that an expected generation is taken from."""


def sampled_seconds(
    subject: Subject, schedule: Schedule, *, iterations: int, seed: int
) -> FloatArray:
    """Seconds [iteration, event]; with constant lengths the prices, to the last digit."""
    rng = np.random.default_rng(seed)
    seconds = np.tile([event.price_seconds for event in schedule.events], (iterations, 1))
    generations = {
        call.id: _Generation(subject, call)
        for call in subject.plan.calls
        if call.kind == "generate" and call.copy_id is not None
    }
    for iteration in range(iterations):
        trained: Draw | None = None
        for number, call in enumerate(subject.plan.calls):
            if call.id in generations:
                generation = generations[call.id]
                draw = generation.draw(rng)
                trained = trained or draw
                seconds[iteration, number] += generation.excess_seconds(draw)
        if trained is not None:
            _reprice(subject, seconds[iteration], trained)
    return seconds


def _reprice(subject: Subject, seconds: FloatArray, draw: "Draw") -> None:
    """Training and scoring of the drawn lengths, by the cost model itself."""
    job = _job_of(subject.job, draw)
    if job is subject.job:
        return
    drawn, pricing = Subject(job, subject.plan), Pricing(job)
    for number, call in enumerate(subject.plan.calls):
        if call.kind != "generate" and call.copy_id is not None:
            seconds[number] = call_price(drawn, pricing, call).seconds


class Draw:
    """All prompts and responses of one generate call [replica, sequence]."""

    def __init__(self, workload: WorkloadSpec, shape: tuple[int, int], rng: np.random.Generator):
        replicas, each = shape
        prompts = -(-replicas * each // workload.responses_per_prompt)
        per_prompt = sampled(workload.prompt_length, prompts, rng)
        number = np.arange(replicas * each) // workload.responses_per_prompt
        self.prompts: IntArray = per_prompt
        self.prompt_tokens: IntArray = per_prompt[number].reshape(shape)
        self.responses: IntArray = sampled(workload.response_length, replicas * each, rng).reshape(
            shape
        )


class _Generation:
    """One generate call: its price, and how it moves with the drawn lengths.

    The shrinking phase lasts as long as the batch of the drawn responses takes to shrink, the busy
    phase as long as their load takes, prefills as long as their prompts; each in relation to what
    it is on average, of which the call's price is the expectation.
    """

    def __init__(self, subject: Subject, call: CallPlan) -> None:
        pricing, wanted = subject.pricing, subject.calls[call.id]
        pool = subject.pool_of(subject.copies[call.copy_id or ""])
        engine = engine_of(call)
        self.workload = subject.job.spec.workload
        # The price is corrected by what runs have taught, the phases are as the tables say.
        self.factor = pricing.factor(pool, "generate", subject.job.models[wanted.model or ""])
        self.phases = pricing.generation_phases(
            wanted, pool, engine, kv_cache_bytes=row_of(call.kv_cache_bytes or 0)
        )
        replicas = int(engine.data_parallel_size[0])
        self.shape = (replicas, -(-wanted.num_sequences // replicas))
        self.stages = int(engine.pipeline_parallel_size[0])
        course = self.phases.course
        steps = (course.phases.steps * course.step_seconds)[course.course_of[0]]
        self.busy_seconds = float(steps[:BUSY_CELLS].sum())
        self.shrinking_seconds = float(steps[BUSY_CELLS:].sum())
        prefill = self.phases.prefill
        self.prefill_seconds = float(
            (prefill.compute + prefill.communication + prefill.overhead)[0]
        )
        number = REFERENCE_SEQUENCES // wanted.num_sequences
        draws = int(np.clip(number, *REFERENCE_DRAWS))
        rng = np.random.default_rng(0)
        self.expected = np.mean([self._measures(self.draw(rng)) for _ in range(draws)], axis=0)

    def draw(self, rng: np.random.Generator) -> Draw:
        return Draw(self.workload, self.shape, rng)

    def excess_seconds(self, draw: Draw) -> float:
        """Beyond the call's price."""
        measures = self._measures(draw)
        if np.allclose(measures, self.expected, rtol=1e-12, atol=0.0):
            return 0.0  # every length is constant
        parts = np.array([self.shrinking_seconds, self.busy_seconds, self.prefill_seconds])
        return self.factor * float(parts @ (measures / self.expected - 1.0))

    def _measures(self, draw: Draw) -> FloatArray:
        """(seconds of the shrinking batch, load of the slowest replica, prompt tokens)."""
        loads = load(draw.prompt_tokens, draw.responses).sum(axis=1)
        return np.array(
            [
                _shrinking_seconds(self.phases, draw.responses, self.stages),
                loads.max(),
                draw.prompts.sum(),
            ]
        )


def _shrinking_seconds(phases: GenerationPhases, responses: IntArray, stages: int) -> float:
    """Decode seconds of the slowest replica where nobody waits."""
    edges = np.linspace(0.0, responses.max(), CELLS + 1)
    ordered = np.sort(responses, axis=1)
    each = ordered.shape[1]
    # Per replica and cell: mean number of running sequences, and the share with one at least.
    reached = np.minimum(ordered[:, None, :], edges[:, None]).sum(axis=2)
    width = edges[1]
    running = np.diff(reached, axis=1) / width
    present = np.clip((ordered[:, -1:] - edges[:-1]) / width, 0.0, 1.0)
    batch = np.clip(running / np.maximum(present, 1e-9), 1.0, each)
    middles = (edges[1:] + edges[:-1]) / 2
    cached = phases.running.process.prompt_tokens + np.broadcast_to(middles, batch.shape)
    shape = np.full_like(batch, phases.shape[0], dtype=np.int64)
    compute, moved = phases.tables.at(shape, np.maximum(batch / stages, 1.0), cached)
    engine = phases.engine
    step = compute + moved + engine.step_seconds + engine.sequence_seconds * batch
    return float((step * present * width).sum(axis=1).max())


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
