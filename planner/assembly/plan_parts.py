"""Copies, calls and weight syncs as a plan states them."""

from automap.planner.assembly.parts import PricedCall, PricedCopy, layouts_of
from automap.planner.check.subject import tolerance_seconds
from automap.planner.cost import memory
from automap.planner.cost.model_flops import (
    model_flops,
    peak_flops_per_second,
    tokens_processed,
)
from automap.planner.cost.transition import received_bytes
from automap.planner.job.job import Job
from automap.planner.plan.runs_with import engine_name
from automap.planner.plan.types import (
    CallPlan,
    CopyPlan,
    Parallelism,
    WeightSync,
)
from automap.planner.search.model.problem import Timing


def copy_plans(job: Job, copies: list[PricedCopy]) -> list[CopyPlan]:
    """Copies as a plan states them."""
    return [
        CopyPlan(
            **copy.placement.model_dump(),
            engine=engine_name(job, copy.placement, job.target),
            layers_per_stage=_uneven_stages(job, copy.placement.role, copy.placement.layout),
            resident_bytes=copy.resident_bytes,
            host_bytes=copy.host_bytes,
            bytes_by_kind=copy.bytes_by_kind,
        )
        for copy in copies
    ]


def call_plans(
    job: Job, copies: list[PricedCopy], calls: list[PricedCall], timing: Timing
) -> list[CallPlan]:
    """Calls as a plan states them, in the order in which they start."""
    numbers = {call.id: number for number, call in enumerate(job.dataflow.calls)}
    roles = {copy.placement.id: copy.placement.role for copy in copies}
    plans = []
    for call in calls:
        number = numbers[call.placement.id]
        start = timing.call_starts[number]
        peak, capacity = peak_and_capacity(copies, call)
        plans.append(
            CallPlan(
                **call.placement.model_dump(),
                stage=timing.call_stages[number],
                start_seconds=start,
                end_seconds=start + call.seconds,
                bulk_end_seconds=None
                if call.main_phase_seconds is None
                else start + call.main_phase_seconds,
                streamed_from=_streamed_from(job, calls, number, timing),
                layers_per_stage=_uneven_stages(
                    job, roles.get(call.placement.copy_id or ""), call.placement.parallelism
                ),
                seconds_by_part=call.seconds_by_part,
                bytes_by_kind=call.bytes_by_kind,
                peak_bytes=peak,
                capacity_bytes=capacity,
                source=call.source,
                **_efficiency(job, copies, call, number),
            )
        )
    return sorted(plans, key=lambda plan: (plan.stage, plan.start_seconds))


def _uneven_stages(job: Job, role: str | None, layout: Parallelism | None) -> list[int] | None:
    """Layers of each pipeline stage of a role's model where they are not equally many."""
    if role is None or layout is None:
        return None
    return layout.uneven_stages(job.models[role].architecture.num_layers)


def _efficiency(
    job: Job, copies: list[PricedCopy], priced: PricedCall, number: int
) -> dict[str, float]:
    """Model FLOPs utilization and tokens per second and GPU; empty where no GPU is used."""
    copy = next((c for c in copies if c.placement.id == priced.placement.copy_id), None)
    call, workload = job.dataflow.calls[number], job.spec.workload
    if copy is None or call.model is None or not priced.seconds:
        return {}
    model = job.models[call.model]
    gpu_seconds = priced.seconds * copy.placement.num_gpus
    peak = peak_flops_per_second(model, call, workload, copy.pool)
    return {
        "model_flops_utilization": model_flops(model, call, workload) / (gpu_seconds * peak),
        "tokens_per_second_per_gpu": tokens_processed(call, workload) / gpu_seconds,
    }


def _streamed_from(job: Job, calls: list[PricedCall], number: int, timing: Timing) -> list[str]:
    """Calls behind streamed edges that have not ended when the call starts."""
    seconds = {call.placement.id: call.seconds for call in calls}
    numbers = {call.id: index for index, call in enumerate(job.dataflow.calls)}

    def start(call: int) -> float:
        return timing.call_starts[call] + timing.call_stages[call] * timing.period

    return [
        edge.source
        for edge in job.dataflow.edges
        if edge.streamed
        and numbers[edge.target] == number
        and _before(start(number), start(numbers[edge.source]) + seconds[edge.source])
    ]


def _before(one: float, other: float) -> bool:
    """Whether one time is earlier than another by more than rounding."""
    return one < other - tolerance_seconds(one, other)


def peak_and_capacity(copies: list[PricedCopy], call: PricedCall) -> tuple[int, int]:
    """(most bytes on any GPU of the call's range while it runs, usable bytes of such a GPU)."""
    own = next((c for c in copies if c.placement.id == call.placement.copy_id), None)
    if own is None:
        return 0, 0
    starts = {own.span.start, *(c.span.start for c in copies if c.span.start in own.span)}
    residents = max(
        sum(copy.resident_bytes for copy in copies if gpu in copy.span) for gpu in starts
    )
    return residents + call.bytes_by_kind.total, memory.usable_bytes(own.pool)


def weight_syncs(job: Job, copies: list[PricedCopy], timing: Timing) -> list[WeightSync]:
    """The weight syncs of a plan, one per shadow."""
    shadows = [copy for copy in copies if copy.placement.kind == "shadow"]
    plans = []
    for shadow, start, stage in zip(
        shadows,
        [start for start in timing.sync_starts if start is not None],
        [s for s, at in zip(timing.sync_stages, timing.sync_starts, strict=True) if at is not None],
        strict=True,
    ):
        role = shadow.placement.role
        home = next(c for c in copies if c.placement.role == role and c.placement.kind == "home")
        received = received_bytes(
            job.models[role],
            job.spec.workload,
            layouts_of(shadow.placement),
            whole=job.target.rollout.whole_syncs,
        )
        plans.append(
            WeightSync(
                role=role,
                source_copy=home.placement.id,
                target_copy=shadow.placement.id,
                stage=stage,
                start_seconds=start,
                end_seconds=start + max(home.sync_seconds, shadow.sync_seconds),
                bytes_per_receiver=int(received[0]),
            )
        )
    return plans
