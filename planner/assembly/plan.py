"""From table rows to a placement, and from that to a plan: priced once more, and checked."""

import math

from automap.planner.assembly.assumptions import assumptions, unused_pools, warnings
from automap.planner.assembly.continuous import continuous_lines, continuous_report
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
from automap.planner.assembly.proof import proof_of, relative_gap
from automap.planner.check.check import violations
from automap.planner.check.software import runs_with
from automap.planner.cost.generation.streaming import TAILS
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.layout import (
    OFFLOADS,
    RECOMPUTES,
    SHARDINGS,
    GenerationLayouts,
    IntArray,
    Layouts,
)
from automap.planner.plan.price import (
    objective_value,
    paid_gpus,
    price_per_second,
    run_seconds,
)
from automap.planner.plan.provenance import provenance_of
from automap.planner.plan.types import (
    CallPlacement,
    CopyPlacement,
    GenerationTail,
    Parallelism,
    Placement,
    Plan,
    SearchReport,
)
from automap.planner.search import CallTable, CopyTable, Selected, Tables
from automap.planner.search.model.problem import Timing

GIVEN = "the given placement only; the order of its calls on shared GPUs is kept"


def placement_of(job: Job, tables: Tables, placed: Selected) -> Placement:
    """The placement behind table rows; calls in the order in which they start."""
    timing = placed.timing
    order = sorted(
        range(len(job.dataflow.calls)),
        key=lambda call: (timing.call_stages[call], timing.call_starts[call], call),
    )
    copies = [
        _copy_placement(job, table, row, first)
        for table, row, first in zip(
            tables.copies, placed.copy_rows, placed.first_gpus, strict=True
        )
        if row is not None and first is not None
    ]
    calls = [_call_placement(job, tables, call, placed.call_rows[call]) for call in order]
    return Placement(copies=copies, calls=calls)


def _copy_placement(job: Job, table: CopyTable, row: int, first: int) -> CopyPlacement:
    pool = job.pools[int(table.pool[row])]
    layouts = table.layouts
    return CopyPlacement(
        id=table.id,
        role=table.role,
        kind="home" if table.shadow_of is None else "shadow",
        pool=pool.name,
        first_gpu=first - pool.first_gpu,
        num_gpus=int(layouts.num_gpus[row]),
        layout=_parallelism(layouts, row),
        offload=OFFLOADS[int(layouts.offload[row])],
    )


def _parallelism(layouts: Layouts, row: int) -> Parallelism:
    sizes = {
        name: int(getattr(layouts, name)[row])
        for name in Parallelism.model_fields
        if name != "sharding"
    }
    return Parallelism(**sizes, sharding=SHARDINGS[int(layouts.sharding[row])])


def _call_placement(
    job: Job, tables: Tables, number: int, chosen: tuple[int, int] | None
) -> CallPlacement:
    call = job.dataflow.calls[number]
    if chosen is None:
        return CallPlacement(id=call.id, role=call.role, kind=call.kind)
    copy, row = chosen
    table = tables.of(number, copy)
    copies = tables.copies[copy]
    if call.kind == "generate":
        parallelism = _engine_parallelism(table.engine, row)
    else:
        parallelism = _parallelism(copies.layouts, int(table.copy_row[row]))
    return CallPlacement(
        id=call.id,
        role=call.role,
        kind=call.kind,
        copy_id=copies.id,
        parallelism=parallelism,
        micro_batch_size=_given(table.micro_batch_size, row),
        recompute=RECOMPUTES[int(table.recompute[row])] if call.kind == "train" else None,
        kv_cache_bytes=_given(table.kv_cache_bytes, row),
        tail=_tail(table, row, int(copies.layouts.num_gpus[table.copy_row[row]])),
    )


def _tail(table: CallTable, row: int, num_gpus: int) -> GenerationTail | None:
    if table.tail is None or table.tail[row] == 0:
        return None
    tail = TAILS[int(table.tail[row]) - 1]
    tensor = int(table.engine.tensor_parallel_size[row]) * tail.tensor_factor
    return GenerationTail(
        num_gpus=num_gpus // tail.ratio,
        tensor_parallel_size=tensor if tail.tensor_factor > 1 else None,
        ended_share=tail.ended_share,
    )


def _engine_parallelism(engine: GenerationLayouts, row: int) -> Parallelism:
    return Parallelism(**{name: int(column[row]) for name, column in engine.columns().items()})


def _given(column: IntArray, row: int) -> int | None:
    """A setting from its column, in which 0 means that it does not apply."""
    return int(column[row]) or None


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
    continuous = continuous_report(pricing, calls, copies)
    said = list(continuous_lines(job, continuous))
    if report.status != "given":
        tolerance = report.within_tolerance or 0.0
        said += unused_pools(job, placement.copies, tolerance=tolerance)
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
        continuous=continuous,
        search=report.model_copy(update={"target": job.target.name}),
        alternatives=[],
        assumptions=[*said, *assumptions(job)],
        warnings=[*said, *warnings(job)],
        provenance=provenance_of(job),
        spec=spec,
    )
    if intervals:
        plan = with_assumed_networks(job, with_intervals(job, plan, prices_of(copies, calls)))
    search = plan.search.model_copy(update={"proof": proof_of(plan)})
    return plan.model_copy(update={"search": search, "runs_with": runs_with(job, plan)})


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
