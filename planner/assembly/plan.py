"""From a placement and its schedule to a plan: every number priced once more, and checked."""

import math

from automap.planner.assembly.assumptions import assumptions, warnings
from automap.planner.assembly.intervals import with_intervals
from automap.planner.assembly.networks import with_assumed_networks
from automap.planner.assembly.parts import (
    PricedCall,
    PricedCopy,
    price_call,
    price_copy,
    prices_of,
    pricing_of,
)
from automap.planner.assembly.plan_parts import call_plans, copy_plans, weight_syncs
from automap.planner.assembly.proof import proof_of
from automap.planner.check.check import violations
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.plan.price import (
    objective_value,
    paid_gpus,
    price_per_second,
    run_seconds,
)
from automap.planner.plan.provenance import provenance_of
from automap.planner.plan.runs_with import runs_with
from automap.planner.plan.types import Placement, Plan, SearchReport
from automap.planner.search.model.problem import Timing

GIVEN = "the given placement only; the order of its calls on shared GPUs is kept"


def placed(
    job: Job,
    placement: Placement,
    timing: Timing,
    *,
    pricing_seconds: float = 0.0,
    intervals: bool = True,
) -> Plan:
    """Make a plan of a placement that is given and its schedule, and check it.

    Without `intervals` a third of the time is saved.
    """
    value = value_of(job, placement, timing.period)
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
    plan = plan_from(job, placement, timing, report, timing.period, intervals=intervals)
    return sound(job, plan)


def value_of(job: Job, placement: Placement, period: float) -> float:
    """What the spec's objective says of a placement: seconds, price units or GPUs."""
    gpus = sum(paid_gpus(job.pools, placement.copies).values())
    return objective_value(job.spec, period, price_per_second(job.pools, placement.copies), gpus)


def plan_from(
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
    price_rate = price_per_second(job.pools, placement.copies)
    tokens = _tokens_per_iteration(job)
    price_per_iteration = period * price_rate
    whole_run = run_seconds(spec.workload, period)
    lower = min(lower_bound_seconds, period)
    plan = Plan(
        name=spec.name,
        algorithm=spec.algorithm,
        copies=copy_plans(job, copies),
        calls=call_plans(job, copies, calls, timing),
        transitions=weight_syncs(job, copies, timing),
        iteration_seconds=period,
        lower_bound_seconds=lower,
        relative_gap=relative_gap(report),
        search_seconds=report.pricing_seconds + report.solving_seconds,
        tokens_per_second=tokens / period if period else 0.0,
        tokens_per_iteration=tokens,
        gpus_used=sum(paid_gpus(job.pools, placement.copies).values()),
        price_per_iteration=price_per_iteration,
        price_per_million_tokens=price_per_iteration / tokens * 1e6,
        run_seconds=whole_run,
        run_price=whole_run * price_rate,
        staleness=spec.search.staleness,
        iteration_barrier=not spec.search.cyclic,
        search=report.model_copy(update={"target": job.target.name}),
        runs_with=runs_with(job, placement),
        alternatives=[],
        assumptions=assumptions(job),
        warnings=warnings(job),
        provenance=provenance_of(job),
        spec=spec,
    )
    if intervals:
        plan = with_assumed_networks(job, with_intervals(job, plan, prices_of(copies, calls)))
    search = plan.search.model_copy(update={"proof": proof_of(plan)})
    return plan.model_copy(update={"search": search})


def relative_gap(report: SearchReport) -> float:
    """The gap between objective and bound, as a share of the objective."""
    if report.objective_value <= 0:
        return 0.0
    gap = max(report.objective_value - report.lower_bound, 0.0) / report.objective_value
    # A bound and a value that differ by float noise alone are equal.
    return gap if gap > 1e-12 else 0.0


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
    """The plan once the independent check has passed.

    Raises:
        RuntimeError: the plan violates a rule, which is a bug of the planner.
    """
    assert math.isfinite(plan.iteration_seconds)
    found = violations(job, plan)
    if found:
        raise RuntimeError("the plan fails its own check: " + "; ".join(found))
    return plan
