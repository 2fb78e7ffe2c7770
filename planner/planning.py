"""The planner's front door: plan a job, price a placement, compare strategies."""

import time
from collections.abc import Callable

from automap.planner.assembly.comparison import strategy
from automap.planner.assembly.given import scheduled
from automap.planner.assembly.plan import placed, placement_of, plan_from, sound, value_of
from automap.planner.assembly.proof import why_stopped
from automap.planner.assembly.staleness import useless_staleness
from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, Reason, SpecError
from automap.planner.explanation.robust import least_regret
from automap.planner.explanation.study import Study
from automap.planner.infeasible.reasons import explain_infeasible, explain_strategy
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Placement, Plan, SearchReport, Strategy
from automap.planner.search import (
    QUICK,
    STARTS,
    STRATEGIES,
    Attempt,
    Limits,
    SearchResult,
    SearchSpace,
    StrategyInfo,
    Tables,
    attempted,
    best_placement,
    describe_space,
    limits_of,
    price_candidates,
    simplified,
)
from automap.planner.spec import JobSpec, StrategyName

__all__ = ["QUICK", "STRATEGIES", "StrategyInfo", "compare", "estimate", "make_plan"]

LEAST_PRICING_SECONDS = 0.5
"""Seconds for pricing where the limit by the clock is shorter: enough for a job on some nodes."""
PLACED = "the placement of one named strategy only, with its shortest schedule"


def make_plan(
    spec: JobSpec, *, explain: Callable[[Job], list[Reason]] = explain_infeasible
) -> Plan:
    """The best placement of a job, its schedule, and how good it provably is.

    With `search.strategy` it is that strategy's placement, of which nothing is proven. `explain`
    says why no placement fits.

    Raises:
        SpecError: the spec contradicts itself or names something unknown.
        InfeasibleError: no placement fits, or the strategy has none; the reasons say why.
        NoSolutionInTimeError: the limit ended the search before it found anything.
    """
    started = time.perf_counter()
    job = resolve(spec)
    tables = price_candidates(job, deadline=end_of_pricing(job, started))
    seconds = time.perf_counter() - started
    return make_plan_of(job, tables, pricing_seconds=seconds, explain=explain)


def end_of_pricing(job: Job, began: float) -> float:
    """Reading of time.perf_counter after which no candidate is priced any more."""
    return limits_of(job, began, least_seconds=LEAST_PRICING_SECONDS).deadline


def make_plan_of(
    job: Job,
    tables: Tables,
    *,
    pricing_seconds: float,
    explain: Callable[[Job], list[Reason]] = explain_infeasible,
) -> Plan:
    """make_plan of a job that is priced already.

    The tables may also be those of the job on a larger cluster.
    """
    priced = time.perf_counter()
    if job.spec.search.strategy is not None:
        return _placed_by(job.spec.search.strategy, job, tables, pricing_seconds)
    space, began = SearchSpace.of(job, tables), priced - pricing_seconds
    best = best_placement(job, space, STARTS, began=began)
    if best.solution is None and not best.is_proven:
        raise NoSolutionInTimeError(best.lower_bound_seconds)
    if best.solution is None:
        raise InfeasibleError(explain(job))
    best = simplified(job, space, best, began=began)
    plan = plan_of(job, tables, best, pricing_seconds=pricing_seconds, searched_since=priced)
    alternatives = [strategy(job, tables, plan, each) for each in best.attempts]
    told = useless_staleness(job, plan)
    warnings = [*plan.warnings, told] if told else plan.warnings
    return sound(job, plan.model_copy(update={"alternatives": alternatives, "warnings": warnings}))


