"""What is optimised: the period, the price of an iteration, or the number of GPUs.

Price and GPU count depend on the nodes that a plan may touch. For a fixed number of nodes per pool
the best plan is the one with the least period, so these objectives search over node numbers and let
every search share the best value known.
"""

import itertools
from dataclasses import dataclass, replace

from planner.enumeration import device_counts
from planner.job import Job
from planner.problem import Problem
from planner.search import Attempt, Found, Selected, attempt, search, settled
from planner.solve import Limits
from planner.space import Arena, arena, least_period
from planner.tables import Tables


@dataclass(frozen=True, slots=True)
class Best:
    """The best placement under the job's objective and what is proven."""

    selected: Selected | None
    problem: Problem
    """On the nodes that the objective settled for."""
    objective_value: float
    lower_bound: float
    """Of the objective: seconds, price per iteration, or GPUs."""
    lower_bound_seconds: float
    """Of the period, on the nodes that the objective settled for."""
    proven: bool
    options: int
    warm_start: str | None
    attempts: list[Attempt]
    """The baselines, on the whole cluster."""


def best_placement(job: Job, tables: Tables, problem: Problem, names: list[str]) -> Best:
    """Search under the job's objective; `names` are the baselines that start it."""
    spec = job.spec.search
    limits = Limits(spec.time_limit_seconds, spec.seed, spec.num_workers)
    whole = arena(tables, problem)
    attempts = attempt(whole, names, limits=limits)
    if spec.objective == "throughput":
        found = _fastest(whole, attempts, limits)
        return _best(whole, found, attempts, limits, weight=None)
    if spec.objective == "price":
        return _cheapest(tables, problem, attempts, names, limits)
    return _fewest(tables, problem, attempts, names, limits, spec.target_iteration_seconds)


def _fastest(
    arena_: Arena, attempts: list[Attempt], limits: Limits, horizon_seconds: float | None = None
) -> Found:
    placed = [a for a in attempts if a.selected is not None]
    start = min(placed, key=lambda a: _period(a.selected), default=None)
    incumbent = None if start is None else start.selected
    if horizon_seconds is not None and _period(incumbent) > horizon_seconds:
        start, incumbent = None, None
    found = search(arena_, limits=limits, incumbent=incumbent, horizon_seconds=horizon_seconds)
    return replace(found, warm_start=None if start is None else start.strategy)


def _period(selected: Selected | None) -> float:
    return float("inf") if selected is None else selected.timing.period


def _best(
    arena_: Arena, found: Found, attempts: list[Attempt], limits: Limits, *, weight: float | None
) -> Best:
    """`weight` turns seconds into the objective; None: the objective is the seconds."""
    selected = found.selected
    if selected is not None and found.proven:
        selected = settled(arena_, found, limits=limits)
    factor = 1.0 if weight is None else weight
    return Best(
        selected=selected,
        problem=arena_.problem,
        objective_value=factor * _period(selected),
        lower_bound=factor * found.lower_bound_seconds,
        lower_bound_seconds=found.lower_bound_seconds,
        proven=found.proven,
        options=found.options,
        warm_start=found.warm_start,
        attempts=attempts,
    )


def _node_choices(problem: Problem) -> list[tuple[int, ...]]:
    """Usable GPUs per pool, for every number of nodes that ranges can fill; not all zero."""
    per_pool = []
    for pool in problem.pools:
        counts = device_counts(pool.num_gpus, pool.gpus_per_node)
        sizes = {n for n in counts if n % pool.gpus_per_node == 0} | {pool.num_gpus}
        per_pool.append(sorted({0, *sizes} if len(problem.pools) > 1 else sizes))
    return [sizes for sizes in itertools.product(*per_pool) if any(sizes)]


