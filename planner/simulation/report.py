"""Simulate a plan over several iterations: how long they take, and which GPUs are idle."""

import numpy as np

from automap.planner.check.prices import price_again
from automap.planner.check.subject import Subject
from automap.planner.check.time import Schedule, schedule_of
from automap.planner.check.trust import need_sound
from automap.planner.job.resolution import resolve
from automap.planner.layout import FloatArray
from automap.planner.plan.types import Plan
from automap.planner.simulation.durations import Durations, sampled_durations
from automap.planner.simulation.replay import replay
from automap.planner.simulation.result import (
    MAX_ITERATIONS,
    GpuUse,
    PoolUse,
    SimulatedCall,
    Simulation,
    Spread,
)
from automap.planner.simulation.timeline import Occurrence, occurrences, rows

NOISE = 1e-9
"""Share of the time below which an idle remainder is rounding."""
WARM_UP = 8
"""Number of iterations of a cyclic schedule before, and after, those that are reported."""


def simulate(
    plan: Plan, *, iterations: int = 100, seed: int = 0
) -> tuple[Simulation, list[Occurrence]]:
    """Run a plan's iterations as discrete events; the second is their timeline.

    Raises:
        PlanCheckError: the plan fails the check.
        ValueError: the number of iterations or the seed is out of range.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations={iterations}: give 1 to {MAX_ITERATIONS}")
    if seed < 0:
        raise ValueError(f"seed={seed}: give 0 or more")
    need_sound(plan)
    job = resolve(plan.spec)
    subject = Subject(job, plan)
    schedule = schedule_of(subject, price_again(subject))
    warm_up = WARM_UP if schedule.cyclic else 0
    durations = sampled_durations(subject, schedule, iterations=iterations + 2 * warm_up, seed=seed)
    run = replay(schedule, durations)
    bounds = _bounds(run.starts + durations.seconds, warm_up, iterations)
    timeline = occurrences(
        subject, schedule, durations, run, origin_seconds=float(bounds[0]), warm_up=warm_up
    )
    gpus = _gpu_use(timeline, iterations=iterations, seconds=float(bounds[-1] - bounds[0]))
    shown = slice(warm_up, warm_up + iterations)
    simulation = Simulation(
        name=plan.name,
        iterations=iterations,
        seed=seed,
        planned_seconds=plan.iteration_seconds,
        iteration_seconds=_spread(np.diff(bounds)),
        each_iteration_seconds=np.diff(bounds).tolist(),
        calls=_calls(schedule, durations, shown),
        gpus=gpus,
        pools=_pool_use(gpus, float(bounds[-1] - bounds[0]) / iterations),
    )
    return simulation, [one for one in timeline if 0 <= one.iteration < iterations]


def _bounds(ends: FloatArray, warm_up: int, iterations: int) -> FloatArray:
    """Seconds [iteration + 1] when each reported iteration, and the one before, is complete."""
    complete = np.maximum.accumulate(ends.max(axis=1))
    before = complete[warm_up - 1] if warm_up else 0.0
    return np.append(before, complete[warm_up : warm_up + iterations])


def _spread(seconds: FloatArray) -> Spread:
    p50, p95 = np.percentile(seconds, (50, 95))
    return Spread(
        mean=float(seconds.mean()),
        p50=float(p50),
        p95=float(p95),
        lowest=float(seconds.min()),
        highest=float(seconds.max()),
    )


def _calls(schedule: Schedule, durations: Durations, shown: slice) -> list[SimulatedCall]:
    found = []
    for number, event in enumerate(schedule.events):
        out, split = durations.outs.get(number), durations.splits.get(number)
        found.append(
            SimulatedCall(
                name=event.name,
                planned_seconds=event.price_seconds,
                seconds=_spread(durations.seconds[shown, number]),
                first_chunk_seconds=None if out is None else _spread(out[shown, 0]),
                bulk_seconds=None if split is None else _spread(split[shown]),
            )
        )
    return found


def _gpu_use(timeline: list[Occurrence], *, iterations: int, seconds: float) -> list[GpuUse]:
    """Busy and idle seconds within the reported time, per iteration."""
    pieces = rows(timeline)
    places: dict[str, list[tuple[int, bool]]] = {}
    busy = np.zeros(len(pieces))
    for one in timeline:
        if one.name not in places:
            places[one.name] = one.places(pieces)
        for number, with_tail in places[one.name]:
            for piece in one.pieces(with_tail=with_tail):
                inside = min(piece.end_seconds, seconds) - max(piece.start_seconds, 0.0)
                busy[number] += max(inside, 0.0)
    total, found = seconds / iterations, []
    for row, worked in zip(pieces, (busy / iterations).tolist(), strict=True):
        idle = total - worked
        if idle < NOISE * total:
            idle = 0.0
        found.append(
            GpuUse(
                pool=row.pool,
                first_gpu=row.first,
                num_gpus=row.end - row.first,
                busy_seconds=worked,
                idle_seconds=idle,
                idle_share=idle / total if total else 0.0,
            )
        )
    return found


def _pool_use(gpus: list[GpuUse], total: float) -> list[PoolUse]:
    found = []
    for pool in dict.fromkeys(use.pool for use in gpus):
        here = [use for use in gpus if use.pool == pool]
        number = sum(use.num_gpus for use in here)
        idle = sum(use.num_gpus * use.idle_seconds for use in here)
        share = idle / (number * total) if total else 0.0
        found.append(PoolUse(pool=pool, num_gpus=number, idle_gpu_seconds=idle, idle_share=share))
    return found
