"""Plans put together by hand, priced call by call: what the check must accept.

No solver and none of the check's code: the builder places, prices through `cost.pricing`, and
schedules as the caller says.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from automap.planner.cost.memory import usable_bytes
from automap.planner.cost.model_flops import (
    model_flops,
    peak_flops_per_second,
    tokens_processed,
)
from automap.planner.cost.pricing import CopyBytes, Pricing, whole_microseconds
from automap.planner.job.job import Job
from automap.planner.layout import (
    OFFLOADS,
    RECOMPUTES,
    SHARDINGS,
    SOURCES,
    GenerationLayouts,
    Layouts,
)
from automap.planner.plan.types import (
    BytesByKind,
    CallPlan,
    CopyPlan,
    Parallelism,
    Plan,
    Provenance,
    SearchReport,
    SecondsByPart,
    WeightSync,
)

DENSE = Parallelism(tensor_parallel_size=8)
GIB = 2**30


def copy_plan(
    job: Job, copy_id: str, *, first_gpu: int, layout: Parallelism = DENSE, offload: str = "none"
) -> CopyPlan:
    """A priced copy in the job's first pool; `role.shadow` names a shadow."""
    role, _, shadow = copy_id.partition(".")
    pricing = Pricing(job)
    data: dict[str, Any] = {
        "id": copy_id,
        "role": role,
        "kind": "shadow" if shadow else "home",
        "pool": job.pools[0].name,
        "first_gpu": first_gpu,
        "num_gpus": layout.num_gpus,
        "layout": layout,
        "offload": offload,
    }
    layouts = layouts_of(layout, offload)
    held: CopyBytes = (
        pricing.shadow_bytes(role, layouts)
        if shadow
        else pricing.home_bytes(role, job.pools[0], layouts)
    )
    return CopyPlan(
        **data,
        resident_bytes=int(held.resident.total[0]),
        host_bytes=int(held.host[0]),
        bytes_by_kind=BytesByKind(**kinds(held.resident)),
    )


def call_plan(
    job: Job,
    call_id: str,
    copies: list[CopyPlan],
    *,
    copy_id: str | None,
    engine: Parallelism | None = None,
    micro_batch_size: int = 1,
    recompute: str = "full",
    kv_cache_bytes: int = 8 * GIB,
) -> CallPlan:
    """A priced call that starts at 0; training and scoring take the layout of their copy."""
    call = next(call for call in job.dataflow.calls if call.id == call_id)
    base: dict[str, Any] = {"id": call_id, "role": call.role, "kind": call.kind, "copy": copy_id}
    if copy_id is None:
        parts = SecondsByPart(overhead=call.fixed_seconds or 0.0)
        return CallPlan(
            **base,
            start_seconds=0.0,
            end_seconds=parts.overhead,
            seconds_by_part=parts,
            bytes_by_kind=BytesByKind(),
            peak_bytes=0,
            capacity_bytes=0,
            source="analytical",
        )
    copy = next(copy for copy in copies if copy.id == copy_id)
    pricing, pool, layouts = Pricing(job), job.pools[0], layouts_of(copy.layout, copy.offload)
    if call.kind == "generate":
        base |= {"parallelism": engine or copy.layout, "kv_cache_bytes": kv_cache_bytes}
        columns, cache = (
            GenerationLayouts.of(layouts_of(engine or copy.layout, "none")),
            row(kv_cache_bytes),
        )
        if copy.kind == "shadow":
            priced = pricing.generate(call, pool, columns, kv_cache_bytes=cache)
        else:
            priced = pricing.generate_from_home(call, pool, layouts, columns, kv_cache_bytes=cache)
    elif call.kind == "forward":
        base |= {"parallelism": copy.layout, "micro_batch_size": micro_batch_size}
        priced = pricing.forward(call, pool, layouts, micro_batch_size=row(micro_batch_size))
    else:
        base |= {"parallelism": copy.layout, "micro_batch_size": micro_batch_size}
        base |= {"recompute": recompute}
        priced = pricing.train(
            call,
            pool,
            layouts,
            micro_batch_size=row(micro_batch_size),
            recompute=row(RECOMPUTES.index(recompute)),
        )
    transient = BytesByKind(**kinds(priced.transient))
    model, workload = job.models[copy.role], job.spec.workload
    gpu_seconds = float(whole_microseconds(priced.seconds.total)[0]) * copy.num_gpus
    flops = model_flops(model, call, workload) / peak_flops_per_second(model, call, workload, pool)
    return CallPlan(
        **base,
        model_flops_utilization=flops / gpu_seconds,
        tokens_per_second_per_gpu=tokens_processed(call, workload) / gpu_seconds,
        start_seconds=0.0,
        end_seconds=float(whole_microseconds(priced.seconds.total)[0]),
        seconds_by_part=SecondsByPart(
            **{f.name: float(getattr(priced.seconds, f.name)[0]) for f in fields(priced.seconds)}
        ),
        bytes_by_kind=transient,
        peak_bytes=worst_residents(copies, copy) + transient.total,
        capacity_bytes=usable_bytes(pool),
        source=SOURCES[int(priced.source[0])],
    )


