"""The planner's front door: plan a job, price a placement, compare strategies."""

import math
import time
from collections.abc import Callable
from typing import Literal

from planner.assembly import (
    PricedCall,
    PricedCopy,
    call_plans,
    copy_plans,
    placement_of,
    price_call,
    price_copy,
    prices_of,
    pricing_of,
    weight_syncs,
)
from planner.assumptions import assumptions
from planner.check.check import violations
from planner.comparison import strategy
from planner.cost.pricing import Pricing
from planner.cost.streaming import TAILS
from planner.errors import InfeasibleError, NoSolutionInTimeError, Reason
from planner.explain.robust import least_regret
from planner.explain.study import Study
from planner.infeasible import explain_infeasible, explain_strategy
from planner.intervals import with_intervals
from planner.job import Job
from planner.objective import objective_value
from planner.payment import paid_gpus, price_per_second
from planner.placements import scheduled
from planner.proof import proof_of
from planner.provenance import provenance_of
from planner.resolve import resolve
from planner.result import Placement, Plan, SearchReport, Strategy
from planner.run_time import run_seconds
from planner.search import enumeration
from planner.search.attempts import Attempt
from planner.search.baselines import QUICK, STARTS, STRATEGIES, StrategyInfo
from planner.search.candidates import price
from planner.search.objectives import Best, attempted, best_placement
from planner.search.problem import Timing
from planner.search.runs import wanted_tails
from planner.search.solve import Limits
from planner.search.space import arena, skeleton
from planner.search.tables import Tables
from planner.spec import JobSpec, StrategyName

__all__ = ["QUICK", "STRATEGIES", "StrategyInfo", "compare", "estimate", "make_plan"]

GIVEN = "the given placement only; the order of its calls on shared GPUs is kept"
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
    tables = price(job)
    seconds = time.perf_counter() - started
    return make_plan_of(job, tables, pricing_seconds=seconds, explain=explain)


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
    best = best_placement(job, tables, skeleton(job, tables), STARTS)
    if best.selected is None and not best.proven:
        raise NoSolutionInTimeError(best.lower_bound_seconds)
    if best.selected is None:
        raise InfeasibleError(explain(job))
    plan = plan_of(job, tables, best, pricing_seconds=pricing_seconds, searched_since=priced)
    alternatives = [strategy(job, tables, plan, each) for each in best.attempts]
    return sound(job, plan.model_copy(update={"alternatives": alternatives}))


def plan_of(
    job: Job,
    tables: Tables,
    best: Best,
    *,
    pricing_seconds: float,
    searched_since: float,
    part: Job | None = None,
) -> Plan:
    """The plan that a search came to, as yet unchecked and with no strategies beside it.

    `part` is the plan's own job where it is not that of the tables but on a part of its cluster.
    """
    assert best.selected is not None
    chosen, robust = best.selected, None
    if job.spec.search.robust and part is None:
        chosen, robust = least_regret(Study(job, tables, skeleton(job, tables)), chosen)
    placement = placement_of(job, tables, chosen)
    job = part or job
    solved = time.perf_counter()
    value = best.objective_value
    if robust is not None:
        value = _objective_value(job, placement, chosen.timing.period)
    status = _status(job.spec, best, robust=robust is not None)
    report = SearchReport(
        status=status,
        within_gap=best.proven and robust is None and status == "feasible",
        objective=job.spec.search.objective,
        objective_value=value,
        lower_bound=best.lower_bound,
        pricing_seconds=pricing_seconds,
        solving_seconds=solved - searched_since,
        candidates_priced=tables.num_priced,
        options=best.options,
        warm_start=best.warm_start,
        robust=robust,
        space=enumeration.SPACE + _further_space(job),
    )
    stopped = _stopped(job.spec, report, nominal_proven=best.proven)
    report = report.model_copy(update={"stopped": stopped})
    return _plan(job, placement, chosen.timing, report, best.lower_bound_seconds)


def _status(spec: JobSpec, best: Best, *, robust: bool) -> Literal["optimal", "feasible"]:
    """Within a gap that the spec allows a plan may be the best, but nobody has looked."""
    proven = best.proven and not robust and not spec.search.optimality_gap
    return "optimal" if proven else "feasible"


def _further_space(job: Job) -> str:
    """What the spec's options add to the space, in words."""
    added = ""
    if any(edge.streamed for edge in job.dataflow.edges):
        added += f"; responses handed over in {job.spec.search.stream_chunks} chunks"
    if tails := [TAILS[number - 1] for number in wanted_tails(job.spec.search)]:
        kinds = ", ".join(
            f"after {tail.ended_share:g} "
            + (f"with {tail.tensor_factor} times" if tail.ratio == 1 else f"on 1/{tail.ratio}")
            for tail in tails
        )
        added += "; generation whole, or ending on a part of its GPUs or with a multiple of its "
        added += f"tensor size ({kinds})"
    return added


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
    value = _objective_value(job, placement, timing.period)
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
    return sound(job, _plan(job, placement, timing, report, timing.period))


def _attempts(job: Job, tables: Tables, names: list[str]) -> list[Attempt]:
    """The named strategies on all sizes of ranges, within the job's limits."""
    limits = Limits.within(job.spec.search.time_limit_seconds, seed=job.spec.search.seed)
    return attempted(arena(tables, skeleton(job, tables)), names, limits, most_counts=None)


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


