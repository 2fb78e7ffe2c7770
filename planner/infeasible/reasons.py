"""Why a job fits nowhere, in numbers, and the smallest changes with which it would fit."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from automap.planner.errors import Reason
from automap.planner.infeasible.changes import gpus_text
from automap.planner.infeasible.memory import HostNeed, least_host_needs, least_needs
from automap.planner.infeasible.no_layout import without_layout
from automap.planner.infeasible.remedies import FeasibilityProbe, least_risk, remedies, remedy_of
from automap.planner.infeasible.targets import target_to_blame
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.search import (
    STARTS,
    STRATEGIES,
    Attempt,
    MemoryNeed,
    SearchSpace,
    Tables,
    best_placement,
    least_excess,
    price_candidates,
)
from automap.planner.spec import ConstraintsSpec, JobSpec
from automap.planner.units import GIB

REMEDY_SECONDS = 3.0
"""Seconds of work in which remedies are looked for: whoever asked has waited for the search."""
EXCLUDING = ("pools", "colocate", "separate", "parallelism", "keep_free_gpus", "require_even_batch")
"""Constraints that can leave no common placement for models that fit by themselves."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a job fits nowhere, and what may help."""

    reasons: list[Reason]
    suspect: str | None = None
    """The call that is over by most even alone."""
    over_bytes: int = 0
    """Bytes per GPU that are missing; a GPU type with less memory than that on top cannot help."""
    no_layout: bool = False
    """True: a call has no layout, whatever the memory."""
    reachable_seconds: float | None = None
    """A target of seconds that would be met, where everything fits but nothing meets the given."""


def explain_infeasible(job: Job) -> list[Reason]:
    """The calls that lack memory, by how many bytes, and every kind of change that would help."""
    found = diagnose(job)
    if found.no_layout or found.reachable_seconds is not None:
        return found.reasons
    deadline = time.process_time() + REMEDY_SECONDS
    probe = FeasibilityProbe(found.suspect, over_bytes=found.over_bytes, deadline=deadline)
    margin, _ = least_risk(job.spec, probe)
    if margin:
        others = [remedy_of(change) for change in probe.single_changes(job.spec)]
        return [*margin, *found.reasons, *others]
    return [*found.reasons, *remedies(job.spec, probe)]


def causes(job: Job) -> list[Reason]:
    """What explain_infeasible says, without the changes that would help, which take long."""
    return diagnose(job).reasons


def diagnose(job: Job) -> Diagnosis:
    """The calls that lack memory, alone or together; or the target, or the constraints."""
    alone = _to_blame(least_needs(job))
    if alone:
        reasons = [_too_large(need) for need in alone]
        reasons += target_to_blame(job, [need.call for need in alone])
        return Diagnosis(reasons, alone[0].call, alone[0].over_bytes)
    found = excess_of(job.spec)
    if found is not None and found.over_bytes > 0:
        return Diagnosis([_cause(found)], over_bytes=found.over_bytes)
    target = job.spec.search.target_iteration_seconds
    if found is not None and target is not None:
        return _too_slow(job.spec, target)
    hosts = [_host_too_small(need) for need in least_host_needs(job)]
    if hosts:
        return Diagnosis(hosts)
    without = without_layout(job)
    without += target_to_blame(job, [each.phase for each in without if each.phase])
    return Diagnosis(without, no_layout=True) if without else Diagnosis([_excluded(job.spec)])


def explain_strategy(
    job: Job, tables: Tables, attempt: Attempt, others: Sequence[Attempt]
) -> list[Reason]:
    """Why a named strategy has no placement, and what has one; where nothing has, why not.

    `others` are other strategies, quick to run; the search runs only where none of them fits.
    """
    fitting = [other.strategy for other in others if other.selected is not None]
    later = _later_rollouts(job)
    if fitting:
        remedy = f"{later}leave out search.strategy, or use {', '.join(fitting)}"
        return [Reason(summary=attempt.reason, remedy=remedy)]
    best = best_placement(job, SearchSpace.of(job, tables), STARTS)
    if best.solution is not None:
        return [Reason(summary=attempt.reason, remedy=f"{later}leave out search.strategy")]
    own = [Reason(summary=attempt.reason)]
    return [*own, *explain_infeasible(job)] if best.is_proven else own


def _later_rollouts(job: Job) -> str:
    """How a strategy that generates while it trains gets what it needs, if this job may have it."""
    search = job.spec.search
    needed = search.strategy is not None and STRATEGIES[search.strategy].needs_staleness
    wanted = needed and search.staleness == 0
    return "set search.staleness to 1, or " if wanted and job.dataflow.allows_staleness else ""


