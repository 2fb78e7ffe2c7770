"""The planner's front door: plan a job, price a placement, compare strategies."""

import time
from collections.abc import Callable
from typing import Literal

from automap.planner.assembly.comparison import strategy
from automap.planner.assembly.given import scheduled
from automap.planner.assembly.placement import placement_of
from automap.planner.assembly.plan import placed, plan_from, relative_gap, sound, value_of
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
    return sound(job, plan.model_copy(update={"alternatives": alternatives}))


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
    status = _status(job.spec, best, robust=robust is not None)
    report = SearchReport(
        status=status,
        within_gap=_ended_at_gap(job.spec, best, robust=robust is not None),
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


def _status(spec: JobSpec, best: SearchResult, *, robust: bool) -> Literal["optimal", "feasible"]:
    """Within a gap that the spec allows a plan may be the best, but nobody has looked."""
    if best.is_simplified or _ended_at_gap(spec, best, robust=robust):
        return "feasible"
    return "optimal" if best.is_proven and not robust else "feasible"


def _ended_at_gap(spec: JobSpec, best: SearchResult, *, robust: bool) -> bool:
    return best.is_proven and not robust and spec.search.optimality_gap > 0


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


def estimate(spec: JobSpec, placement: Placement) -> Plan:
    """What a placement of the caller's own would cost, by the same model.

    Raises:
        SpecError: the spec or the placement contradicts itself, or one the other.
        InfeasibleError: the placement does not fit; the reasons name the calls and bytes.
    """
    started = time.perf_counter()
    job = resolve(spec)
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


def why_stopped(
    spec: JobSpec, report: SearchReport, *, nominal_proven: bool, weak_side: str | None = None
) -> str:
    """Why the search ended: only a proof, the gap or the limit ends it.

    `weak_side` says of which placements least is proven.
    """
    if report.status == "optimal":
        return "the search is complete: no plan of the searched space is better"
    gap, robust = relative_gap(report), report.robust
    if report.within_tolerance is not None:
        return (
            f"the search is complete, and a simpler plan was chosen than the best, which is "
            f"{100 * gap:.2g} % better: search.simplicity_tolerance"
        )
    if report.within_gap:
        return (
            f"stopped at search.optimality_gap: no plan of the searched space is more than "
            f"{100 * gap:.2g} % better"
        )
    if robust is not None:
        told = (
            f"robust: the largest regret over {robust.scenarios} scenarios is "
            f"{100 * robust.worst_regret:.2g} %, no plan has less than "
            f"{100 * robust.lower_bound:.2g} %; if all estimates are right it takes "
            f"{100 * robust.nominal_loss:.2g} % more than the best plan"
            + (" known" if not nominal_proven else "")
        )
        limit = f"{spec.search.time_limit_seconds:g} s"
        if not nominal_proven:
            told += f"; the search for the best plan stopped at the time limit of {limit}"
        if robust.unproven:
            told += f"; {robust.unproven} of the searches for regret stopped at their limits"
        return told
    end = f"with a gap of {100 * gap:.2g} %" if gap else "before the proof was complete"
    least = f"; least is proven of placements {weak_side}" if weak_side else ""
    return f"stopped at the time limit of {spec.search.time_limit_seconds:g} s {end}{least}"
