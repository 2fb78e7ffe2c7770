"""What every call needs by itself: the least bytes that any layout takes, other models left out."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.cost.memory import fillable_bytes, usable_host_bytes
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job
from automap.planner.job.pins import home_pool
from automap.planner.layout import IntArray
from automap.planner.search import CallTable, CopyTable, MemoryNeed, price_candidates
from automap.planner.spec import JobSpec
from automap.planner.units import MIB


@dataclass(frozen=True, slots=True)
class HostNeed:
    """The least bytes of host memory per GPU that a model keeps, and what there is."""

    role: str
    required_bytes: int
    capacity_bytes: int


def least_needs(job: Job) -> list[MemoryNeed]:
    """The least need of every call with a model for which some layout exists, in program order."""
    calls = [call for call in job.dataflow.calls if call.model is not None]
    needs = [least_need(job, call) for call in calls]
    return [need for need in needs if need is not None]


def least_need(job: Job, call: Call) -> MemoryNeed | None:
    """The least need of one call; None where no layout of its model is even tried.

    Calls of other models are not priced, nor are, but for rollouts, the model's own: a rollout
    may run on a shadow, which exists only beside training.
    """
    assert call.model is not None, "a function needs no GPU"
    alone = replace(job, models={call.model: job.models[call.model]})
    if call.kind != "generate":
        dataflow = job.dataflow.model_copy(update={"calls": (call,), "edges": ()})
        alone = replace(alone, spec=_with_home_pinned(job, call.model), dataflow=dataflow)
    tables = price_candidates(alone, fits_only=False, lean=True)
    needs = [
        _leanest(job, call, table, tables.copies[table.copy])
        for table in tables.calls
        if tables.dataflow_calls[table.call].id == call.id
    ]
    return min(
        (need for need in needs if need is not None),
        key=lambda need: need.over_bytes,
        default=None,
    )


def least_host_needs(job: Job) -> list[HostNeed]:
    """The models of which every layout keeps more on the hosts than these have."""
    tables = price_candidates(job, fits_only=False, lean=True)
    usable = np.array([usable_host_bytes(pool) for pool in job.pools], dtype=np.int64)
    found = []
    for copy in tables.copies:
        if copy.shadow_of is None and len(copy):
            over = copy.host_bytes - usable[copy.pool]
            row = int(np.argmin(over))
            if over[row] > 0:
                need = HostNeed(copy.role, int(copy.host_bytes[row]), int(usable[copy.pool[row]]))
                found.append(need)
    return found


def _with_home_pinned(job: Job, role: str) -> JobSpec:
    """The spec in which a role's home is pinned by its own name to where other calls pin it."""
    pool = home_pool(job, role)
    if pool is None:
        return job.spec
    pools = {**job.spec.constraints.pools, role: pool}
    constraints = job.spec.constraints.model_copy(update={"pools": pools})
    return job.spec.model_copy(update={"constraints": constraints})


def _leanest(job: Job, call: Call, table: CallTable, copy: CopyTable) -> MemoryNeed | None:
    """The row that exceeds its pool's GPUs by least; rows that overflow the host do not count."""
    probability = job.max_out_of_memory_probability
    fillable = [
        fillable_bytes(pool, max_out_of_memory_probability=probability) for pool in job.pools
    ]
    capacity = np.array(fillable, dtype=np.int64) // MIB * MIB
    host = np.array([usable_host_bytes(pool) for pool in job.pools], dtype=np.int64)
    rows = table.copy_row
    held = _mib_up(copy.resident_bytes)[rows]
    required = held + _mib_up(table.transient_bytes)
    possible = np.flatnonzero((copy.host_bytes <= host[copy.pool])[rows])
    if len(possible) == 0:
        return None
    there = capacity[copy.pool[rows]]
    row = int(possible[np.argmin((required - there)[possible])])
    return MemoryNeed(
        call=call.id,
        required_bytes=int(required[row]),
        capacity_bytes=int(there[row]),
        num_gpus=int(copy.layouts.num_gpus[rows[row]]),
        holder=copy.role,
        holder_bytes=int(held[row]),
    )


def _mib_up(num_bytes: IntArray) -> IntArray:
    """Bytes rounded up to MiB, as the search counts them."""
    return -(-num_bytes // MIB) * MIB