def placed(
    job: Job,
    placement: Placement,
    timing: Timing,
    *,
    pricing_seconds: float = 0.0,
    intervals: bool = True,
) -> Plan:
    """A placement that is given, with its schedule, as a plan that has passed the check.

    Without `intervals` a third of the time is saved.
    """
    value = _objective_value(job, placement, timing.period)
    report = SearchReport(
        status="given",
        objective=job.spec.search.objective,
        objective_value=value,
        lower_bound=value,
        pricing_seconds=pricing_seconds,
        solving_seconds=0.0,
        candidates_priced=len(placement.calls),
        options=0,
        stopped="nothing was searched: the placement was given",
        space=GIVEN,
    )
    plan = _plan(job, placement, timing, report, timing.period, intervals=intervals)
    return sound(job, plan)


def _objective_value(job: Job, placement: Placement, period: float) -> float:
    """What the spec's objective says of a placement: seconds, price units or GPUs."""
    pricing = pricing_of(job, placement.copies)
    copies = [price_copy(pricing, copy) for copy in placement.copies]
    gpus = sum(paid_gpus(job, copies).values())
    return objective_value(job.spec, period, price_per_second(job, copies), gpus)


def compare(spec: JobSpec, plan: Plan, strategies: list[str]) -> list[Strategy]:
    """What the named strategies would cost beside a plan of the same spec.

    Raises:
        KeyError: a strategy is not in STRATEGIES; callers check first.
        SpecError: as make_plan.
    """
    for name in strategies:
        STRATEGIES[name]
    job = resolve(spec)
    tables = price(job)
    return [strategy(job, tables, plan, each) for each in _attempts(job, tables, strategies)]


def _plan(
    job: Job,
    placement: Placement,
    timing: Timing,
    report: SearchReport,
    lower_bound_seconds: float,
    *,
    intervals: bool = True,
) -> Plan:
    """A plan from a placement and its schedule, every number priced once more."""
    pricing, spec = pricing_of(job, placement.copies), job.spec
    copies = [price_copy(pricing, copy) for copy in placement.copies]
    calls = _priced_calls(pricing, placement, copies)
    period = timing.period
    tokens = _tokens_per_iteration(job)
    price_per_iteration = period * price_per_second(job, copies)
    whole_run = run_seconds(spec.workload, period)
    lower = min(lower_bound_seconds, period)
    plan = Plan(
        name=spec.name,
        algorithm=spec.algorithm,
        copies=copy_plans(copies),
        calls=call_plans(job, copies, calls, timing),
        transitions=weight_syncs(job, copies, timing),
        iteration_seconds=period,
        lower_bound_seconds=lower,
        relative_gap=_relative_gap(report),
        search_seconds=report.pricing_seconds + report.solving_seconds,
        tokens_per_second=tokens / period if period else 0.0,
        tokens_per_iteration=tokens,
        gpus_used=sum(paid_gpus(job, copies).values()),
        price_per_iteration=price_per_iteration,
        price_per_million_tokens=price_per_iteration / tokens * 1e6,
        run_seconds=whole_run,
        run_price=whole_run * price_per_second(job, copies),
        staleness=spec.search.staleness,
        iteration_barrier=not spec.search.cyclic,
        search=report,
        alternatives=[],
        assumptions=assumptions(job),
        provenance=provenance_of(job),
        spec=spec,
    )
    if intervals:
        plan = with_intervals(job, plan, prices_of(copies, calls))
    search = plan.search.model_copy(update={"proof": proof_of(plan)})
    return plan.model_copy(update={"search": search})


def _relative_gap(report: SearchReport) -> float:
    """How far below the objective the bound is, as a share of the objective."""
    if report.objective_value <= 0:
        return 0.0
    gap = max(report.objective_value - report.lower_bound, 0.0) / report.objective_value
    # A bound and a value that differ by float noise alone are equal.
    return gap if gap > 1e-12 else 0.0


def _stopped(spec: JobSpec, report: SearchReport, *, nominal_proven: bool) -> str:
    """Why the search ended: only a proof, the gap or the limit ends it."""
    if report.status == "optimal":
        return "the search is complete: no plan of the searched space is better"
    gap, robust = _relative_gap(report), report.robust
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
    return f"stopped at the time limit of {spec.search.time_limit_seconds:g} s {end}"


def _priced_calls(
    pricing: Pricing, placement: Placement, copies: list[PricedCopy]
) -> list[PricedCall]:
    by_id = {copy.placement.id: copy for copy in copies}
    calls = {call.id: call for call in pricing.job.dataflow.calls}
    return [
        price_call(
            pricing,
            calls[call.id],
            call,
            None if call.copy_id is None else by_id[call.copy_id],
        )
        for call in placement.calls
    ]


def _tokens_per_iteration(job: Job) -> float:
    """Prompt and response tokens of the sequences that an iteration trains on."""
    workload = job.spec.workload
    mean = workload.prompt_length.mean_tokens + workload.response_length.mean_tokens
    return workload.num_sequences * mean


def sound(job: Job, plan: Plan) -> Plan:
    """The plan, after the independent check; a violation is our bug."""
    assert math.isfinite(plan.iteration_seconds)
    found = violations(job, plan)
    if found:
        raise RuntimeError("the plan fails its own check: " + "; ".join(found))
    return plan
