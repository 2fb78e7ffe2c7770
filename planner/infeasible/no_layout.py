"""Calls without any layout, whatever the memory, and the settings that leave them without one."""

import time
from collections.abc import Iterator

from automap.planner.errors import Reason, SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.search import price_candidates
from automap.planner.spec import JobSpec

LIMIT = 3.0
"""Seconds of work in which settings are tried: whoever asked has waited for the search."""


def without_layout(job: Job) -> list[Reason]:
    """Why a call has no layout, for each of those for which none is even tried."""
    served = _served(job)
    calls = [call for call in job.dataflow.calls if call.model is not None]
    missing = [call for call in calls if call.id not in served]
    if not missing:
        return []
    helpful: dict[str, list[str]] = {call.id: [] for call in missing}
    deadline = time.process_time() + LIMIT
    for setting, freed in _freed(job.spec):
        if time.process_time() > deadline:
            break
        try:
            with_layout = _served(resolve(freed))
        except SpecError:  # what is left of the settings contradicts itself
            continue
        for call_id, settings in helpful.items():
            if call_id in with_layout:
                settings.append(setting)
    return [_reason(call.id, call.num_sequences, helpful[call.id]) for call in missing]


def _served(job: Job) -> set[str]:
    """The calls that have a layout, whether it fits in memory or not."""
    tables = price_candidates(job, fits_only=False, lean=True)
    return {job.dataflow.calls[table.call].id for table in tables.calls if len(table)}


def _freed(spec: JobSpec) -> Iterator[tuple[str, JobSpec]]:
    """Every setting that leaves layouts out, and the job without it."""
    given = spec.constraints
    for name, fixed in given.parallelism.items():
        for field, value in fixed.model_dump(exclude_none=True).items():
            free = given.parallelism | {name: fixed.model_copy(update={field: None})}
            yield f"parallelism.{name}.{field} ({value})", _with(spec, parallelism=free)
    if not given.tensor_parallel_across_nodes:
        freed = _with(spec, tensor_parallel_across_nodes=True)
        yield "tensor_parallel_across_nodes (false: no expert groups either)", freed
    if given.require_even_batch:
        yield "require_even_batch (true)", _with(spec, require_even_batch=False)


def _with(spec: JobSpec, **changes: object) -> JobSpec:
    constraints = spec.constraints.model_copy(update=changes)
    return spec.model_copy(update={"constraints": constraints})


def _reason(call: str, num_sequences: int, helpful: list[str]) -> Reason:
    if helpful:
        listed = ", ".join(f"constraints.{setting}" for setting in helpful)
        return Reason(
            summary=f"{call} has no layout that every setting allows; it has one without any one "
            f"of these: {listed}",
            phase=call,
            remedy="change or leave out one of the settings named",
        )
    return Reason(
        summary=f"{call} has no layout: no tried sizes divide its heads, its GPUs and the "
        f"{num_sequences} sequences of an iteration as the spec demands",
        phase=call,
        remedy="relax constraints.parallelism or constraints.require_even_batch, or change "
        "gpus_per_node",
    )
