"""What is optimised: the period, the price of an iteration or a run, or the number of GPUs.

Price and GPU count depend on the nodes that a plan may touch. For a fixed number of nodes per pool
the best plan is the one with the least period, so these objectives search over node numbers and let
every search share the best value known.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from automap.planner.job.job import Job
from automap.planner.plan.price import fixed_seconds
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.pruning import SLACK
from automap.planner.search.model.solve import TICK_SECONDS, Limits
from automap.planner.search.node_choices import NodeChoices
from automap.planner.search.search import SearchResult, period_of, solve
from automap.planner.search.space.processes import ProcessSpaces
from automap.planner.search.space.rows import Selected
from automap.planner.search.space.schedules import schedule_in_place
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies.attempts import STARTING_COUNTS, Attempt, attempt
from automap.planner.search.tie_break import break_ties

SEARCHED_SHARE = 0.95
"""The share of a limit by the clock after which the search ends: the rest is for the answer."""
LEAST_SEARCH_SECONDS = 0.25
"""Seconds of search where pricing has used up a limit by the clock: enough to place a strategy."""
MIXED = "it has no placement with the first layouts that models of one process may share"
PROCESS_TRIES = 4
"""Layouts of a process in which strategies are placed to start a search."""
NOT_SEARCHED = "on numbers of nodes that were not searched"
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
    for each in _attempts(space, names, limits, most_counts):
        missing = [n for n in needed if each.selected and each.selected.call_rows[n] is None]
        if missing:
            call = space.tables.dataflow_calls[missing[0]].id
            result.append(Attempt(each.strategy, None, f"no candidate of {call} fits on any range"))
        else:
            result.append(replace(each, selected=schedule_in_place(space, each.selected, limits)))
    return result


def _attempts(
    space: SearchSpace, names: Sequence[str], limits: Limits, most_counts: int | None
) -> list[Attempt]:
    """What the strategies place; where models share a process, in the first few of its layouts."""
    if all(copy.process is None for copy in space.tables.copies):
        return attempt(space, names, limits=limits, most_counts=most_counts)
    best = {name: Attempt(name, None, MIXED) for name in names}
    choices = ProcessSpaces(space)
    for _ in range(PROCESS_TRIES):
        choice = choices.next(inf)
        if choice is None:
            break
        for each in attempt(choice.space, names, limits=limits, most_counts=most_counts):
            known = best[each.strategy].selected
            if each.selected is not None and period_of(each.selected) < period_of(known):
                lifted = replace(each, selected=choice.lift(each.selected))
                best[each.strategy] = lifted
    return list(best.values())


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


def paid_gpus(problem: Problem, sizes: tuple[int, ...]) -> int:
    """GPUs of all nodes that the first `sizes` GPUs of every pool touch."""
    return sum(
        -(-size // pool.gpus_per_node) * pool.gpus_per_node
        for size, pool in zip(sizes, problem.pools, strict=True)
    )


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
    choices = NodeChoices(
        space, lambda bound, sizes: run_price.price(bound, space.price_per_second(sizes))
    )
    known = min((run_price.of(a.selected) for a in attempts), default=inf)
    best: SearchResult | None = None
    budget, open_bounds, options, used = SharedBudget(limits), dict[str, float](), 0, 0.0
    while choices.least < inf:
        wanted = known * (1 - gap) if gap else known * (1 + SLACK)
        choice = None if budget.is_spent else choices.next(most=wanted, deadline=limits.deadline)
        least, sizes = choice or (choices.least, ())
        if least > wanted or (best is not None and least >= best.objective_value):
            break
        if choice is None:
            open_bounds |= {NOT_SEARCHED: least} if least < inf else {}
            break
        per_second = space.price_per_second(sizes)
        part = space.on_gpus(sizes)
        # Two ticks above: the search rules out what only equals its cutoff.
        cutoff_seconds = None
        if per_second > 0 and known < inf:
            cutoff_seconds = run_price.seconds(known * (1 - gap), per_second) + 2 * TICK_SECONDS
        # Once a search has found something, no strategy is as cheap on fewer or other nodes.
        starts = attempted(part, names, limits) if best is None else []
        found = _fastest(part, starts, budget.next_share(), cutoff_seconds)
        budget.take(proven=found.is_proven)
        options, used = options + found.options, used + found.deterministic_seconds
        if not found.is_proven:
            open_bounds[_on(sizes)] = run_price.price(found.lower_bound, per_second)
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
    options, used, undecided = 0, 0.0, dict[str, float]()
    budget = SharedBudget(replace(limits, gap=0.0))

    def paid_for(bound: float, sizes: tuple[int, ...]) -> float:
        in_time = target_seconds is None or bound <= target_seconds
        return float(paid_gpus(space.problem, sizes)) if in_time else inf

    choices = NodeChoices(space, paid_for)
    while choices.least < inf:
        choice = None if budget.is_spent else choices.next(deadline=limits.deadline)
        if choice is None:
            undecided |= {NOT_SEARCHED: choices.least} if choices.least < inf else {}
            break
        paid, sizes = choice
        part = space.on_gpus(sizes)
        starts = attempted(part, names, limits)
        found = _fastest(part, starts, budget.next_share(), target_seconds)
        budget.take(proven=found.is_proven)
        options, used = options + found.options, used + found.deterministic_seconds
        if found.solution is None:
            undecided |= {} if found.is_proven else {_on(sizes): paid}
            continue
        best = canonical(part, found, budget.next_share())
        assert best.solution is not None
        value = float(sum(space.touched_gpus(best.solution)))
        return replace(
            best,
            objective_value=value,
            lower_bound=min([value, *undecided.values()]),
            is_proven=found.is_proven and not undecided,
            deterministic_seconds=used,
            options=options,
            attempts=attempts,
            weak_side=_weak_side(undecided) or found.weak_side,
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
    open_bounds: dict[str, float],
    options: int,
    used: float,
    gap: float = 0.0,
) -> SearchResult:
    """Totals over all numbers of nodes; `open_bounds` are of those, in words, left undecided."""
    proven = not open_bounds
    if best is None:
        bound = min(open_bounds.values(), default=inf)
        best = SearchResult(None, bound, is_proven=proven)
    else:
        bound = min([best.objective_value * (1 - gap), *open_bounds.values()])
    return replace(
        best,
        lower_bound=bound,
        is_proven=proven,
        deterministic_seconds=used,
        options=options,
        attempts=attempts,
        weak_side=_weak_side(open_bounds),
    )


def _on(sizes: tuple[int, ...]) -> str:
    return f"on {' + '.join(str(size) for size in sizes)} GPUs"


def _weak_side(open_bounds: dict[str, float]) -> str | None:
    return min(open_bounds, key=open_bounds.__getitem__, default=None)