def _to_blame(needs: list[MemoryNeed]) -> list[MemoryNeed]:
    """Calls that do not fit even alone, the worst first.

    What a model holds all the time counts once, against its worst call: its other calls are to
    blame only where the model itself would leave room for one.
    """
    worst: set[str] = set()
    blamed = []
    for need in sorted(needs, key=lambda need: -need.over_bytes):
        if need.over_bytes > 0 and (
            need.holder not in worst or need.holder_bytes < need.capacity_bytes
        ):
            blamed.append(need)
            worst.add(need.holder)
    return blamed


def _host_too_small(need: HostNeed) -> Reason:
    return Reason(
        summary=(
            f"{need.role} keeps at least {need.required_bytes / GIB:.2f} GiB of host memory per "
            f"GPU (what is offloaded, and the base that adapters are added to), and "
            f"{need.capacity_bytes / GIB:.2f} GiB may be filled"
        ),
        required_bytes=need.required_bytes,
        capacity_bytes=need.capacity_bytes,
        over_bytes=need.required_bytes - need.capacity_bytes,
        remedy="nodes with more host memory: host_memory_bytes of the pool",
    )


def _too_large(need: MemoryNeed) -> Reason:
    held = ""
    if need.holder_bytes > need.required_bytes // 10:
        held = f"; {need.holder} alone holds {need.holder_bytes / GIB:.2f} GiB of it all the time"
    return Reason(
        summary=(
            f"{need.call} does not fit, even with no other model beside it: its leanest layout "
            f"(on {gpus_text(need.num_gpus)}) needs {need.required_bytes / GIB:.2f} GiB per GPU "
            f"and {need.capacity_bytes / GIB:.2f} GiB may be filled, "
            f"{need.over_bytes / GIB:.2f} GiB too many{held}"
        ),
        phase=need.call,
        required_bytes=need.required_bytes,
        capacity_bytes=need.capacity_bytes,
        over_bytes=need.over_bytes,
    )


def _excluded(spec: JobSpec) -> Reason:
    """Memory suffices, but no placement obeys all constraints."""
    default = ConstraintsSpec()
    given = [
        f"constraints.{field}"
        for field in EXCLUDING
        if getattr(spec.constraints, field) != getattr(default, field)
    ]
    return Reason(
        summary=f"every model fits by itself, but the constraints ({', '.join(given) or 'none'}) "
        "leave no common placement"
    )


def _too_slow(spec: JobSpec, target_seconds: float) -> Diagnosis:
    """Everything fits, but even the fastest plan on all GPUs misses the target."""
    search = spec.search.model_copy(
        update={"objective": "throughput", "target_iteration_seconds": None}
    )
    job = resolve(spec.model_copy(update={"search": search}))
    tables = price_candidates(job)
    best = best_placement(job, SearchSpace.of(job, tables), STARTS)
    assert best.solution is not None, "the job fits"
    # Rounded up, so that the plan just meets it.
    reachable = ceil(best.solution.timing.period * 1000 + 1) / 1000
    reason = Reason(
        summary=(
            f"no plan meets search.target_iteration_seconds {target_seconds:g}: the fastest takes "
            f"{best.solution.timing.period:.3f} s on the whole cluster"
        ),
        remedy=f"raise search.target_iteration_seconds to {reachable:.3f}, or add GPUs",
    )
    return Diagnosis([reason], reachable_seconds=reachable)


def excess_of(spec: JobSpec) -> MemoryNeed | None:
    """How far the best placement for memory is over; None when something fits."""
    job = resolve(spec)
    tables = price_candidates(job, fits_only=False, lean=True)
    return least_excess(SearchSpace.of(job, tables))


def _cause(found: MemoryNeed) -> Reason:
    held = ""
    if found.holder_bytes > 0.1 * found.required_bytes:
        held = f"; {found.holder} alone holds {found.holder_bytes / GIB:.2f} GiB all the time"
    where = f"even in the leanest placement (on {gpus_text(found.num_gpus)})"
    return Reason(
        summary=(
            f"{found.call} does not fit beside the other models: {where} it takes "
            f"{found.required_bytes / GIB:.2f} GiB per GPU together and "
            f"{found.capacity_bytes / GIB:.2f} GiB may be filled, "
            f"{found.over_bytes / GIB:.2f} GiB too many{held}"
        ),
        phase=found.call,
        required_bytes=found.required_bytes,
        capacity_bytes=found.capacity_bytes,
        over_bytes=found.over_bytes,
    )
