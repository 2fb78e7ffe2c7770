"""What is optimised: the period, the price of an iteration or a run, or the number of GPUs.

Price and GPU count depend on the nodes that a plan may touch. For a fixed number of nodes per pool
the best plan is the one with the least period, so these objectives search over node numbers and let
every search share the best value known.
"""

import itertools
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from automap.planner.job.job import Job
from automap.planner.plan.price import fixed_seconds
from automap.planner.search.candidates.enumeration import device_counts
from automap.planner.search.model.problem import PoolSlice, Problem
from automap.planner.search.model.pruning import SLACK
from automap.planner.search.model.solve import TICK_SECONDS, Limits
from automap.planner.search.search import SearchResult, period_of, solve
from automap.planner.search.space.rows import Selected
from automap.planner.search.space.schedules import schedule_in_place
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies.attempts import STARTING_COUNTS, Attempt, attempt
from automap.planner.search.tie_break import break_ties

SEARCHED_SHARE = 0.95
"""The share of a limit by the clock after which the search ends: the rest is for the answer."""
LEAST_SEARCH_SECONDS = 0.25
"""Seconds of search where pricing has used up a limit by the clock: enough to place a strategy."""
PROOF_SHARE = 1 / 256
"""The share of the time limit that a proven search on one number of nodes is counted as."""


def best_placement(
    job: Job, space: SearchSpace, names: Sequence[str], *, began: float | None = None
) -> SearchResult:
    """The best placement under the job's objective, within the job's limits.

    Args:
        job: Whose objective, target and limits count.
        space: What is searched: the job on its whole cluster.
        names: The strategies that start every search.
        began: Reading of time.perf_counter from which a limit by the clock counts; now by default.
    """
    spec = job.spec.search
    limits = limits_of(job, began, least_seconds=LEAST_SEARCH_SECONDS)
    attempts = attempted(space, names, limits)
    if spec.objective == "throughput":
        found = _fastest(space, attempts, limits)
        return replace(canonical(space, found, limits), attempts=attempts)
    if spec.objective in ("price", "run_price"):
        return cheapest(run_price_of(job, space), attempts, names, limits)
    return fewest_gpus(space, attempts, names, limits, spec.target_iteration_seconds)


def limits_of(job: Job, began: float | None = None, *, least_seconds: float = 0.0) -> Limits:
    """The limits of a job's search: by the clock from `began`, now by default, or by work.

    By the clock `least_seconds` are left even where the time is over.
    """
    spec = job.spec.search
    if spec.limit_by == "work":
        return Limits.within(spec.time_limit_seconds, seed=spec.seed, gap=spec.optimality_gap)
    now = time.perf_counter() if began is None else began
    end = now + SEARCHED_SHARE * spec.time_limit_seconds
    end = max(end, time.perf_counter() + least_seconds)
    return Limits.until(end, seed=spec.seed, gap=spec.optimality_gap)


def run_price_of(job: Job, space: SearchSpace) -> "RunPrice":
    """What a job pays for whose objective is a price."""
    if job.spec.search.objective == "price":
        return RunPrice(space, 1, 0.0)
    workload = job.spec.workload
    return RunPrice(space, workload.iterations, fixed_seconds(workload))


def attempted(
    space: SearchSpace,
    names: Sequence[str],
    limits: Limits,
    most_counts: int | None = STARTING_COUNTS,
) -> list[Attempt]:
    """The named strategies; one whose candidates leave some call without any has no placement."""
    needed = [n for n, call in enumerate(space.tables.dataflow_calls) if call.model is not None]
    result = []
    for each in attempt(space, names, limits=limits, most_counts=most_counts):
        missing = [n for n in needed if each.selected and each.selected.call_rows[n] is None]
        if missing:
            call = space.tables.dataflow_calls[missing[0]].id
            result.append(Attempt(each.strategy, None, f"no candidate of {call} fits on any range"))
        else:
            result.append(replace(each, selected=schedule_in_place(space, each.selected, limits)))
    return result


def _fastest(
    space: SearchSpace, attempts: list[Attempt], limits: Limits, cutoff_seconds: float | None = None
) -> SearchResult:
    placed = [a for a in attempts if a.selected is not None]
    start = min(placed, key=lambda a: period_of(a.selected), default=None)
    incumbent = None if start is None else start.selected
    if cutoff_seconds is not None and period_of(incumbent) > cutoff_seconds:
        start, incumbent = None, None
    found = solve(space, limits=limits, incumbent=incumbent, cutoff_seconds=cutoff_seconds)
    return replace(found, warm_start=None if start is None else start.strategy)


