"""One job under three schedules: synchronous, one step off, and continuous generation."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

from automap.planner.errors import PlanningError
from automap.planner.job.resolution import resolve
from automap.planner.job.targets import UNKNOWN
from automap.planner.plan.types import CallPlan, Plan, ResultModel
from automap.planner.spec import JobSpec
from automap.planner.studies.planned import best_plan
from automap.planner.targets.tables import ANY

Schedule = Literal["synchronous", "one step off", "continuous"]
USUAL_STALENESS = 4
"""Staleness of the continuous plan where the spec asks for none: AReaL learns as well with it as
with none (arXiv 2505.24298)."""


class ScheduleCost(ResultModel):
    """The best plan of a job under one schedule."""

    schema_version: Literal[1] = 1
    schedule: Schedule
    staleness: int
    plan: Plan | None
    """Absent where the schedule is not for this job, or nothing was found."""
    reason: str = ""
    """Why there is no plan."""
    times_faster: float | None = None
    """Seconds of the synchronous plan over this one's; None: one of them is missing."""
    generating_gpus: int = 0
    """GPUs of the copy that generates."""
    idle_generating: float | None = None
    """Share of the period in which these do nothing."""
    idle_others: float | None = None
    """Share in which all other GPUs in use do nothing; None: there are none."""


def schedules(spec: JobSpec, *, tell: Callable[[str], None] = lambda _: None) -> list[ScheduleCost]:
    """The best plans of a job that waits for every batch, for the one before, and for none.

    Inside the spec's target; without one all of everything that can be priced, with the memory to
    spare that the job has. Each has the spec's time limit, and none is simplified, as what is
    compared are optima. A spec that asks for continuous rollouts says their staleness, another gets
    `USUAL_STALENESS`.
    """
    found: list[ScheduleCost] = []
    for name, changes in _schedules(spec):
        tell(name)
        # Named, as without a name one target would decide what the spec leaves open.
        target = spec.search.target or ANY.name
        search = spec.search.model_copy(
            update={"target": target, "strategy": None, "simplicity_tolerance": 0.0, **changes}
        )
        wanted = JobSpec.model_validate(
            {**spec.model_dump(exclude_unset=True), "search": search.model_dump()}
        )
        try:
            job = resolve(wanted)
            if spec.search.target is None:
                job = replace(job, target=UNKNOWN)
            plan = best_plan(job)
        except PlanningError as error:
            plan, reason = None, str(error)
        else:
            reason = ""
        first = found[0].plan if found else plan
        found.append(_cost(name, search.staleness, plan, reason, first))
    return found


def _schedules(spec: JobSpec) -> Iterator[tuple[Schedule, dict[str, Any]]]:
    batches = {"continuous_rollouts": False, "keep_cache_at_sync": None}
    yield "synchronous", {"staleness": 0, "iteration_barrier": True, **batches}
    yield "one step off", {"staleness": 1, **batches}
    asked = spec.search.staleness if spec.search.continuous_rollouts else USUAL_STALENESS
    without = ("streaming", "generation_tail", "generation_tensor_schedule")
    flows = dict.fromkeys(without, False)
    yield "continuous", {"staleness": asked, "continuous_rollouts": True, **flows}


def _cost(
    name: Schedule, staleness: int, plan: Plan | None, reason: str, first: Plan | None
) -> ScheduleCost:
    if plan is None:
        return ScheduleCost(schedule=name, staleness=staleness, plan=None, reason=reason)
    ranges = {copy.id: (copy.pool, copy.first_gpu, copy.num_gpus) for copy in plan.copies}
    generating = {
        gpu for call in plan.calls if call.kind == "generate" for gpu in _gpus(ranges, call.copy_id)
    }
    every = {gpu for copy in plan.copies for gpu in _gpus(ranges, copy.id)}
    return ScheduleCost(
        schedule=name,
        staleness=staleness,
        plan=plan,
        times_faster=None if first is None else first.iteration_seconds / plan.iteration_seconds,
        generating_gpus=len(generating),
        idle_generating=_idle(plan, ranges, generating),
        idle_others=_idle(plan, ranges, every - generating),
    )


_Gpu = tuple[str, int]


def _gpus(ranges: dict[str, tuple[str, int, int]], copy_id: str | None) -> set[_Gpu]:
    if copy_id is None:
        return set()
    pool, first, count = ranges[copy_id]
    return {(pool, gpu) for gpu in range(first, first + count)}


def _idle(plan: Plan, ranges: dict[str, tuple[str, int, int]], among: set[_Gpu]) -> float | None:
    """Mean share of the period in which these GPUs run no call and no weight sync."""
    if not among:
        return None
    busy = 0.0
    for call in plan.calls:
        busy += _seconds(call) * len(_gpus(ranges, call.copy_id) & among)
    for sync in plan.transitions:
        taken = _gpus(ranges, sync.source_copy) | _gpus(ranges, sync.target_copy)
        busy += (sync.end_seconds - sync.start_seconds) * len(taken & among)
    return max(1.0 - busy / (plan.iteration_seconds * len(among)), 0.0)


def _seconds(call: CallPlan) -> float:
    return call.end_seconds - call.start_seconds
