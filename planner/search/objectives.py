"""What is optimised: the period, the price of an iteration or a run, or the number of GPUs.

Price and GPU count depend on the nodes that a plan may touch. For a fixed number of nodes per pool
the best plan is the one with the least period, so these objectives search over node numbers and let
every search share the best value known.
"""

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from planner.job import Job
from planner.run_time import fixed_seconds
from planner.search.attempts import STARTING_COUNTS, Attempt, attempt
from planner.search.enumeration import device_counts
from planner.search.problem import PoolSlice, Problem
from planner.search.pruning import SLACK
from planner.search.search import search
from planner.search.selected import Found, Selected, in_its_place
from planner.search.settling import settled
from planner.search.solve import TICK_SECONDS, Limits
from planner.search.space import Arena, arena, least_period
from planner.search.tables import Tables

PROOF_SHARE = 1 / 256
"""Of the time limit: what a proven search on one number of nodes is counted as."""


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
    deterministic_seconds: float = 0.0
    """What the solver took."""


def best_placement(
    job: Job,
    tables: Tables,
    problem: Problem,
    names: Sequence[str],
) -> Best:
    """Search under the job's objective; `names` are the baselines that start it."""
    spec = job.spec.search
    limits = Limits.within(spec.time_limit_seconds, seed=spec.seed, gap=spec.optimality_gap)
    whole = arena(tables, problem)
    attempts = attempted(whole, names, limits)
    if spec.objective == "throughput":
        found = _fastest(whole, attempts, limits)
        return _best(whole, found, attempts, limits)
    if spec.objective in ("price", "run_price"):
        cash = _Cash(tables, problem, 1, 0.0)
        if spec.objective == "run_price":
            workload = job.spec.workload
            cash = replace(
                cash, iterations=workload.iterations, fixed_seconds=fixed_seconds(workload)
            )
        return _cheapest(cash, attempts, names, limits)
    return _fewest(tables, problem, attempts, names, limits, spec.target_iteration_seconds)


def attempted(
    arena_: Arena,
    names: Sequence[str],
    limits: Limits,
    most_counts: int | None = STARTING_COUNTS,
) -> list[Attempt]:
    """The named baselines; one whose candidates leave some call without any has no placement."""
    needed = [n for n, call in enumerate(arena_.tables.dataflow_calls) if call.model is not None]
    result = []
    for each in attempt(arena_, names, limits=limits, most_counts=most_counts):
        missing = [n for n in needed if each.selected and each.selected.call_rows[n] is None]
        if missing:
            call = arena_.tables.dataflow_calls[missing[0]].id
            result.append(Attempt(each.strategy, None, f"no candidate of {call} fits on any range"))
        else:
            result.append(replace(each, selected=in_its_place(arena_, each.selected, limits)))
    return result


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
    return inf if selected is None else selected.timing.period


def _best(arena_: Arena, found: Found, attempts: list[Attempt], limits: Limits) -> Best:
    """What was found, settled where it is proven; the objective is the seconds."""
    selected = found.selected
    if selected is not None and found.proven:
        selected = settled(arena_, found, limits=limits)
    return Best(
        selected=selected,
        problem=arena_.problem,
        objective_value=_period(selected),
        lower_bound=found.lower_bound_seconds,
        lower_bound_seconds=found.lower_bound_seconds,
        proven=found.proven,
        options=found.options,
        warm_start=found.warm_start,
        attempts=attempts,
        deterministic_seconds=found.deterministic_seconds,
    )


def _node_choices(problem: Problem) -> list[tuple[int, ...]]:
    """Usable GPUs per pool, for every number of nodes; not all zero."""
    per_pool = []
    for pool in problem.pools:
        sizes = [*range(pool.gpus_per_node, pool.num_gpus, pool.gpus_per_node), pool.num_gpus]
        per_pool.append([0, *sizes] if len(problem.pools) > 1 else sizes)
    return [sizes for sizes in itertools.product(*per_pool) if any(sizes)]


def _grid(pool: PoolSlice) -> list[int]:
    """Node numbers, in GPUs, for which bounds are computed: those that one range can fill."""
    counts = device_counts(pool.num_gpus, pool.gpus_per_node)
    return sorted({n for n in counts if n % pool.gpus_per_node == 0} | {0, pool.num_gpus})


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


