"""A generation of a plan that never drains, replayed request by request with drawn lengths."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from automap.planner.check.prices import engine_of, row_of
from automap.planner.check.subject import Subject
from automap.planner.check.time import Event
from automap.planner.cost.generation.decoding import Steps
from automap.planner.cost.generation.kv_cache import kv_bytes_per_token, typical_tokens
from automap.planner.layout import FloatArray, IntArray
from automap.planner.plan.types import CallPlan, ContinuousReport
from automap.planner.simulation.generation import sampled
from automap.planner.simulation.requests import Batches, Engine, Flow, Setting
from automap.planner.spec.lengths import LengthSpec

WARM_UP = 2
"""Batches per one of staleness that pass before the flow counts as steady."""
BLOCK = 4096
"""Lengths that are drawn at once."""
NUMBERS, CACHED = 96, 33
"""Numbers of responses and of cached tokens at which the seconds of a step are tabulated."""


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch of the flow: its lengths, and the seconds since the one before was finished."""

    prompts: IntArray
    responses: IntArray
    seconds: float


class ContinuousGeneration:
    """The batches of a flow in the order in which they finish, in the place of drawn batches."""

    tail = None

    def __init__(
        self,
        subject: Subject,
        call: CallPlan,
        event: Event,
        report: ContinuousReport,
        *,
        iterations: int,
        rng: np.random.Generator,
    ) -> None:
        lengths = subject.job.spec.workload.response_length
        self.planned: FloatArray = np.array([event.price_seconds])
        self.constant = len(lengths.distribution()[0]) == 1
        warm = WARM_UP * (subject.plan.staleness + 1)
        copy = subject.copies[call.copy_id or ""]
        factor = subject.pricing.factor(
            subject.pool_of(copy), "generate", subject.job.models[copy.role]
        )
        out = replayed(subject, call, report, batches=warm + iterations, rng=rng)
        seconds = factor * np.diff(out.finished_at)[warm - 1 :]
        self.batches = iter(
            FinishedBatch(np.array(prompts), np.array(responses), float(each))
            for prompts, responses, each in zip(
                out.prompts[warm:], out.responses[warm:], seconds, strict=True
            )
        )

    def draw(self, _: np.random.Generator) -> FinishedBatch:
        """The next batch."""
        return next(self.batches)

    def milestones(self, batch: FinishedBatch) -> FloatArray:
        """Seconds until it is finished; as planned where every length is constant."""
        return self.planned if self.constant else np.array([batch.seconds])


def replayed(
    subject: Subject,
    call: CallPlan,
    report: ContinuousReport,
    *,
    batches: int,
    rng: np.random.Generator,
    train_seconds: float | None = None,
    pause_seconds: float = 0.0,
) -> Batches:
    """Let so many batches of a plan's generation finish.

    Without `train_seconds` weights come when `training_slack` more batches are finished, as the
    price has it; with them when one trainer is done, after `pause_seconds` in which engines stop.
    """
    workload, search = subject.job.spec.workload, subject.job.spec.search
    rules = subject.job.target.continuous
    setting = Setting(
        batch=subject.calls[call.id].num_sequences,
        group=workload.responses_per_prompt,
        staleness=search.staleness,
        slack=report.training_slack,
        replicas=int(engine_of(call).data_parallel_size[0]),
        turns=workload.turns,
        environment_seconds=workload.environment_seconds_per_turn,
        keeps_cache=bool(search.keep_cache_at_sync),
        train_seconds=train_seconds,
        pause_seconds=pause_seconds,
        waits=rules is None or rules.waits_for_oldest,
    )
    flow = Flow(
        _engine(subject, call, report),
        setting,
        _drawn(workload.prompt_length, rng),
        _drawn(workload.response_length, rng),
    )
    return flow.run(batches)


def _drawn(lengths: LengthSpec, rng: np.random.Generator) -> Callable[[int], IntArray]:
    """Draws lengths, many at a time behind the caller's back."""
    left = sampled(lengths, BLOCK, rng)

    def draw(count: int) -> IntArray:
        nonlocal left
        if count > len(left):
            left = np.append(left, sampled(lengths, max(BLOCK, count), rng))
        taken, left = left[:count], left[count:]
        return taken

    return draw


def _engine(subject: Subject, call: CallPlan, report: ContinuousReport) -> Engine:
    """A replica of the plan: what its steps and prefills take by the cost model."""
    job, copy, pricing = subject.job, subject.copies[call.copy_id or ""], subject.pricing
    layout, cache = engine_of(call), row_of(call.kv_cache_bytes or 0)
    phases = pricing.generation_phases(
        subject.calls[call.id], subject.pool_of(copy), layout, kv_cache_bytes=cache
    )
    steps = Steps(phases.tables, phases.engine, phases.shape, layout.pipeline_parallel_size)
    longest = float(job.spec.workload.response_length.max_tokens)
    longest += job.spec.workload.prompt_length.max_tokens
    slots = report.slots_per_replica
    numbers = np.unique(np.rint(np.geomspace(1, slots, min(NUMBERS, slots))))
    cached = np.linspace(0.0, longest, CACHED)
    rows = [np.stack(steps.of(numbers[None, :], np.array([[each]]))).sum(axis=0) for each in cached]
    seconds: list[list[float]] = np.concatenate(rows).T.tolist()
    width = float(cached[1])
    places = np.clip(
        np.searchsorted(numbers, np.arange(slots + 1)) - 1, 0, max(len(numbers) - 2, 0)
    )
    low = places.tolist()
    known = numbers.tolist()

    def step_seconds(count: int, tokens: float) -> float:
        row = low[count]
        column = min(int(tokens / width), CACHED - 2)
        part = tokens / width - column
        near: float = seconds[row][column] + part * (
            seconds[row][column + 1] - seconds[row][column]
        )
        if row + 1 >= len(known):
            return near
        beyond = seconds[row + 1]
        far: float = beyond[column] + part * (beyond[column + 1] - beyond[column])
        share: float = (count - known[row]) / (known[row + 1] - known[row])
        return near + share * (far - near)

    per_token = kv_bytes_per_token(
        job.models[copy.role],
        layout,
        tokens=typical_tokens(job.spec.workload),
        precision=job.spec.workload.rollout_cache_precision,
    )
    return Engine(
        step_seconds=step_seconds,
        prefill_token_seconds=float(phases.prefill.total[0] / phases.prefill_tokens[0]),
        slots=slots,
        cache_tokens=float(cache[0] / per_token[0]),
    )