def plan_of(
    job: Job,
    tables: Tables,
    best: SearchResult,
    *,
    pricing_seconds: float,
    searched_since: float,
    part: Job | None = None,
) -> Plan:
    """The plan that a search came to, as yet unchecked and with no strategies beside it.

    `part` is the plan's own job where it is not that of the tables but on a part of its cluster.
    """
    assert best.solution is not None
    chosen, robust = best.solution, None
    if job.spec.search.robust and part is None:
        chosen, robust = least_regret(Study(job, SearchSpace.of(job, tables)), chosen)
    placement = placement_of(job, tables, chosen)
    job = part or job
    solved = time.perf_counter()
    value = best.objective_value
    if robust is not None:
        value = value_of(job, placement, chosen.timing.period)
    is_proven = best.is_proven and robust is None
    # Within a gap that the spec allows a plan may be the best, but nobody has looked.
    within_gap = is_proven and job.spec.search.optimality_gap > 0
    report = SearchReport(
        status="optimal" if is_proven and not (within_gap or best.is_simplified) else "feasible",
        within_gap=within_gap,
        within_tolerance=job.simplicity_tolerance if best.is_simplified else None,
        objective=job.spec.search.objective,
        objective_value=value,
        lower_bound=best.lower_bound,
        pricing_seconds=pricing_seconds,
        solving_seconds=solved - searched_since,
        candidates_priced=tables.num_priced,
        options=best.options,
        warm_start=best.warm_start,
        robust=robust,
        space=describe_space(job),
    )
    stopped = why_stopped(job.spec, report, nominal_proven=best.is_proven, weak_side=best.weak_side)
    report = report.model_copy(update={"stopped": stopped})
    return plan_from(job, placement, chosen.timing, report, best.lower_bound_seconds)


def _placed_by(name: StrategyName, job: Job, tables: Tables, pricing_seconds: float) -> Plan:
    """The plan that a named strategy makes."""
    priced = time.perf_counter()
    (attempt,) = _attempts(job, tables, [name])
    if attempt.selected is None:
        others = _attempts(job, tables, [other for other in STARTS if other != name])
        raise InfeasibleError(explain_strategy(job, tables, attempt, others))
    placement = placement_of(job, tables, attempt.selected)
    solved = time.perf_counter()
    timing = attempt.selected.timing
    value = value_of(job, placement, timing.period)
    report = SearchReport(
        status="given",
        strategy=name,
        objective=job.spec.search.objective,
        objective_value=value,
        lower_bound=value,
        pricing_seconds=pricing_seconds,
        solving_seconds=solved - priced,
        candidates_priced=tables.num_priced,
        options=0,
        stopped="; ".join(
            filter(None, (f"placed as {name} does: {STRATEGIES[name].reference}", attempt.note))
        ),
        space=PLACED,
    )
    return sound(job, plan_from(job, placement, timing, report, timing.period))


def _attempts(job: Job, tables: Tables, names: list[str]) -> list[Attempt]:
    """The named strategies on all sizes of ranges, within the job's limits."""
    limits = Limits.within(job.spec.search.time_limit_seconds, seed=job.spec.search.seed)
    return attempted(SearchSpace.of(job, tables), names, limits, most_counts=None)


def estimate(spec: JobSpec, placement: Placement | Plan) -> Plan:
    """What a placement of the caller's own, or a plan's, would cost, by the same model.

    Raises:
        SpecError: the spec or the placement contradicts itself, or one the other.
        InfeasibleError: the placement does not fit; the reasons name the calls and bytes.
    """
    started = time.perf_counter()
    job = resolve(spec)
    if isinstance(placement, Plan):
        placement = placement.placement()
    ordered, timing = scheduled(job, placement)
    return placed(job, ordered, timing, pricing_seconds=time.perf_counter() - started)


def compare(spec: JobSpec, plan: Plan, strategies: list[str]) -> list[Strategy]:
    """What the named strategies would cost beside a plan of the same spec.

    Raises:
        SpecError: a name is not one of STRATEGIES; also as make_plan.
    """
    if unknown := [name for name in strategies if name not in STRATEGIES]:
        raise SpecError(
            "strategies", f"no strategy is called {unknown[0]!r}", remedy=", ".join(STRATEGIES)
        )
    job = resolve(spec)
    tables = price_candidates(job)
    return [strategy(job, tables, plan, each) for each in _attempts(job, tables, strategies)]