def touched_gpus(tables: Tables, problem: Problem, selected: Selected) -> tuple[int, ...]:
    """Per pool the GPUs of all nodes on which some copy lies."""
    nodes: list[set[int]] = [set() for _ in problem.pools]
    for copy, row, first in zip(
        tables.copies, selected.copy_rows, selected.first_gpus, strict=True
    ):
        if row is None or first is None:
            continue
        index = int(copy.pool[row])
        pool = problem.pools[index]
        start, last = (
            first - pool.first_gpu,
            first - pool.first_gpu + copy.layouts.num_gpus[row] - 1,
        )
        nodes[index] |= set(range(start // pool.gpus_per_node, last // pool.gpus_per_node + 1))
    return tuple(
        len(touched) * pool.gpus_per_node
        for touched, pool in zip(nodes, problem.pools, strict=True)
    )


def _bounded(tables: Tables, problem: Problem) -> list[tuple[float, tuple[int, ...]]]:
    """(bound on the period, GPUs per pool) for every number of nodes that may hold the job.

    More nodes never slow a job down, so between two points of the grid the upper one's bound holds.
    """
    grids = [_grid(pool) for pool in problem.pools]
    known: dict[tuple[int, ...], float | None] = {}
    choices = []
    for sizes in _node_choices(problem):
        above = tuple(grid[bisect_left(grid, n)] for grid, n in zip(grids, sizes, strict=True))
        if above not in known:
            part = arena(tables, problem, above)
            known[above] = least_period(part.tables.least_syncs(), part.problem, part.rows)
        bound = known[above]
        if bound is not None:
            choices.append((bound, sizes))
    return choices


class Purse:
    """The time limit, shared by the searches of all numbers of nodes; the same every time.

    A search that ends by its limit has used what it got; one that ends by a proof far less.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.left = limits, limits.deterministic_seconds

    @property
    def spent(self) -> bool:
        """True when no further search may start."""
        return self.left <= 0.01 * self.limits.deterministic_seconds

    def some(self) -> Limits:
        """Limits for the next search: half of what is left."""
        return replace(self.limits, deterministic_seconds=self.left / 2)

    def take(self, *, proven: bool) -> None:
        """Count a search that has ended."""
        self.left -= PROOF_SHARE * self.limits.deterministic_seconds if proven else self.left / 2


@dataclass(frozen=True, slots=True)
class _Cash:
    """What is paid for: one iteration, or all of a run with its start-up and checkpoints."""

    tables: Tables
    problem: Problem
    iterations: int
    fixed_seconds: float
    """Paid at the same price, whatever the period."""

    def price(self, seconds: float, weight: float) -> float:
        """Of a period, at a price per second."""
        return (self.iterations * seconds + self.fixed_seconds) * weight

    def seconds(self, price: float, weight: float) -> float:
        """The period that has this price."""
        return (price / weight - self.fixed_seconds) / self.iterations

    def of(self, selected: Selected | None) -> float:
        """Price of a placement; infinite where there is none."""
        if selected is None:
            return inf
        touched = touched_gpus(self.tables, self.problem, selected)
        return self.price(selected.timing.period, price_per_second(self.problem, touched))


def _cheapest(cash: _Cash, attempts: list[Attempt], names: Sequence[str], limits: Limits) -> Best:
    """Nodes in the order of their least price; done when the next least price is too high.

    With prices of 0 every plan costs nothing, and the fastest is taken. A gap is one of prices:
    on each number of nodes the search is exact.
    """
    tables, problem = cash.tables, cash.problem
    gap, limits = limits.gap, replace(limits, gap=0.0)
    choices = sorted(
        (cash.price(bound, price_per_second(problem, sizes)), bound, sizes)
        for bound, sizes in _bounded(tables, problem)
    )
    known = min((cash.of(a.selected) for a in attempts), default=inf)
    best: Best | None = None
    purse, open_bounds, options, used = Purse(limits), [], 0, 0.0
    for least, _, sizes in choices:
        weight = price_per_second(problem, sizes)
        wanted = known * (1 - gap) if gap else known * (1 + SLACK)
        if least > wanted or (best is not None and least >= best.objective_value):
            break
        if purse.spent:
            open_bounds.append(least)
            break
        part = arena(tables, problem, sizes)
        # Two ticks above: the search rules out what only equals its horizon.
        horizon = None
        if weight > 0 and known < inf:
            horizon = cash.seconds(known * (1 - gap), weight) + 2 * TICK_SECONDS
        starts = attempted(part, names, limits)
        found = _fastest(part, starts, purse.some(), horizon)
        purse.take(proven=found.proven)
        options, used = options + found.options, used + found.deterministic_seconds
        if not found.proven:
            open_bounds.append(cash.price(found.lower_bound_seconds, weight))
        if found.selected is None:
            continue
        value = cash.of(found.selected)
        if best is None or value < best.objective_value:
            best = _best(part, found, attempts, purse.some())
            if cash.of(best.selected) > value * (1 + SLACK):
                best = replace(best, selected=found.selected)  # ties may touch more nodes
            value = cash.of(best.selected)
            best, known = replace(best, objective_value=value), min(known, value)
    best = best or _best_attempt(tables, problem, attempts, cash.of)
    summed_up = _summed_up(best, problem, attempts, open_bounds, options, gap)
    return replace(summed_up, deterministic_seconds=used)


def _best_attempt(
    tables: Tables,
    problem: Problem,
    attempts: list[Attempt],
    value: Callable[[Selected | None], float],
) -> Best | None:
    """The baseline of the least value, for when the search found nothing in its time."""
    start = min(attempts, key=lambda a: value(a.selected), default=None)
    if start is None or value(start.selected) == inf:
        return None
    found = Found(start.selected, 0.0, False, 0, start.strategy)
    best = _best(arena(tables, problem), found, attempts, Limits())
    return replace(best, objective_value=value(start.selected))


def _fewest(
    tables: Tables,
    problem: Problem,
    attempts: list[Attempt],
    names: Sequence[str],
    limits: Limits,
    target_seconds: float | None,
) -> Best:
    """The fewest GPUs on which an iteration meets the target, and the fastest plan there.

    Every pool combination is tried from the fewest paid GPUs upwards; bounds skip what cannot meet
    the target.
    """
    options, undecided = 0, []
    purse = Purse(replace(limits, gap=0.0))
    choices = sorted(
        (paid_gpus(problem, sizes), bound, sizes)
        for bound, sizes in _bounded(tables, problem)
        if target_seconds is None or bound <= target_seconds
    )
    for paid, _, sizes in choices:
        if purse.spent:
            undecided.append(float(paid))
            break
        part = arena(tables, problem, sizes)
        starts = attempted(part, names, limits)
        found = _fastest(part, starts, purse.some(), target_seconds)
        purse.take(proven=found.proven)
        options += found.options
        if found.selected is None:
            undecided += [] if found.proven else [float(paid)]
            continue
        best = _best(part, found, attempts, purse.some())
        assert best.selected is not None
        value = float(sum(touched_gpus(tables, problem, best.selected)))
        least = min([value, *undecided])
        proven = found.proven and not undecided
        return replace(
            best, objective_value=value, lower_bound=least, proven=proven, options=options
        )

    def gpus(selected: Selected | None) -> float:
        if selected is None or (target_seconds and selected.timing.period > target_seconds):
            return inf
        return float(sum(touched_gpus(tables, problem, selected)))

    best_known = _best_attempt(tables, problem, attempts, gpus) if undecided else None
    return _summed_up(best_known, problem, attempts, undecided, options)


def _summed_up(
    best: Best | None,
    problem: Problem,
    attempts: list[Attempt],
    open_bounds: list[float],
    options: int,
    gap: float = 0.0,
) -> Best:
    """Totals over all numbers of nodes; `open_bounds` are of those that were not decided."""
    proven = not open_bounds
    if best is None:
        return Best(
            None, problem, inf, min(open_bounds, default=inf), 0.0, proven, options, None, attempts
        )
    bound = min([best.objective_value * (1 - gap), *open_bounds])
    return replace(best, lower_bound=bound, options=options, proven=proven)
