"""A generate call of a plan whose milestones move with the lengths that are drawn."""

import numpy as np

from automap.planner.check.prices import engine_of, row_of, tail_setting
from automap.planner.check.subject import Subject
from automap.planner.check.time import Event
from automap.planner.cost.generation.admission import BUSY_CELLS
from automap.planner.cost.generation.generate_call import GenerationPhases
from automap.planner.cost.generation.streaming import (
    TailEstimates,
    TailSetting,
    ended_share,
    ready_seconds,
    split_cell,
)
from automap.planner.layout import FloatArray, IntArray
from automap.planner.plan.types import CallPlan
from automap.planner.spec import WorkloadSpec
from automap.planner.spec.lengths import LengthSpec

CELLS = 64
"""Number of parts of equal length that the drawn responses are cut into."""
REFERENCE_SEQUENCES = 2**19
REFERENCE_DRAWS = (16, 512)
"""Least and most draws of all lengths that an expected generation is taken from."""
SEGMENTS = 5
"""Number of segments of a generation: prefill, the busy phase, the shrinking batch, the move to a
tail, and the tail."""
PREFILL, BUSY, SHRINKING, MOVING, TAIL = range(SEGMENTS)


class Draw:
    """Drawn lengths [replica, sequence] of all prompts and responses of one generate call."""

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


