"""Something better than a running plan, within a fraction of a second."""

from dataclasses import dataclass, replace
from math import inf

from automap.planner.assembly.proof import bound_is_proven
from automap.planner.explanation.contenders import contender
from automap.planner.explanation.factors import Factors
from automap.planner.explanation.solving import best_within, limits_of
from automap.planner.explanation.study import Study
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.replanning.cluster_state import ClusterState
from automap.planner.replanning.result import CallCorrection
from automap.planner.search import Budget, Limits, Proven, Selected, solve, solve_ascending

MARGIN = 0.001
"""A plan that is better by a smaller share is no reason to move, and not looked for."""
FULL_SEARCH_FROM = 0.2
"""Deterministic seconds that must be left for an ordinary search to begin."""
LONGER = (3.0, 9.0)
"""Times the limit of a search that found nothing, where the running plan cannot go on: some plan
soon is worth more than the limit then."""


@dataclass(frozen=True, slots=True)
class WarmResult(Proven[Selected]):
    """What is better than the running plan by more than the margin, if anything was found."""

    keep_seconds: float | None = None
    """An iteration of the running plan; None: it cannot go on."""


def floor_of(plan: Plan, state: ClusterState, corrections: list[CallCorrection]) -> float:
    """Seconds below which the plan's own proof leaves nothing, whatever was measured or lost.

    Longer calls and fewer GPUs shorten no plan, and where every call takes at least r times as
    long, r ≤ 1, every plan does. That needs a proof that is ours, over all that is searched now.
    """
    if not state.candidates_proven or not bound_is_proven(resolve(plan.spec), plan):
        return 0.0
    return min([1.0, *(each.ratio for each in corrections)]) * plan.lower_bound_seconds


def search_warm(
    now: Study, state: ClusterState, factors: Factors, limits: Limits, floor: float
) -> WarmResult:
    """The best plan under corrected prices, warm-started by the running one."""
    keep = None
    if state.running is not None:
        keep = float(contender(state.study, state.running).periods([factors])[0])
    if now.job.spec.search.objective != "throughput":
        return _result(best_within(now, inf, limits), keep)
    if keep is not None and floor >= keep * (1 - MARGIN):
        return WarmResult(None, floor, is_proven=True, keep_seconds=keep)
    budget = Budget(limits)
    limit = state.first_limit if keep is None else keep * (1 - MARGIN)
    # Without any plan a placement on the sizes that were found is worth as much again.
    placing = Budget(limits) if keep is None else None
    quick = solve_ascending(
        now.space, cutoff_seconds=limit, floor=floor, budget=budget, placing=placing
    )
    best, bound, proven = quick.solution, quick.lower_bound, quick.is_proven
    if best is not None:
        limit = best.timing.period * (1 - MARGIN)
        bound, proven = min(bound, limit), bound >= limit
    if not proven and budget.left > FULL_SEARCH_FROM:
        found = _within(now, limit, budget.rest())
        best = found.solution or best
        bound, proven = max(bound, min(found.lower_bound, limit)), found.is_proven
    if best is None and keep is None and not proven:
        best, bound = _soon(now, limit, bound, limits)
    if best is None and keep is None:
        return _result(best_within(now, inf, limits_of(now)), keep)
    return WarmResult(best, bound, is_proven=proven, keep_seconds=keep)


def _result(found: Proven[Selected], keep: float | None) -> WarmResult:
    return WarmResult(
        found.solution, found.lower_bound, is_proven=found.is_proven, keep_seconds=keep
    )


def _within(now: Study, limit: float, limits: Limits) -> Proven[Selected]:
    """The best within a limit; what cannot hold it is taken away first."""
    few = now.space.within(limit)
    if few is None:
        return Proven(None, limit, is_proven=True)
    found = solve(few, limits=limits, cutoff_seconds=limit)
    return replace(found, solution=None if found.solution is None else few.lift(found.solution))


def _soon(now: Study, limit: float, bound: float, limits: Limits) -> tuple[Selected | None, float]:
    """Some plan within the limit, after all, and what is proven."""
    for times in LONGER:
        more = replace(limits, deterministic_seconds=times * limits.deterministic_seconds)
        found = solve_ascending(now.space, cutoff_seconds=limit, floor=bound, budget=Budget(more))
        bound = found.lower_bound
        if found.solution is not None:
            return found.solution, bound
    return None, bound
