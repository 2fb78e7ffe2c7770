"""Something better than a running plan, within a fraction of a second."""

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from planner.explain.contenders import contender
from planner.explain.factors import Factors
from planner.explain.solving import Solved, best_within, limits_of
from planner.explain.study import Narrowed, Study
from planner.replan.result import Correction, ReplanOptions
from planner.replan.situation import Situation
from planner.result import Plan
from planner.search.attempts import attempt
from planner.search.pruning import prune
from planner.search.search import Selected, complete, rows_of, search
from planner.search.sizes import SizeSearch, rows_of_sizes
from planner.search.solve import Budget, Limits, minimise_period
from planner.search.space import (
    Arena,
    Rows,
    all_rows,
    arena,
    least_period,
    rows_with_counts,
    rows_within,
)

MARGIN = 0.001
"""A plan that is better by a smaller share is no reason to move, and not looked for."""
NEAR_SHARE = 0.5
"""Of what is left of the limit: what the solver may take for one choice of sizes."""
ROUND_SECONDS = 0.01
"""Deterministic seconds that a choice of sizes is counted as besides the solver's: building it."""
FULL_SEARCH_FROM = 0.2
"""Deterministic seconds that must be left for an ordinary search to begin."""
NEAR_SIZES = 2
"""Sizes per copy that this search tries where GPUs were lost: the plan's own and the next below."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the search came to."""

    keep_seconds: float | None
    better: Selected | None
    """None: nothing is better than the running plan by more than the margin, or was found."""
    bound: float
    """Of the objective: seconds, price units or GPUs."""
    proven: bool


def floor_of(plan: Plan, options: ReplanOptions, corrections: list[Correction]) -> float:
    """Seconds below which the plan's own proof leaves nothing, whatever was measured or lost.

    Longer calls and fewer GPUs shorten no plan, and where every call takes at least r times as
    long, r ≤ 1, every plan does.
    """
    if options.add_nodes or plan.search.status == "given":
        return 0.0
    return min([1.0, *(each.ratio for each in corrections)]) * plan.lower_bound_seconds


def searched(
    now: Study, situation: Situation, factors: Factors, limits: Limits, floor: float
) -> Found:
    """The best plan under corrected prices, warm-started by the running one."""
    keep = None
    if situation.running is not None:
        keep = float(contender(situation.study, situation.running).periods([factors])[0])
    if now.job.spec.search.objective != "throughput":
        solved = best_within(now, inf, limits)
        return Found(keep, solved.selected, solved.lower_bound, solved.proven)
    if keep is not None and floor >= keep * (1 - MARGIN):
        return Found(keep, None, floor, True)
    best = None if keep is not None else _anywhere(now, limits)
    limit = _limit(keep, best, situation)
    budget = Budget(limits)
    near = _solved(now, _near(now, situation), limit, budget).selected
    if near is not None:
        best, limit = near, near.timing.period * (1 - MARGIN)
    quick = _by_sizes(now, limit, budget)
    if quick.selected is not None:
        best, limit = quick.selected, quick.selected.timing.period * (1 - MARGIN)
    bound, proven = min(quick.lower_bound, limit), quick.proven
    if not proven and budget.left > FULL_SEARCH_FROM:
        found = _within(now, all_rows(now.tables), limit, budget.rest())
        best = found.selected or best
        bound, proven = max(bound, min(found.lower_bound, limit)), found.proven
    if best is None and keep is None:
        solved = best_within(now, inf, limits_of(now))
        best, bound, proven = solved.selected, solved.lower_bound, solved.proven
    return Found(keep, best, max(bound, min(floor, limit)), proven or floor >= limit)


def _limit(keep: float | None, best: Selected | None, situation: Situation) -> float:
    """Seconds that a plan must not exceed to be worth looking for."""
    known = [keep, None if best is None else best.timing.period]
    least = min((seconds for seconds in known if seconds is not None), default=None)
    return situation.first_limit if least is None else least * (1 - MARGIN)