def weight_sync(job: Job, home: CopyPlan, shadow: CopyPlan) -> WeightSync:
    """A priced sync that starts at 0."""
    pricing, pool = Pricing(job), job.pools[0]
    send = pricing.send_seconds(home.role, pool, layouts_of(home.layout, home.offload))
    receive = pricing.receive_seconds(home.role, pool, layouts_of(shadow.layout, "none"))
    return WeightSync(
        role=home.role,
        source_copy=home.id,
        target_copy=shadow.id,
        start_seconds=0.0,
        end_seconds=float(np.maximum(send, receive)[0]),
        bytes_per_receiver=2
        * job.models[home.role].architecture.num_parameters()
        // shadow.layout.tensor_parallel_size,
    )


def worst_residents(copies: list[CopyPlan], on: CopyPlan) -> int:
    """Most bytes that copies hold on one GPU of a range, GPU by GPU."""
    return max(
        sum(c.resident_bytes for c in copies if c.first_gpu <= gpu < c.first_gpu + c.num_gpus)
        for gpu in range(on.first_gpu, on.first_gpu + on.num_gpus)
    )


def layouts_of(layout: Parallelism, offload: str) -> Layouts:
    sizes = [
        layout.num_gpus,
        layout.tensor_parallel_size,
        layout.pipeline_parallel_size,
        layout.virtual_pipeline_parallel_size,
        layout.context_parallel_size,
        layout.data_parallel_size,
        layout.expert_parallel_size,
        SHARDINGS.index(layout.sharding),
        OFFLOADS.index(offload),
    ]
    return Layouts(*(row(size) for size in sizes))


def row(value: int) -> np.ndarray:
    return np.array([value], dtype=np.int64)


def kinds(columns: Any) -> dict[str, int]:
    return {field.name: int(getattr(columns, field.name)[0]) for field in fields(columns)}


def moved_to(event: Any, start: float, *, stage: int = 0) -> Any:
    """A call or sync at another time."""
    seconds = event.end_seconds - event.start_seconds
    times = {"start_seconds": start, "end_seconds": start + seconds, "stage": stage}
    return event.model_copy(update=times)