def canonical(space: SearchSpace, found: SearchResult, limits: Limits) -> SearchResult:
    """What was found; where it is proven, the canonical one of all that are equally fast."""
    if found.solution is None or not found.is_proven:
        return found
    selected = break_ties(space, found.solution, limits=limits)
    return replace(found, solution=selected, objective_value=selected.timing.period)


def _node_choices(problem: Problem) -> list[tuple[int, ...]]:
    """Usable GPUs per pool, for every number of nodes; not all zero."""
    per_pool = [sizes_of_nodes(problem, pool) for pool in range(len(problem.pools))]
    return [sizes for sizes in itertools.product(*per_pool) if any(sizes)]


def sizes_of_nodes(problem: Problem, number: int) -> list[int]:
    """Usable GPUs of a pool for every number of its nodes; none only where there are others."""
    pool = problem.pools[number]
    sizes = [*range(pool.gpus_per_node, pool.num_gpus, pool.gpus_per_node), pool.num_gpus]
    return [0, *sizes] if len(problem.pools) > 1 else sizes


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


def _bounded(space: SearchSpace) -> list[tuple[float, tuple[int, ...]]]:
    """(bound on the period, GPUs per pool) for every number of nodes that may hold the job.

    More nodes never slow a job down, so between two points of the grid the upper one's bound holds.
    """
    grids = [_grid(pool) for pool in space.problem.pools]
    known: dict[tuple[int, ...], float | None] = {}
    choices = []
    for sizes in _node_choices(space.problem):
        above = tuple(grid[bisect_left(grid, n)] for grid, n in zip(grids, sizes, strict=True))
        if above not in known:
            known[above] = space.on_gpus(above).lower_bound()
        bound = known[above]
        if bound is not None:
            choices.append((bound, sizes))
    return choices