def _solved(now: Study, rows: Rows, limit: float, budget: Budget) -> Solved:
    """The best of a few rows, if it is within the limit and found in time."""
    whole = Arena(now.tables, now.problem, rows)
    if complete(whole, rows):
        rows = rows_within(now.tables, now.problem, rows, limit)
    if not complete(whole, rows):
        return Solved(None, limit, True)
    pruned = prune(whole.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return Solved(None, limit, True)
    some = max(budget.left * NEAR_SHARE, ROUND_SECONDS)
    outcome = minimise_period(
        pruned.problem,
        limits=replace(budget.limits, deterministic_seconds=some),
        horizon_seconds=limit,
    )
    budget.take(outcome.deterministic_seconds + ROUND_SECONDS)
    selected = None if outcome.solution is None else rows_of(pruned.problem, outcome.solution)
    return Solved(selected, outcome.lower_bound_seconds, outcome.proven)


def _by_sizes(now: Study, limit: float, budget: Budget) -> Solved:
    """The sizes of the least relaxed period, solved in turn until one holds the limit.

    The ordinary search also widens every cut, which pays off in long searches alone.
    """
    rows = all_rows(now.tables)
    whole = Arena(now.tables, now.problem, rows)
    if complete(whole, rows):
        rows = rows_within(now.tables, now.problem, rows, limit)
    if not complete(whole, rows):
        return Solved(None, limit, True)
    few = Narrowed.of(now, rows)
    part = arena(few.study.tables, few.study.problem)
    sizes = SizeSearch(part, part.rows, horizon_seconds=limit)
    sizes.minimise_period()
    bound = least_period(part.tables, part.problem, part.rows) or 0.0
    open_bound = inf  # of sizes that are ruled out although the limit ended their search
    while not budget.spent:
        relaxed = sizes.best(budget)
        if relaxed.sizes is None:
            bound = min(limit if relaxed.proven else relaxed.bound_seconds, open_bound)
            return Solved(None, bound, relaxed.proven and open_bound == inf)
        bound = relaxed.bound_seconds
        budget.take(ROUND_SECONDS)
        rows = rows_of_sizes(part, part.rows, relaxed.sizes)
        found = _solved(few.study, rows, limit, budget)
        if not found.proven:
            open_bound = min(open_bound, max(found.lower_bound, bound))
        if found.selected is not None:
            return Solved(few.original(found.selected), min(bound, open_bound), False)
        sizes.rule_out(relaxed.sizes)
    return Solved(None, min(bound, open_bound), False)


def _within(now: Study, rows: Rows, limit: float, limits: Limits) -> Solved:
    """The best of some rows within a limit; what cannot hold it is taken away first."""
    whole = Arena(now.tables, now.problem, rows)
    if complete(whole, rows):
        rows = rows_within(now.tables, now.problem, rows, limit)
    if not complete(whole, rows):
        return Solved(None, limit, True)
    few = Narrowed.of(now, rows)
    part = arena(few.study.tables, few.study.problem)
    found = search(part, limits=limits, incumbent=None, horizon_seconds=limit)
    selected = None if found.selected is None else few.original(found.selected)
    return Solved(selected, found.lower_bound_seconds, found.proven)


def _anywhere(now: Study, limits: Limits) -> Selected | None:
    """Some placement, at once: everything on the largest range that there is."""
    largest = {int(copy.layouts.num_gpus.max()) for copy in now.tables.copies if len(copy)}
    few = Narrowed.of(now, rows_with_counts(now.tables, largest))
    (tried,) = attempt(arena(few.study.tables, few.study.problem), ["colocate_all"], limits=limits)
    return None if tried.selected is None else few.original(tried.selected)


def _near(now: Study, situation: Situation) -> Rows:
    """Ranges as large as the running plan's; where GPUs were lost, also a little smaller."""
    copies = []
    for copy in now.tables.copies:
        planned = situation.sizes.get(copy.id)
        if planned is None:
            copies.append(np.zeros(len(copy), dtype=bool))
            continue
        pool = next(i for i, p in enumerate(now.problem.pools) if p.name == planned[0])
        fits = (copy.pool == pool) & (copy.layouts.num_gpus <= planned[1])
        tried = 1 if situation.running is not None else NEAR_SIZES
        counts = np.unique(copy.layouts.num_gpus[fits])[-tried:]
        copies.append(fits & np.isin(copy.layouts.num_gpus, counts))
    return Rows(copies, [copies[table.copy][table.copy_row] for table in now.tables.calls])