def plan_of(
    job: Job,
    copies: list[CopyPlan],
    calls: list[CallPlan],
    syncs: Iterable[WeightSync] = (),
    *,
    period: float,
) -> Plan:
    """A plan with its totals; all GPUs of the cluster are touched."""
    spec, workload = job.spec, job.spec.workload
    each = workload.prompt_length.mean_tokens + workload.response_length.mean_tokens
    tokens = workload.num_sequences * each
    per_second = sum(pool.num_gpus * pool.price_per_gpu_hour for pool in job.pools) / 3600
    run_seconds = workload.iterations * period + workload.startup_seconds
    return Plan(
        name=spec.name,
        algorithm=spec.algorithm,
        copies=copies,
        calls=calls,
        transitions=list(syncs),
        iteration_seconds=period,
        lower_bound_seconds=0.0,
        relative_gap=1.0,
        search_seconds=0.0,
        tokens_per_second=tokens / period,
        tokens_per_iteration=tokens,
        gpus_used=job.num_gpus,
        price_per_iteration=period * per_second,
        price_per_million_tokens=period * per_second / tokens * 1e6,
        run_seconds=run_seconds,
        run_price=run_seconds * per_second,
        staleness=spec.search.staleness,
        iteration_barrier=not spec.search.cyclic,
        search=SearchReport(
            status="given",
            objective=spec.search.objective,
            objective_value=period,
            lower_bound=0.0,
            pricing_seconds=0.0,
            solving_seconds=0.0,
            candidates_priced=0,
            options=0,
            space="",
        ),
        alternatives=[],
        assumptions=[],
        provenance=Provenance(code_version="", profile_versions={}, catalogue_version=""),
        spec=spec,
    )


def in_program_order(job: Job, copies: list[CopyPlan], calls: list[CallPlan]) -> list[CallPlan]:
    """Each call as early as the calls before it in the list allow, under the barrier."""
    spans = {c.id: set(range(c.first_gpu, c.first_gpu + c.num_gpus)) for c in copies}
    placed: list[CallPlan] = []
    for call in calls:
        before = {e.source for e in job.dataflow.edges if e.target == call.id and e.distance == 0}
        mine = spans.get(call.copy_id or "", set())
        ready = [o.end_seconds for o in placed if o.id in before]
        ready += [o.end_seconds for o in placed if mine & spans.get(o.copy_id or "", set())]
        placed.append(moved_to(call, max(ready, default=0.0)))
    return placed


def barrier_plan(job: Job) -> Plan:
    """PPO on two nodes: actor and reference on the first, critic and reward on the second."""
    copies = [
        copy_plan(job, "actor", first_gpu=0),
        copy_plan(job, "critic", first_gpu=8),
        copy_plan(job, "reference", first_gpu=0, offload="weights"),
        copy_plan(job, "reward", first_gpu=8),
    ]
    engine = Parallelism(tensor_parallel_size=2, data_parallel_size=4)
    calls = [
        call_plan(job, call.id, copies, copy_id=call.model, engine=engine)
        for call in job.dataflow.calls
    ]
    calls = in_program_order(job, copies, calls)
    return plan_of(job, copies, calls, period=max(call.end_seconds for call in calls))


def cyclic_plan(job: Job) -> Plan:
    """GRPO at staleness 1: the second node generates while the first trains on what it wrote.

    The second node starts so late that half of training, and generation, run over the period's end.
    """
    copies = [
        copy_plan(job, "actor", first_gpu=0),
        copy_plan(job, "reference", first_gpu=0),
        copy_plan(job, "reward", first_gpu=0),
        copy_plan(job, "actor.shadow", first_gpu=8, layout=Parallelism(data_parallel_size=8)),
    ]
    priced = {
        call.id: call_plan(
            job,
            call.id,
            copies,
            copy_id="actor.shadow" if call.kind == "generate" else call.model,
        )
        for call in job.dataflow.calls
    }
    sync = weight_sync(job, copies[0], copies[3])
    seconds = {name: call.end_seconds for name, call in priced.items()}
    first_node = sync.end_seconds + sum(seconds.values()) - seconds["actor.generate"]
    period = max(first_node, sync.end_seconds + seconds["actor.generate"])
    late = period - first_node + seconds["actor.train"] / 2
    # The sync takes part in both nodes; generation follows it there at once, scoring here.
    start = late + sync.end_seconds
    calls = [moved_to(priced.pop("actor.generate"), start)]
    for call in priced.values():
        stage, phase = divmod(start, period)
        calls.append(moved_to(call, phase, stage=1 + int(stage)))
        start += seconds[call.id]
    return plan_of(job, copies, calls, [moved_to(sync, late)], period=period)
