"""The plan of least worst-case regret over the intervals of the estimates.

Scenarios s are the corners of the intervals and the estimates themselves; V_s is the best objective
under the seconds of s, P_p(s) that of plan p, and r(p, s) = P_p(s) / V_s − 1 its regret. Wanted is
min over p of max over s of r(p, s). Plans are generated as in a matrix game: over the plans so far
a linear program gives the weights w under which the best of them is worst, and a search finds the
plan that is best under the seconds mixed with weights w_s / V_s.

That search is also a bound. With its order kept, a plan's period is a maximum of sums of seconds:
convex and homogeneous in them. With d_s the seconds of s, every plan has
max_s P_p(s)/V_s ≥ Σ w_s P_p(s)/V_s ≥ P_p(Σ (w_s/V_s) d_s) ≥ V(Σ (w_s/V_s) d_s).
"""

from dataclasses import replace

import numpy as np
from ortools.linear_solver import pywraplp

from automap.planner.errors import SpecError
from automap.planner.explanation.contenders import Contender
from automap.planner.explanation.factors import Factors
from automap.planner.explanation.regret import best_values, corners, factors_of, groups_of
from automap.planner.explanation.solving import Contenders, limits_of
from automap.planner.explanation.study import Study
from automap.planner.layout import FloatArray
from automap.planner.plan.types import RobustReport
from automap.planner.search import Budget, Selected

MARGIN = 0.001
"""The share to which every scenario's best objective is known, and by which a search of mixed
scenarios has to find better."""
MOST_ROUNDS = 12
SHARE_PER_SEARCH = 0.1
"""The share of the job's time limit that each search may take; all together may take the whole."""
SCENARIOS_SHARE = 0.7
"""The share of all searches' time that finding the scenarios' best objectives may take; the mixed
searches have the rest."""
ROUNDING_SECONDS = 3e-6
"""How much rounding may lengthen a scaled price: the call's, its chunk's, and that of the lag."""


def least_regret(study: Study, nominal: Selected) -> tuple[Selected, RobustReport]:
    """The plan of least worst-case regret, starting from the one that is best by estimate.

    Raises:
        SpecError: a plan costs nothing.
    """
    spec = study.job.spec.search
    seconds = SHARE_PER_SEARCH * spec.time_limit_seconds
    groups = groups_of(study)
    ends = corners(groups, seed=spec.seed)
    logs = np.concatenate([np.zeros((1, len(groups))), ends])
    scenarios = [factors_of(study, groups, each) for each in logs]
    contenders = Contenders(
        study, nominal, budget=Budget(limits_of(study, spec.time_limit_seconds))
    )
    with contenders.share(SCENARIOS_SHARE):
        best = best_values(contenders, scenarios, margin=MARGIN, search_seconds=seconds)
    if best.min() <= 0:
        raise SpecError(
            "search.robust",
            "the best plan costs nothing, so regret is no share of it",
            remedy="give price_per_gpu_hour, or use objective: throughput",
        )
    bound, rounds = 0.0, 0
    while rounds < MOST_ROUNDS:
        rounds += 1
        # A mixed search may have found what is better in a scenario too.
        best = np.minimum(best, contenders.least_values(scenarios))
        ratios = _ratios(contenders, scenarios, best)
        weights = _worst_weights(ratios)
        mixed = _mixed(scenarios, weights * best[0] / best)
        known = float(contenders.least_values([mixed])[0])
        solved = contenders.challenge(mixed, known * (1 - MARGIN), limits_of(study, seconds))
        rounding = ROUNDING_SECONDS * (len(study.problem.calls) + len(study.problem.syncs))
        least = min(solved.lower_bound, known) - rounding * best[0] / known
        bound = max(bound, least / best[0] - 1)
        if solved.solution is None:
            break
    best = np.minimum(best, contenders.least_values(scenarios))
    ratios = _ratios(contenders, scenarios, best)
    worst = ratios.max(axis=1)
    # Of equals the one that loses least when all estimates are right.
    chosen = int(np.lexsort((ratios[:, 0], np.round(worst, 9)))[0])
    report = RobustReport(
        worst_regret=float(worst[chosen] - 1),
        lower_bound=float(min(max(bound, 0.0), worst[chosen] - 1)),
        nominal_regret=float(worst[0] - 1),
        nominal_loss=float(ratios[chosen, 0] - 1),
        scenarios=len(scenarios),
        candidates=len(ratios),
        rounds=rounds,
        margin=MARGIN,
        unproven=contenders.unproven,
    )
    placed = _candidates(contenders)[chosen].selected
    # With its order, when all estimates are right.
    return replace(placed, timing=study.space.timed(placed)), report


def _candidates(contenders: Contenders) -> list[Contender]:
    return [*contenders.orders, *contenders.others]


def _ratios(contenders: Contenders, scenarios: list[Factors], best: FloatArray) -> FloatArray:
    """[plans, scenarios] objective ÷ the best one's; the nominal plan first."""
    table = [contenders.values_of(each, scenarios) for each in _candidates(contenders)]
    return np.asarray(np.maximum(np.array(table) / best, 1.0))


def _worst_weights(ratios: FloatArray) -> FloatArray:
    """[scenarios] weights under which the best plan's weighted ratio is largest."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    weights = [solver.NumVar(0.0, 1.0, "") for _ in range(ratios.shape[1])]
    value = solver.NumVar(0.0, solver.infinity(), "")
    solver.Add(solver.Sum(weights) == 1.0)
    for row in ratios.tolist():
        solver.Add(solver.Sum([r * w for r, w in zip(row, weights, strict=True)]) >= value)
    solver.Maximize(value)
    status = solver.Solve()
    assert status == pywraplp.Solver.OPTIMAL, "a matrix game always has a solution"
    found = np.maximum([weight.solution_value() for weight in weights], 0.0)
    return np.asarray(found / found.sum())


def _mixed(scenarios: list[Factors], weights: FloatArray) -> Factors:
    """The weighted sum of the scenarios' seconds."""
    pairs = list(zip(scenarios, weights.tolist(), strict=True))
    parts = zip(*([weight * part for part in each.parts()] for each, weight in pairs), strict=True)
    return Factors(*(np.asarray(sum(part)) for part in parts))
