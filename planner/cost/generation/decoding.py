"""All decode steps of a generate call: the timeline of the batch, and what its steps take."""

from dataclasses import dataclass

import numpy as np

from automap.planner.cost.generation.decode import StepTables
from automap.planner.cost.generation.prefill import Prefill
from automap.planner.cost.generation.rollout import Phases, Rollout, phases, phases_with_absences
from automap.planner.cost.rollout_engines import EngineProfile
from automap.planner.cost.rows import distinct_rows
from automap.planner.layout import FloatArray, IntArray
from automap.planner.spec import WorkloadSpec

CAPACITY_LEVELS = 512
"""Levels per factor of 2 to which cache sizes are rounded: less than 0.1 % apart count as one."""
ROUNDS = 3
"""Iterations in which environment seconds and the seconds of a busy step are made to agree."""


@dataclass(frozen=True, slots=True)
class Running:
    """Work of one replica and the size of its cache [candidate]."""

    process: Rollout
    absent: tuple[Rollout, ...]
    """`process` with each of several environment times between turns; empty where there are no
    turns or no environment time."""
    sequences: IntArray
    cache_tokens: IntArray
    num_sequences: int
    """Sequences of the whole call, over all replicas."""
    most_at_once: IntArray
    """Most sequences [candidate] that a replica can run at once, before any has grown."""
    slots: IntArray | None = None
    """Most sequences [candidate] that the engine runs at once on any cache; None: no limit."""
    in_slots: Rollout | None = None
    """`process` where slots are what is short."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What a decode step takes [candidate]."""

    tables: StepTables
    engine: EngineProfile
    shape: IntArray
    """Index of the candidate's shape in `tables`."""
    stages: IntArray
    """Pipeline stages, which a batch passes in as many micro-batches."""

    def take(self, rows: IntArray) -> "Steps":
        """The given rows, in that order."""
        return Steps(self.tables, self.engine, self.shape[rows], self.stages[rows])

    def at(self, timeline: Phases, prompt: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(compute, communication, overhead) seconds [row, cell]."""
        return self.of(timeline.batch, prompt + timeline.age_tokens)

    def of(
        self, batch: FloatArray, cached: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(compute, communication, overhead) seconds [row, cell] with so many cached tokens."""
        each = np.maximum(batch / self.stages[:, None], 1.0)
        compute, moved = self.tables.at(self.shape[:, None], each, cached)
        overhead = self.tables.overhead_seconds(self.engine, batch, cached, compute + moved)
        return compute, moved, overhead


@dataclass(frozen=True, slots=True)
class BatchTimeline:
    """How the running batch changes over the decode steps: distinct timelines, and whose they are.

    Many candidates share a timeline: it depends only on sequences and cache size per replica, and
    on what a step takes.
    """

    process: Rollout
    phases: Phases
    step_seconds: FloatArray
    """[timeline, cell]: seconds of one decode step in each cell."""
    timeline_of: IntArray
    """[candidate]: index of the candidate's timeline."""

    def deviation_seconds(self) -> FloatArray:
        """Standard deviation of the decode seconds [candidate] when lengths are drawn anew."""
        return self.phases.deviation_seconds(self.step_seconds, self.process)[self.timeline_of]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Seconds of all decode steps of a replica, and tokens it has to prefill again [candidate]."""

    compute: FloatArray
    communication: FloatArray
    overhead: FloatArray
    waiting: FloatArray
    """Seconds of environment time that nothing hides; while the cache is short, other sequences
    run meanwhile."""
    evicted_tokens: FloatArray
    timeline: BatchTimeline


def decode(steps: Steps, prefill: Prefill, running: Running, workload: WorkloadSpec) -> Decoded:
    """Price all decode steps of a generate call [candidate]; the slowest replica counts."""
    # Many layouts, budgets and replica counts lead to the same timeline of the batch.
    level = np.ceil(CAPACITY_LEVELS * np.log2(running.cache_tokens / running.sequences + 1.0))
    slots = running.sequences if running.slots is None else running.slots
    alike, timeline_of = distinct_rows(running.sequences, level.astype(np.int64), slots)
    sequences = running.sequences[alike]
    # The level's own size: whatever else is priced beside it, a row has the same seconds.
    cache_tokens = sequences * (np.exp2(level[alike] / CAPACITY_LEVELS) - 1.0)
    timelines = phases(
        running.process,
        sequences=sequences,
        cache_tokens=cache_tokens,
        num_sequences=running.num_sequences,
    )
    if running.in_slots is not None:
        limited = phases(
            running.in_slots,
            sequences=sequences,
            cache_tokens=slots[alike].astype(np.float64),
            num_sequences=running.num_sequences,
        )
        timelines = timelines.or_longer(limited)
    first, inverse = distinct_rows(steps.shape, timeline_of)
    steps, which = steps.take(first), timeline_of[first]
    timeline = timelines.take(which)
    if running.absent:
        prefills = (prefill.seconds.total[first], prefill.tokens[first])
        timeline = _with_absences(steps, timeline, cache_tokens[which], running, workload, prefills)
    compute, moved, overhead = steps.at(timeline, running.process.prompt_tokens)
    return Decoded(
        compute=(compute * timeline.steps).sum(axis=1)[inverse],
        communication=(moved * timeline.steps).sum(axis=1)[inverse],
        overhead=(overhead * timeline.steps).sum(axis=1)[inverse],
        waiting=timeline.absences[inverse] * workload.environment_seconds_per_turn,
        evicted_tokens=timeline.evicted_tokens[inverse],
        timeline=BatchTimeline(running.process, timeline, compute + moved + overhead, inverse),
    )


def _with_absences(
    steps: Steps,
    timeline: Phases,
    cache_tokens: FloatArray,
    running: Running,
    workload: WorkloadSpec,
    prefills: tuple[FloatArray, FloatArray],
) -> Phases:
    """Timelines where sequences are away with their environment between turns.

    How many steps pass meanwhile depends on what the steps take, prefills between them included,
    and so on the timeline: the two are brought into agreement in a few rounds.
    """
    turn_tokens = running.process.mean_tokens / workload.turns
    seconds, tokens = prefills
    for _ in range(ROUNDS):
        decode_seconds = sum(steps.at(timeline, running.process.prompt_tokens)) * timeline.steps
        total = decode_seconds.sum(axis=1) + seconds * (1.0 + timeline.evicted_tokens / tokens)
        turn_seconds = turn_tokens * total / timeline.steps.sum(axis=1)
        timeline = phases_with_absences(
            running.absent,
            absent_turns=workload.environment_seconds_per_turn / turn_seconds,
            sequences=timeline.sequences,
            cache_tokens=cache_tokens,
            num_sequences=running.num_sequences,
        )
    return timeline
