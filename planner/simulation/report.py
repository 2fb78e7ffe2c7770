"""A plan simulated over several iterations: how long they take, and what stands idle."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.check.prices import price_again
from planner.check.subject import Span, Subject
from planner.check.time import Schedule, schedule_of
from planner.check.trust import need_sound
from planner.layout import FloatArray
from planner.resolve import resolve
from planner.result import Plan
from planner.simulation.durations import sampled_seconds
from planner.simulation.replay import replay
from planner.simulation.result import (
    MAX_ITERATIONS,
    GpuUse,
    PoolUse,
    SimulatedCall,
    Simulation,
    Spread,
)
from planner.spec import unrunnable_field

SETTLING = 8
"""Iterations of a cyclic schedule before and after those that are reported."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One event of one iteration; `spans` is empty for a function on the host."""

    name: str
    iteration: int
    start_seconds: float
    end_seconds: float
    spans: tuple[Span, ...]


def simulate_plan(plan: Plan, *, iterations: int, seed: int) -> tuple[Simulation, list[Occurrence]]:
    """Run a plan's iterations as discrete events; the second is their timeline.

    Raises:
        PlanCheckError: the plan fails the check.
        ValueError: its spec lets calls stream or generations have tails, or a number of iterations
            or a seed is out of range.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations={iterations}: give 1 to {MAX_ITERATIONS}")
    if seed < 0:
        raise ValueError(f"seed={seed}: give 0 or more")
    if (field := unrunnable_field(plan.spec)) is not None:
        raise ValueError(f"{field}: events wait for whole calls; simulate a plan without it")
    job = resolve(plan.spec)
    need_sound(plan)
    subject = Subject(job, plan)
    schedule = schedule_of(subject, price_again(subject))
    settling = SETTLING if schedule.cyclic else 0
    seconds = sampled_seconds(subject, schedule, iterations=iterations + 2 * settling, seed=seed)
    starts = replay(schedule, seconds)
    ends = starts + seconds
    shown = slice(settling, settling + iterations)
    bounds = _bounds(ends, settling, iterations)
    gpus = _gpu_use(schedule, starts, ends, bounds)
    simulation = Simulation(
        name=plan.name,
        iterations=iterations,
        seed=seed,
        planned_seconds=plan.iteration_seconds,
        iteration_seconds=_spread(np.diff(bounds)),
        each_iteration_seconds=np.diff(bounds).tolist(),
        calls=[
            SimulatedCall(
                name=event.name,
                planned_seconds=event.price_seconds,
                seconds=_spread(seconds[shown, number]),
            )
            for number, event in enumerate(schedule.events)
        ],
        gpus=gpus,
        pools=_pool_use(gpus, float(bounds[-1] - bounds[0]) / iterations),
    )
    return simulation, _timeline(schedule, starts[shown], ends[shown], float(bounds[0]))


def _bounds(ends: FloatArray, settling: int, iterations: int) -> FloatArray:
    """[iteration + 1]: when each of the reported iterations is complete, and the one before."""
    complete = np.maximum.accumulate(ends.max(axis=1))
    before = complete[settling - 1] if settling else 0.0
    return np.append(before, complete[settling : settling + iterations])


def _spread(seconds: FloatArray) -> Spread:
    p50, p95 = np.percentile(seconds, (50, 95))
    return Spread(
        mean=float(seconds.mean()),
        p50=float(p50),
        p95=float(p95),
        lowest=float(seconds.min()),
        highest=float(seconds.max()),
    )


def stretches(schedule_spans: Sequence[Span]) -> list[Span]:
    """The GPUs that some span covers, cut where any span starts or ends."""
    found = []
    for pool in sorted({span.pool for span in schedule_spans}):
        here = [span for span in schedule_spans if span.pool == pool]
        ends = sorted({end for span in here for end in (span.first, span.end)})
        pieces = [Span(pool, first, end) for first, end in itertools.pairwise(ends)]
        found += [piece for piece in pieces if any(piece.shares_gpus(span) for span in here)]
    return found


def _gpu_use(
    schedule: Schedule, starts: FloatArray, ends: FloatArray, bounds: FloatArray
) -> list[GpuUse]:
    """Busy and idle seconds within the reported time, per iteration."""
    iterations = len(bounds) - 1
    first, last = float(bounds[0]), float(bounds[-1])
    inside = np.clip(ends, first, last) - np.clip(starts, first, last)
    total = (last - first) / iterations
    uses = []
    for piece in stretches([span for event in schedule.events for span in event.spans]):
        here = [
            number
            for number, event in enumerate(schedule.events)
            if any(piece.shares_gpus(span) for span in event.spans)
        ]
        busy = float(inside[:, here].sum()) / iterations
        idle = max(total - busy, 0.0)
        uses.append(
            GpuUse(
                pool=piece.pool,
                first_gpu=piece.first,
                num_gpus=piece.end - piece.first,
                busy_seconds=busy,
                idle_seconds=idle,
                idle_share=idle / total if total else 0.0,
            )
        )
    return uses


def _pool_use(gpus: list[GpuUse], total: float) -> list[PoolUse]:
    found = []
    for pool in dict.fromkeys(use.pool for use in gpus):
        here = [use for use in gpus if use.pool == pool]
        number = sum(use.num_gpus for use in here)
        idle = sum(use.num_gpus * use.idle_seconds for use in here)
        share = idle / (number * total) if total else 0.0
        found.append(PoolUse(pool=pool, num_gpus=number, idle_gpu_seconds=idle, idle_share=share))
    return found


def _timeline(
    schedule: Schedule, starts: FloatArray, ends: FloatArray, origin: float
) -> list[Occurrence]:
    """All events of the reported iterations, in order; a cyclic one may start before the origin."""
    found = [
        Occurrence(
            name=event.name,
            iteration=iteration,
            start_seconds=float(starts[iteration, number]) - origin,
            end_seconds=float(ends[iteration, number]) - origin,
            spans=event.spans,
        )
        for iteration in range(len(starts))
        for number, event in enumerate(schedule.events)
    ]
    return sorted(found, key=lambda one: (one.start_seconds, one.name))
