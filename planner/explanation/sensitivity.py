"""How wrong each estimate may be before another plan wins.

For one call c and a factor f, all options' seconds of c are multiplied by f: a systematic error.
P(f) is the plan's objective then (its placement, with its best settings and order), V(f) the best
of all plans. The threshold is the f nearest to 1 with V(f) < (1 − margin) · P(f). It is found as in
parametric programming: placements that are known give the nearest f at which one of them wins, an
upper bound; a search there either proves that nothing else wins by more than the margin, or finds
a placement that wins earlier.

Between 1 and the threshold V is bounded too, as more seconds never shorten a plan and f times the
seconds of everything lengthen it f times: V does not fall and V(f)/f does not rise.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import exp

import numpy as np

from automap.planner.assembly.parts import pricing_of
from automap.planner.assembly.proof import bound_is_proven
from automap.planner.cost.intervals import SPREADS
from automap.planner.explanation.factors import Factors
from automap.planner.explanation.result import Sensitivity, Threshold
from automap.planner.explanation.solving import Contenders, limits_of
from automap.planner.explanation.study import Study
from automap.planner.explanation.text import difference
from automap.planner.layout import FloatArray
from automap.planner.plan.types import Plan
from automap.planner.search import Selected

FURTHEST = 4.0
"""Errors are looked for up to four times as long, and down to a quarter."""
GRID = 96
BISECTIONS = 30
MOST_SOLVES = 6
"""Per threshold; each finds a placement that wins earlier than all before."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One estimate: a call, a reshard, or a weight sync."""

    name: str
    kind: str
    seconds: float
    spread: float
    factors: Callable[[float], Factors]


def sensitivities(
    contenders: Contenders, plan: Plan, *, margin: float, search_seconds: float
) -> list[Sensitivity]:
    """For every estimate of the plan the errors at which another plan wins."""
    least = _least_value(contenders, plan, search_seconds)
    return [
        Sensitivity.model_validate(
            {
                "subject": subject.name,
                "kind": subject.kind,
                "seconds": subject.seconds,
                "spread": subject.spread,
                "more": threshold(
                    contenders, plan, subject, FURTHEST, margin, search_seconds, least
                ),
                "less": threshold(
                    contenders, plan, subject, 1 / FURTHEST, margin, search_seconds, least
                ),
            }
        )
        for subject in subjects(contenders.study, contenders.plan, plan)
    ]


def _least_value(contenders: Contenders, plan: Plan, search_seconds: float) -> float:
    """No plan has a lower objective if all estimates are right: by the plan's proof, or a new one.

    The plan of a strategy or of a caller has none, and that of another version none to trust.
    """
    if plan.search.objective_value == 0 or bound_is_proven(contenders.study.job, plan):
        return plan.search.lower_bound
    right = Factors.ones(contenders.study)
    limits = limits_of(contenders.study, search_seconds)
    own = float(contenders.plan_values([right])[0])
    return min(contenders.challenge(right, own, limits).lower_bound, own)


def subjects(study: Study, selected: Selected, plan: Plan) -> Iterator[Subject]:
    """Every call, reshard and weight sync of the plan."""
    calls = {call.id: call for call in plan.calls}
    pricing = pricing_of(study.job, plan.placement().copies)
    moving, syncing = (
        exp(SPREADS[kind]) - 1 for kind in (pricing.transition_kind, pricing.transfer_kind)
    )
    for index, call in enumerate(study.job.dataflow.calls):
        planned = calls[call.id]
        seconds = planned.end_seconds - planned.start_seconds
        interval = planned.seconds_interval
        spread = 0.0 if interval is None or not seconds else interval.high / seconds - 1
        yield Subject(call.id, "call", seconds, spread, partial(_of_call, study, index))
        moved = planned.seconds_by_part.transition
        if call.kind == "generate" and moved > 0:
            factors = partial(_of_reshard, study, index)
            yield Subject(f"{call.id} reshard", "reshard", moved, moving, factors)
    for sync in study.problem.syncs:
        if selected.copy_rows[sync.shadow] is not None:
            target = study.tables.copies[sync.shadow].id
            done = next(s for s in plan.transitions if s.target_copy == target)
            seconds = done.end_seconds - done.start_seconds
            factors = partial(_of_sync, study, (sync.home, sync.shadow))
            yield Subject(f"{done.role}.sync", "weight_sync", seconds, syncing, factors)


