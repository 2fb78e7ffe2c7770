"""What the controller expects from a plan: calls in their order, and the devices that they take."""

from collections.abc import Sequence
from dataclasses import dataclass

from automap.executor.runtime.placement import Device, DeviceRange, device_pools
from automap.executor.runtime.plan_order import PlannedCall
from automap.planner import Plan
from automap.planner.spec import ClusterSpec


def planned_calls(plan: Plan) -> list[PlannedCall]:
    """Calls and weight syncs in the plan's order, with the devices that they take."""
    devices = {copy.id: frozenset(DeviceRange.of(copy).devices) for copy in plan.copies}
    nothing: frozenset[Device] = frozenset()
    planned: list[tuple[tuple[int, float], PlannedCall]] = [
        (
            (call.stage, call.start_seconds),
            PlannedCall(
                call.id,
                devices[call.copy_id] if call.copy_id else nothing,
                call.stage,
                call.start_seconds,
            ),
        )
        for call in plan.calls
    ]
    planned += [
        (
            (sync.stage, sync.start_seconds),
            PlannedCall(
                sync_id(sync.role),
                devices[sync.source_copy] | devices[sync.target_copy],
                sync.stage,
                sync.start_seconds,
            ),
        )
        for sync in plan.transitions
    ]
    return [call for _, call in sorted(planned, key=lambda each: each[0])]


@dataclass(frozen=True, slots=True)
class Streamed:
    """A generation whose responses others take while it runs."""

    takers: frozenset[str]
    """Calls that score them, chunk by chunk."""
    num_chunks: int


def streamed_calls(plan: Plan) -> dict[str, Streamed]:
    """By the id of the call that generates.

    A copy whose weights are offloaded takes all responses at once, as it would load them for every
    chunk. There are as many chunks as the spec says, but a chunk has a micro-batch for each
    data-parallel rank that scores it, or a response for each process of a function: less would take
    as long.
    """
    loads = {copy.id for copy in plan.copies if copy.offload == "weights"}
    rows_at_once: dict[str, dict[str, int]] = {}
    for call in plan.calls:
        if call.parallelism is None:
            rows = plan.spec.models[call.role].open_requests
        else:
            rows = call.parallelism.data_parallel_size * (call.micro_batch_size or 1)
        for generation in call.streamed_from if call.copy_id not in loads else ():
            rows_at_once.setdefault(generation, {})[call.id] = rows
    return {
        generation: Streamed(
            frozenset(rows),
            max(1, min(plan.spec.search.stream_chunks, _responses(plan, generation) // most)),
        )
        for generation, rows in rows_at_once.items()
        for most in [max(rows.values())]
    }


def _responses(plan: Plan, generation: str) -> int:
    workload = plan.spec.workload
    is_greedy = generation.split(".")[2:3] == ["greedy"]  # as handles name such a call
    return workload.prompts_per_iteration * (1 if is_greedy else workload.responses_per_prompt)


def iterations_ahead(planned: Sequence[PlannedCall]) -> int:
    """How many iterations begin before one of them ends: the last call's stage less the first's."""
    stages = [call.stage for call in planned]
    return max(stages, default=0) - min(stages, default=0)


def device_numbers(plan: Plan) -> dict[Device, int]:
    """Every device of the plan's cluster, counted over all pools in their order."""
    assert isinstance(plan.spec.cluster, ClusterSpec), "the plan's spec was resolved"
    pools = device_pools(plan.spec.cluster)
    devices = [
        Device(pool.name, number)
        for pool in plan.spec.cluster.pools
        for number in range(pool.num_nodes * pools[pool.name].gpus_per_node)
    ]
    return {device: number for number, device in enumerate(devices)}


def sync_id(role: str) -> str:
    """The call id of the weight sync of a role."""
    return f"{role}.sync"