def paid_gpus(problem: Problem, sizes: tuple[int, ...]) -> int:
    """GPUs of all nodes that the first `sizes` GPUs of every pool touch."""
    return sum(
        -(-size // pool.gpus_per_node) * pool.gpus_per_node
        for size, pool in zip(sizes, problem.pools, strict=True)
    )


def price_per_second(problem: Problem, sizes: tuple[int, ...]) -> float:
    """Of all GPUs of the nodes that the first `sizes` GPUs of every pool touch."""
    return sum(
        -(-size // pool.gpus_per_node) * pool.gpus_per_node * pool.price_per_gpu_second
        for size, pool in zip(sizes, problem.pools, strict=True)
    )


def _bounded(tables: Tables, problem: Problem) -> list[tuple[float, tuple[int, ...]]]:
    """(bound on the period, GPUs per pool) for every number of nodes that may hold the job."""
    choices = []
    for sizes in _node_choices(problem):
        part = arena(tables, problem, sizes)
        bound = least_period(tables, part.problem, part.rows)
        if bound is not None:
            choices.append((bound, sizes))
    return choices


def _cheapest(
    tables: Tables,
    problem: Problem,
    attempts: list[Attempt],
    names: list[str],
    limits: Limits,
) -> Best:
    """Nodes in the order of their least price; done when the next least price is too high.

    With prices of 0 every plan costs nothing, and the fastest is taken.
    """
    bounded = [
        (bound * price_per_second(problem, sizes), bound, sizes)
        for bound, sizes in _bounded(tables, problem)
    ]
    best: Best | None = None
    open_bounds, options, proven = [], 0, True
    for least, _, sizes in sorted(bounded, key=lambda choice: (choice[0], choice[1])):
        weight = price_per_second(problem, sizes)
        if best is not None and least >= best.objective_value:
            break
        part = arena(tables, problem, sizes)
        horizon = best.objective_value / weight if best is not None and weight > 0 else None
        starts = attempt(part, names, limits=limits)
        found = _fastest(part, starts, limits, horizon)
        options, proven = options + found.options, proven and found.proven
        open_bounds.append(weight * found.lower_bound_seconds)
        if found.selected is None:
            continue
        if best is None or weight * _period(found.selected) < best.objective_value:
            best = _best(part, found, attempts, limits, weight=weight)
    return _summed_up(best, problem, attempts, min(open_bounds, default=0.0), options, proven)


def _fewest(
    tables: Tables,
    problem: Problem,
    attempts: list[Attempt],
    names: list[str],
    limits: Limits,
    target_seconds: float | None,
) -> Best:
    """The fewest GPUs on which an iteration meets the target, and the fastest plan there.

    More nodes never hurt (they may idle), so each pool combination is tried from the fewest paid
    GPUs upwards; bounds skip what cannot meet the target.
    """
    options = 0
    choices = sorted(
        (paid_gpus(problem, sizes), bound, sizes) for bound, sizes in _bounded(tables, problem)
    )
    for paid, bound, sizes in choices:
        if target_seconds is not None and bound > target_seconds:
            continue
        part = arena(tables, problem, sizes)
        found = _fastest(part, attempt(part, names, limits=limits), limits, target_seconds)
        options += found.options
        if found.selected is None and not found.proven:
            # Nothing can be said about larger numbers before this one is decided.
            return _undecided(part, found, attempts, options, paid)
        if found.selected is not None:
            best = _best(part, found, attempts, limits, weight=None)
            return replace(best, objective_value=paid, lower_bound=paid, options=options)
    return _summed_up(None, problem, attempts, 0.0, options, proven=True)


def _undecided(part: Arena, found: Found, attempts: list[Attempt], options: int, paid: int) -> Best:
    best = _best(part, found, attempts, Limits(), weight=None)
    return replace(best, lower_bound=paid, options=options)


def _summed_up(
    best: Best | None,
    problem: Problem,
    attempts: list[Attempt],
    bound: float,
    options: int,
    proven: bool,
) -> Best:
    """Totals over all numbers of nodes."""
    if best is None:
        return Best(None, problem, float("inf"), bound, 0.0, proven, options, None, attempts)
    return replace(
        best, lower_bound=min(bound, best.objective_value), options=options, proven=proven
    )