class Generation:
    """The price of a generate call, and its milestones with drawn lengths.

    Milestones are seconds after its start: when each chunk but the last is out (if calls take
    chunks), when its tail begins (if it has one), and its end. Drawn lengths move each of them by
    what its segments take more or less than on average. The shrinking batch lasts as long as the
    drawn responses take to end, the busy phase as long as their load takes, prefills as long as
    their prompts; a tail begins when the stated share of the drawn responses has ended, and decodes
    the others.
    """

    def __init__(self, subject: Subject, call: CallPlan, event: Event) -> None:
        pricing, wanted = subject.pricing, subject.calls[call.id]
        copy = subject.copies[call.copy_id or ""]
        pool, engine, cache = (
            subject.pool_of(copy),
            engine_of(call),
            row_of(call.kv_cache_bytes or 0),
        )
        self.workload = subject.job.spec.workload
        # The price is corrected by what runs have taught, the phases are as the tables say.
        self.factor = pricing.factor(pool, "generate", subject.job.models[copy.role])
        self.phases = pricing.generation_phases(wanted, pool, engine, kv_cache_bytes=cache)
        replicas = int(engine.data_parallel_size[0])
        self.shape = (replicas, -(-wanted.num_sequences // replicas))
        self.stages = int(engine.pipeline_parallel_size[0])
        shares, self.parts = list(event.chunk_ready_shares), [*_parts(self.phases), 0.0, 0.0]
        self.chunk_shares = np.arange(1, len(shares) + 1) / (len(shares) + 1)
        self.tail = tail_setting(call, copy)
        self.after = self.phases
        if self.tail is not None:
            wide = self.tail.widened(engine)
            self.after = pricing.generation_phases(wanted, pool, wide, kv_cache_bytes=cache)
            priced = pricing.tail(wanted, pool, engine, kv_cache_bytes=cache, tail=self.tail)
            self.parts[SHRINKING:] = _parts_of_a_tail(self.phases, self.tail, priced, self.factor)
            outstanding = float(priced.seconds_after_split[0]) / event.price_seconds
            shares.append(event.tail[1] if event.tail else 1.0 - outstanding)
        column = np.array([event.price_seconds])
        self.planned: FloatArray = ready_seconds(np.array([[*shares, 1.0]]), column)[0]
        self.busy_share = float(ended_share(self.phases)[0]) if self.parts[BUSY] else 0.0
        rng = np.random.default_rng(0)
        draws = int(np.clip(REFERENCE_SEQUENCES // wanted.num_sequences, *REFERENCE_DRAWS))
        self.expected = np.mean([self._progress(self.draw(rng)) for _ in range(draws)], axis=0)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw all lengths of one iteration."""
        return Draw(self.workload, self.shape, rng)

    def milestones(self, draw: Draw) -> FloatArray:
        """Seconds after the start of each milestone; as planned where every length is constant."""
        progress = self._progress(draw)
        if np.allclose(progress, self.expected, rtol=1e-12, atol=0.0):
            return self.planned
        whole = self.expected[-1]
        more = progress - self.expected
        relative = np.divide(more, whole, out=np.zeros_like(more), where=whole > 0)
        found = self.planned + self.factor * (relative @ np.array(self.parts))
        # Where lengths hardly vary, the closed form and the draws may order them otherwise.
        chunks = len(self.chunk_shares)
        found[:-1] = np.clip(found[:-1], 0.0, found[-1])
        found[:chunks] = np.maximum.accumulate(found[:chunks])
        return np.asarray(found, dtype=np.float64)

    def _progress(self, draw: Draw) -> FloatArray:
        """Progress [milestone, segment] of each segment at each milestone, in units of its own."""
        before, after, moved = self._ends(draw)
        progress = np.zeros((len(self.planned), SEGMENTS))
        progress[:, PREFILL] = draw.prompts.sum()
        busy = load(draw.prompt_tokens, draw.responses).sum(axis=1).max()
        progress[:, BUSY] = busy
        if self.tail is not None:
            progress[-2, SHRINKING] = before[-1]
        progress[-1, SHRINKING:] = before[-1], moved, after[-1] if len(after) else 0.0
        early = len(before) - (self.tail is not None)
        for chunk, share in enumerate(self.chunk_shares):
            late = (share - self.busy_share) / (1.0 - self.busy_share)
            rank = int(np.ceil(late * (early + len(after)) - 1e-9))
            if rank <= 0:
                progress[chunk, BUSY] = busy * share / self.busy_share
            elif rank <= early:
                progress[chunk, SHRINKING] = before[rank - 1]
            else:
                progress[chunk, SHRINKING:] = before[-1], moved, after[rank - early - 1]
        return progress

    def _ends(self, draw: Draw) -> tuple[FloatArray, FloatArray, float]:
        """When responses end where nobody waits, in order: (before, after) the tail begins.

        With a tail the last of the former is its beginning, the latter count from there; and the
        tokens of the most loaded of its replicas.
        """
        responses = draw.responses
        if self.tail is None:
            ends = _decoded(self.phases, responses, stages=self.stages)
            return np.sort(ends, axis=None), np.zeros(0), 0.0
        ordered = np.sort(responses, axis=None)
        share = (self.tail.ended_share - self.busy_share) / (1.0 - self.busy_share)
        rank = int(np.ceil(share * len(ordered) - 1e-9))
        age = int(ordered[rank - 1]) if rank > 0 else 0
        left = responses > age
        ends = _decoded(self.phases, responses, stages=self.stages, until=age)
        before = np.append(np.sort(ends[~left]), ends.max())
        rows = len(responses) // self.tail.gathers
        rest = np.where(left, responses - age, 0).reshape(rows, -1)
        tokens = np.where(left, draw.prompt_tokens + age, 0).reshape(rows, -1).sum(axis=1)
        after = _decoded(self.after, rest, stages=1, from_age=age)
        return before, np.sort(after[rest > 0]), float(tokens.max())


def _parts(phases: GenerationPhases) -> tuple[float, float, float]:
    """Seconds of the prefill, the busy phase and the shrinking batch."""
    steps, prefill = _step_seconds(phases), phases.prefill
    return (
        float((prefill.compute + prefill.communication + prefill.overhead)[0]),
        float(steps[:BUSY_CELLS].sum()),
        float(steps[BUSY_CELLS:].sum()),
    )


def _parts_of_a_tail(
    phases: GenerationPhases, tail: TailSetting, priced: TailEstimates, factor: float
) -> tuple[float, float, float]:
    """Seconds of the shrinking batch up to the tail, what moves there, and the tail."""
    split = int(split_cell(phases, tail)[phases.timeline.timeline_of[0]])
    moving = float(priced.moving_seconds[0])
    rest = float(priced.seconds_after_split[0]) - moving
    shrinking = float(_step_seconds(phases)[BUSY_CELLS:split].sum())
    return shrinking, moving / factor, rest / factor


def _step_seconds(phases: GenerationPhases) -> FloatArray:
    """Seconds [cell] of all decode steps of each cell."""
    timeline = phases.timeline
    steps: FloatArray = (timeline.phases.steps * timeline.step_seconds)[timeline.timeline_of[0]]
    return steps


def _decoded(
    phases: GenerationPhases,
    lengths: IntArray,
    *,
    stages: int,
    from_age: int = 0,
    until: int | None = None,
) -> FloatArray:
    """Seconds [replica, sequence] until `lengths` more tokens are decoded, where nobody waits.

    Sequences of length 0 are left out. With `until`, seconds to that age, or to an earlier end.
    """
    longest = int(lengths.max())
    if not longest:
        return np.zeros(lengths.shape)
    edges = np.linspace(0.0, longest, CELLS + 1)
    ordered = np.sort(lengths, axis=1)
    each = ordered.shape[1]
    # Per replica and cell: mean number of running sequences, and the share with one at least.
    reached = np.minimum(ordered[:, None, :], edges[:, None]).sum(axis=2)
    width = edges[1]
    running = np.diff(reached, axis=1) / width
    present = np.clip((ordered[:, -1:] - edges[:-1]) / width, 0.0, 1.0)
    batch = np.clip(running / np.maximum(present, 1e-9), 1.0, each)
    middles = (edges[1:] + edges[:-1]) / 2
    ages = phases.running.process.prompt_tokens + from_age + middles
    cached = np.broadcast_to(ages, batch.shape)
    shape = np.full_like(batch, phases.shape[0], dtype=np.int64)
    compute, moved = phases.tables.at(shape, np.maximum(batch / stages, 1.0), cached)
    on_gpu = compute + moved
    step = on_gpu + phases.tables.overhead_seconds(phases.engine, batch, cached, on_gpu)
    begun = np.cumsum(step * width, axis=1) - step * width
    wanted = lengths if until is None else np.minimum(lengths, until)
    cell = np.minimum((wanted / width).astype(np.int64), CELLS - 1)
    start, pace = (np.take_along_axis(table, cell, axis=1) for table in (begun, step))
    return np.asarray(start + pace * (wanted - cell * width), dtype=np.float64)


def load(prompt_tokens: IntArray | float, response_tokens: IntArray | FloatArray) -> FloatArray:
    """Cached tokens of a sequence, summed over its steps: the load it puts on a short cache."""
    return np.asarray(response_tokens * (prompt_tokens + response_tokens / 2), dtype=np.float64)


def sampled(lengths: LengthSpec, count: int, rng: np.random.Generator) -> IntArray:
    """`count` lengths drawn from a distribution, in whole tokens."""
    points, weights = lengths.distribution()
    drawn = rng.choice(points, size=count, p=weights / weights.sum())
    return np.asarray(np.maximum(np.rint(drawn), 1), dtype=np.int64)