class SharedBudget:
    """The time limit, shared by the searches of all numbers of nodes; the same every time.

    A search that ends by its limit has used what it got; one that ends by a proof far less.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.left = limits, limits.deterministic_seconds
        self.seconds = limits.clock_seconds
        """Seconds that there were until the deadline; infinite without one."""

    @property
    def is_spent(self) -> bool:
        """True when no further search may start."""
        if self.seconds < inf:
            return self.limits.clock_seconds <= 0.01 * self.seconds
        return self.left <= 0.01 * self.limits.deterministic_seconds

    def next_share(self) -> Limits:
        """Limits for the next search: half of what is left."""
        return replace(self.limits, deterministic_seconds=self.left).part(0.5)

    def take(self, *, proven: bool) -> None:
        """Count a search that has ended; what the clock counts needs none."""
        if self.seconds < inf:
            return
        self.left -= PROOF_SHARE * self.limits.deterministic_seconds if proven else self.left / 2


@dataclass(frozen=True, slots=True)
class RunPrice:
    """What is paid for: one iteration, or all of a run with its start-up and checkpoints."""

    space: SearchSpace
    iterations: int
    fixed_seconds: float
    """Paid at the same price, whatever the period."""

    def price(self, seconds: float, price_per_second: float) -> float:
        """The price of a period."""
        return (self.iterations * seconds + self.fixed_seconds) * price_per_second

    def seconds(self, price: float, price_per_second: float) -> float:
        """The period that has this price."""
        return (price / price_per_second - self.fixed_seconds) / self.iterations

    def of(self, selected: Selected | None) -> float:
        """Price of a placement; infinite where there is none."""
        if selected is None:
            return inf
        touched = self.space.touched_gpus(selected)
        return self.price(selected.timing.period, self.space.price_per_second(touched))


def cheapest(
    run_price: RunPrice, attempts: list[Attempt], names: Sequence[str], limits: Limits
) -> SearchResult:
    """Nodes in the order of their least price; done when the next least price is too high.

    With prices of 0 every plan costs nothing, and the fastest is taken. A gap is one of prices:
    on each number of nodes the search is exact.
    """
    space, gap, limits = run_price.space, limits.gap, replace(limits, gap=0.0)
    choices = sorted(
        (run_price.price(bound, space.price_per_second(sizes)), bound, sizes)
        for bound, sizes in _bounded(space)
    )
    known = min((run_price.of(a.selected) for a in attempts), default=inf)
    best: SearchResult | None = None
    budget, open_bounds, options, used = SharedBudget(limits), [], 0, 0.0
    for least, _, sizes in choices:
        per_second = space.price_per_second(sizes)
        wanted = known * (1 - gap) if gap else known * (1 + SLACK)
        if least > wanted or (best is not None and least >= best.objective_value):
            break
        if budget.is_spent:
            open_bounds.append(least)
            break
        part = space.on_gpus(sizes)
        # Two ticks above: the search rules out what only equals its cutoff.
        cutoff_seconds = None
        if per_second > 0 and known < inf:
            cutoff_seconds = run_price.seconds(known * (1 - gap), per_second) + 2 * TICK_SECONDS
        starts = attempted(part, names, limits)
        found = _fastest(part, starts, budget.next_share(), cutoff_seconds)
        budget.take(proven=found.is_proven)
        options, used = options + found.options, used + found.deterministic_seconds
        if not found.is_proven:
            open_bounds.append(run_price.price(found.lower_bound, per_second))
        if found.solution is None:
            continue
        value = run_price.of(found.solution)
        if best is None or value < best.objective_value:
            best = canonical(part, found, budget.next_share())
            if run_price.of(best.solution) > value * (1 + SLACK):
                best = replace(best, solution=found.solution)  # ties may touch more nodes
            value = run_price.of(best.solution)
            best, known = replace(best, objective_value=value), min(known, value)
    best = best or _best_attempt(attempts, run_price.of)
    return _summed_up(best, attempts, open_bounds, options, used, gap)


def _best_attempt(
    attempts: list[Attempt], value: Callable[[Selected | None], float]
) -> SearchResult | None:
    """The strategy of the least value, for when the search found nothing in its time."""
    start = min(attempts, key=lambda a: value(a.selected), default=None)
    if start is None or value(start.selected) == inf:
        return None
    return SearchResult(
        start.selected,
        0.0,
        is_proven=False,
        objective_value=value(start.selected),
        warm_start=start.strategy,
    )


def fewest_gpus(
    space: SearchSpace,
    attempts: list[Attempt],
    names: Sequence[str],
    limits: Limits,
    target_seconds: float | None,
) -> SearchResult:
    """The fewest GPUs on which an iteration meets the target, and the fastest plan there.

    Every pool combination is tried from the fewest paid GPUs upwards; bounds skip what cannot meet
    the target.
    """
    options, used, undecided = 0, 0.0, []
    budget = SharedBudget(replace(limits, gap=0.0))
    choices = sorted(
        (paid_gpus(space.problem, sizes), bound, sizes)
        for bound, sizes in _bounded(space)
        if target_seconds is None or bound <= target_seconds
    )
    for paid, _, sizes in choices:
        if budget.is_spent:
            undecided.append(float(paid))
            break
        part = space.on_gpus(sizes)
        starts = attempted(part, names, limits)
        found = _fastest(part, starts, budget.next_share(), target_seconds)
        budget.take(proven=found.is_proven)
        options, used = options + found.options, used + found.deterministic_seconds
        if found.solution is None:
            undecided += [] if found.is_proven else [float(paid)]
            continue
        best = canonical(part, found, budget.next_share())
        assert best.solution is not None
        value = float(sum(space.touched_gpus(best.solution)))
        return replace(
            best,
            objective_value=value,
            lower_bound=min([value, *undecided]),
            is_proven=found.is_proven and not undecided,
            deterministic_seconds=used,
            options=options,
            attempts=attempts,
        )

    def gpus(selected: Selected | None) -> float:
        if selected is None or (target_seconds and selected.timing.period > target_seconds):
            return inf
        return float(sum(space.touched_gpus(selected)))

    best_known = _best_attempt(attempts, gpus) if undecided else None
    return _summed_up(best_known, attempts, undecided, options, used)


def _summed_up(
    best: SearchResult | None,
    attempts: list[Attempt],
    open_bounds: list[float],
    options: int,
    used: float,
    gap: float = 0.0,
) -> SearchResult:
    """Totals over all numbers of nodes; `open_bounds` are of those that were not decided."""
    proven = not open_bounds
    if best is None:
        bound = min(open_bounds, default=inf)
        best = SearchResult(None, bound, is_proven=proven)
    else:
        bound = min([best.objective_value * (1 - gap), *open_bounds])
    return replace(
        best,
        lower_bound=bound,
        is_proven=proven,
        deterministic_seconds=used,
        options=options,
        attempts=attempts,
    )
