"""The best placement: under the job's objective, on given nodes, and of equally good ones.

`best_placement` starts from placements of named strategies and asks `solve` for the shortest
period: on all nodes for throughput, on numbers of nodes in turn for objectives that depend on them
(`objectives`). `solve` decides sizes first (`decomposition.benders`). Of all placements that are as
good as a proven one, `break_ties` then takes always the same.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from operator import itemgetter

import numpy as np

from automap.planner.job.job import Job
from automap.planner.search.decomposition.benders import BendersLoop, period_limit, slowest
from automap.planner.search.decomposition.master import (
    MasterProblem,
    Sizes,
    relaxed_problem,
    rows_of_sizes,
)
from automap.planner.search.many_models.linear_bound import linear_bound
from automap.planner.search.many_models.many_model_search import MANY_CALLS, shorter_start
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.pruning import SLACK, prune
from automap.planner.search.model.solve import (
    MOST_TICKS,
    TICK_SECONDS,
    Budget,
    Limits,
    canonical_solution,
)
from automap.planner.search.objectives import (
    Cheapest,
    FewestGpus,
    NodeObjective,
    RunPrice,
    SearchResult,
)
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.processes import ProcessSpaces, of_process
from automap.planner.search.space.rows import Rows, Selected, period_of, rows_of
from automap.planner.search.space.schedules import schedule_in_place
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies.attempts import Attempt, attempted

SEARCHED_SHARE = 0.95
"""The share of a limit by the clock after which the search ends: the rest is for the answer."""
LEAST_SEARCH_SECONDS = 0.25
"""Seconds of search where pricing has used up a limit by the clock: enough to place a strategy."""
NODE_SHARE = 0.2
"""The share of the limit that the search within one node may take where there are several."""
PROCESS_SHARE = 0.5
"""The share of what is left that one choice of what a process shares may take."""
TIE_TRIES = 3
"""Smaller sizes that are tried for a placement that is already proven."""


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
        found = fastest(space, attempts, limits)
        return replace(canonical(space, found, limits), attempts=attempts)
    if spec.objective == "fewest_gpus":
        target = spec.target_iteration_seconds
        return best_on_nodes(FewestGpus(space, attempts, limits, target), names)
    return best_on_nodes(Cheapest(RunPrice.of_job(job, space), attempts, limits), names)


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


def best_on_nodes(objective: NodeObjective, names: Sequence[str]) -> SearchResult:
    """The best placement under an objective that depends on the nodes."""
    while (nodes := objective.next()) is not None:
        part = nodes.space
        # Once a search has found something, no strategy is as good on fewer or other nodes.
        starts = attempted(part, names, objective.limits) if objective.best is None else []
        limits = objective.budget.next_share(nodes.share)
        found = fastest(part, starts, limits, nodes.cutoff_seconds)
        if objective.improves(nodes, found):
            objective.keep(found, canonical(part, found, objective.budget.next_share()))
    return objective.result()


def fastest(
    space: SearchSpace,
    attempts: Sequence[Attempt],
    limits: Limits,
    cutoff_seconds: float | None = None,
) -> SearchResult:
    """The shortest period, searched from the best of the attempts that is within the cutoff."""
    longest = inf if cutoff_seconds is None else cutoff_seconds
    placed = [a for a in attempts if a.selected is not None and period_of(a.selected) <= longest]
    start = min(placed, key=lambda a: period_of(a.selected), default=None)
    incumbent = None if start is None else start.selected
    found = solve(space, limits=limits, incumbent=incumbent, cutoff_seconds=cutoff_seconds)
    return replace(found, warm_start=None if start is None else start.strategy)


def solve(
    space: SearchSpace,
    *,
    limits: Limits,
    incumbent: Selected | None = None,
    cutoff_seconds: float | None = None,
) -> SearchResult:
    """The placement of the least period, within the limits' gap.

    With a gap only periods that are shorter by more than it are looked for, and the bound says so.
    Placements in one node have weight syncs of their own, and are searched by themselves.

    Args:
        space: What is searched; its rows may already be restricted.
        limits: How long, and how closely.
        incumbent: A known placement; only better ones are looked for.
        cutoff_seconds: Only shorter periods are looked for.
    """
    budget, best = Budget(limits), schedule_in_place(space, incumbent, limits)
    results: list[SearchResult] = []
    parts = [*space.nodes(), space]
    for part in parts:
        with budget.share(1.0 if part is space else NODE_SHARE / (len(parts) - 1)):
            result = _solve_processes(part, budget.rest(), best, cutoff_seconds)
            budget.take(result.deterministic_seconds)
        results.append(result)
        best = result.solution
    best = schedule_in_place(space, best, limits)
    bound = min(result.lower_bound for result in results)
    bound = bound if best is None else min(bound, best.timing.period)
    undecided = [result for result in results if not result.is_proven]
    weakest = min(undecided, key=lambda result: result.lower_bound, default=None)
    return SearchResult(
        best,
        bound,
        is_proven=all(result.is_proven for result in results),
        deterministic_seconds=sum(result.deterministic_seconds for result in results),
        objective_value=period_of(best),
        lower_bound_seconds=bound,
        options=sum(result.options for result in results),
        weak_side=None if weakest is None else weakest.weak_side,
    )


def _solve_processes(
    space: SearchSpace, limits: Limits, incumbent: Selected | None, cutoff_seconds: float | None
) -> SearchResult:
    """`_solve`; where models share a process, or generations an engine, for each of these."""
    if not space.tables.has_processes:
        return _solve(space, limits, incumbent, cutoff_seconds)
    choices, budget, best = ProcessSpaces(space), Budget(limits), incumbent
    results: list[SearchResult] = []
    while not budget.spent:
        limit = period_limit(best, cutoff_seconds, limits.gap)
        choice = choices.next(inf if limit is None else limit)
        if choice is None:
            break
        with budget.share(PROCESS_SHARE):
            result = _solve(choice.space, budget.rest(), best, cutoff_seconds)
            budget.take(result.deterministic_seconds)
        results.append(result)
        if result.solution is not None and result.solution is not best:
            best = choice.lift(result.solution)
    limit = period_limit(best, cutoff_seconds, limits.gap)
    open_sides = [(each.lower_bound, each.weak_side) for each in results if not each.is_proven]
    if choices.least_seconds < (inf if limit is None else limit):
        open_sides.append((choices.least_seconds, "with layouts that were not searched"))
    weakest = min(open_sides, key=itemgetter(0), default=(inf, None))
    bound = min(period_of(best) * (1.0 - limits.gap), weakest[0])
    if not space.problem.barrier:
        bound = max(bound - TICK_SECONDS, 0.0)  # as of one choice alone
    return SearchResult(
        best,
        bound,
        is_proven=not open_sides,
        deterministic_seconds=limits.deterministic_seconds - budget.left,
        options=sum(each.options for each in results),
        weak_side=weakest[1],
    )


def _solve(
    space: SearchSpace, limits: Limits, incumbent: Selected | None, cutoff_seconds: float | None
) -> SearchResult:
    """The best placement at one price for every weight sync, wherever it lies."""
    limit = period_limit(incumbent, cutoff_seconds, limits.gap)
    rows = space.rows
    if limit is not None:
        rows = rows_within(space.tables, space.problem, rows, limit)
    is_possible = space.is_complete(rows)
    part = space.restrict(rows) if is_possible else space
    budget = Budget(limits)
    shorter, first = partial(shorter_start, part), None
    if limit is not None and len(space.problem.calls) > MANY_CALLS:
        first = shorter(limit, budget)
    loop = BendersLoop(part, budget, first or incumbent, cutoff_seconds, shorter)
    if is_possible:
        loop.run()
    bound = float(min([loop.cutoff_seconds, *loop.open_bounds.values()]))
    if loop.open_bounds and space.problem.barrier:
        bound = max(bound, linear_bound(part, loop.limit))
    if not space.problem.barrier:
        # Only whole ticks were ruled out, and a cyclic period may lie between two.
        bound = max(bound - TICK_SECONDS, 0.0)
    # What is found is proven once more with the ticks of its own period.
    longest = slowest(part, part.rows) if loop.limit is None else loop.limit
    bound = max(bound - _hidden_seconds(space.problem, longest), 0.0)
    best = loop.best
    if best is not None and best is not incumbent:
        best = part.lift(best)
    return SearchResult(
        best,
        bound,
        is_proven=not loop.open_bounds or bound >= loop.cutoff_seconds,
        deterministic_seconds=limits.deterministic_seconds - loop.budget.left,
        options=loop.options,
        weak_side=min(loop.open_bounds, key=loop.open_bounds.__getitem__, default=None),
    )


def _hidden_seconds(problem: Problem, longest: float) -> float:
    """Seconds by which a period may be shorter than its whole ticks, where these are coarse.

    A call's seconds, its main phase and the times of its chunks are rounded up.
    """
    tick = longest / MOST_TICKS
    rounded = 3 * len(problem.calls) + len(problem.syncs) + len(problem.precedences)
    return tick * rounded if tick > TICK_SECONDS else 0.0


def canonical(space: SearchSpace, found: SearchResult, limits: Limits) -> SearchResult:
    """What was found; where it is proven, the canonical one of all that are equally fast."""
    if found.solution is None or not found.is_proven:
        return found
    selected = break_ties(space, found.solution, limits=limits)
    return replace(found, solution=selected, objective_value=selected.timing.period)


def break_ties(space: SearchSpace, best: Selected, *, limits: Limits) -> Selected:
    """The canonical one of the placements whose period is that of `best`, which is proven.

    It has fewer GPUs where a few tries show that its sizes can shrink, then the lowest ranges, then
    the first rows.
    """
    space = of_process(space, best)
    if space.lies_in_one_node(best):
        pool = int(space.tables.copies[0].pool[best.copy_rows[0] or 0])
        return _canonical(space.node(pool), best, limits)
    chosen = schedule_in_place(space, _canonical(space, best, limits), limits)
    assert chosen is not None
    return chosen


def _canonical(space: SearchSpace, best: Selected, limits: Limits) -> Selected:
    limit = best.timing.period
    budget = Budget(limits)
    sizes = _sizes(space, best)
    smaller = {
        copy: frozenset(
            (pool, int(count))
            for pool, largest in allowed
            for count in np.unique(space.tables.copies[copy].layouts.num_gpus)
            if count <= largest
        )
        for copy, allowed in sizes.items()
    }
    rows = rows_of_sizes(space, space.rows, smaller)
    part = space.restrict(rows_within(space.tables, space.problem, rows, limit))
    if not part.is_complete():
        return best
    master = MasterProblem(relaxed_problem(part, part.rows), cutoff_seconds=limit)
    master.minimise_gpus()
    for _ in range(TIE_TRIES):
        relaxed = master.best(budget)
        if relaxed.sizes is None or relaxed.sizes == sizes:
            break
        rows = rows_of_sizes(part, part.rows, relaxed.sizes)
        canonical = _canonical_on(part, rows, limit, budget)
        if canonical is not None:
            return part.lift(canonical)
        master.rule_out(relaxed.sizes)
    canonical = _canonical_on(part, rows_of_sizes(part, part.rows, sizes), limit, budget)
    return best if canonical is None else part.lift(canonical)


def _sizes(space: SearchSpace, selected: Selected) -> Sizes:
    """The size of every copy of a placement."""
    sizes: Sizes = {}
    for index, (copy, row) in enumerate(zip(space.tables.copies, selected.copy_rows, strict=True)):
        here = () if row is None else ((int(copy.pool[row]), int(copy.layouts.num_gpus[row])),)
        sizes[index] = frozenset(here)
    return sizes


def _canonical_on(space: SearchSpace, rows: Rows, limit: float, budget: Budget) -> Selected | None:
    """The placement on fixed sizes that order decides; None when they cannot hold the limit."""
    rows = rows_within(space.tables, space.problem, rows, limit)
    if not space.is_complete(rows):
        return None
    pruned = prune(space.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return None
    solution = canonical_solution(pruned.problem, limits=budget.rest(), period_seconds=limit)
    # A cyclic period may lie between two ticks, and the solver knows only the later one.
    if solution is None or solution.timing.period > limit * (1 + SLACK):
        return None
    return rows_of(pruned.problem, solution)