def _of_call(study: Study, index: int, factor: float) -> Factors:
    """A call takes so many times as long in every option, all its parts."""
    factors = Factors.ones(study)
    factors.work[index] = factors.transition[index] = factors.host[index] = factor
    return factors


def _of_reshard(study: Study, index: int, factor: float) -> Factors:
    factors = Factors.ones(study)
    factors.transition[index] = factor
    return factors


def _of_sync(study: Study, copies: tuple[int, int], factor: float) -> Factors:
    factors = Factors.ones(study)
    factors.sync[list(copies)] = factor
    return factors


def threshold(
    contenders: Contenders,
    plan: Plan,
    subject: Subject,
    end: float,
    margin: float,
    search_seconds: float,
    least: float | None = None,
) -> Threshold:
    """The factor nearest to 1, towards `end`, at which another plan wins.

    `least` bounds all plans' objective if every estimate is right; None: found here.
    """
    if least is None:
        least = _least_value(contenders, plan, search_seconds)
    own = plan.search.objective_value
    if subject.seconds == 0 or own == 0:  # nothing changes, or nothing is better
        return Threshold(
            error=None,
            searched=end - 1,
            proven=True,
            excluded_share=max(1 - least / own, 0.0) if own else 0.0,
            plan_value=own,
        )
    share = 1 - margin
    proven, bounds = False, [(1.0, least)]
    for _ in range(MOST_SOLVES):
        factor, wins = _nearest_win(contenders, subject, end, share)
        at = subject.factors(factor)
        if contenders.refit(at):  # the same placement does better with other settings
            continue
        value = float(contenders.plan_values([at])[0])
        # What only ties with the nearest winner known is no news.
        limit = share * value - (1e-6 if wins else 0.0)
        # Large errors of one call leave few reasons in common, and often another plan wins.
        limits = limits_of(contenders.study, search_seconds)
        solved = contenders.challenge(at, limit, limits)
        if solved.solution is None:
            bounds.append((factor, min(limit, solved.lower_bound)))
            proven = solved.is_proven
            break
        bounds.append((factor, solved.lower_bound))
    factor, wins = _nearest_win(contenders, subject, end, share)
    at = subject.factors(factor)
    value = float(contenders.plan_values([at])[0])
    found, winners = contenders.best_values([at])
    winner = winners[0] if wins else None
    return Threshold(
        error=factor - 1 if wins else None,
        searched=end - 1,
        proven=proven,
        excluded_share=_excluded_share(contenders, subject, factor, bounds),
        plan_value=value,
        winner_value=None if winner is None else float(found[0]),
        winner=""
        if winner is None
        else difference(
            plan.placement(), contenders.study.placement(winner.selected), positions=False
        ),
    )


def _nearest_win(
    contenders: Contenders, subject: Subject, end: float, share: float
) -> tuple[float, bool]:
    """(the factor nearest to 1 at which a known placement wins, True); else (end, False)."""
    grid = end ** np.linspace(0.0, 1.0, GRID + 1)
    wins = _wins(contenders, subject, grid, share)
    if not wins.any():
        return end, False
    first = int(np.argmax(wins))
    if first == 0:
        return 1.0, True
    low, high = float(grid[first - 1]), float(grid[first])
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        if _wins(contenders, subject, np.array([middle]), share)[0]:
            high = middle
        else:
            low = middle
    return high, True


def _wins(contenders: Contenders, subject: Subject, grid: FloatArray, share: float) -> np.ndarray:
    factors = [subject.factors(float(factor)) for factor in grid]
    found, _ = contenders.best_values(factors)
    return np.asarray(found < share * contenders.plan_values(factors))


def _excluded_share(
    contenders: Contenders, subject: Subject, factor: float, bounds: list[tuple[float, float]]
) -> float:
    """By how much any plan may be better than this one at an error between 0 and the factor's.

    `bounds` are lower bounds on V, each at the factor at which it was proven.
    """
    grid = factor ** np.linspace(0.0, 1.0, GRID + 1)
    own = contenders.plan_values([subject.factors(float(f)) for f in grid])
    least = np.max([bound * np.minimum(grid / at, 1.0) for at, bound in bounds], axis=0)
    return float(np.max(np.maximum(1 - least / own, 0.0)))
