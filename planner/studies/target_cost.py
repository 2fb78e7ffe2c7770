"""What it costs to plan for a target: its best plan beside the free one, and limit by limit."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from automap.planner.cost.pricing import Pricing
from automap.planner.errors import NoSolutionInTimeError, PlanningError, SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve, with_table
from automap.planner.plan.runs_with import refusals
from automap.planner.plan.types import Plan, ResultModel
from automap.planner.spec import JobSpec, TargetName, need_spec, with_version
from automap.planner.studies.conversion import inside_another
from automap.planner.studies.planned import best_plan
from automap.planner.targets.limits import limits
from automap.planner.targets.tables import ANY, TARGETS, inside


class LimitCost(ResultModel):
    """One limit of a target, and the best plan without it."""

    limit: str
    """What the target cannot do, in words."""
    objective_value: float
    """The objective of the best plan of a target without this limit alone."""
    share: float
    """How much less that is, as a share of the target's own; 0: nothing."""
    proven: bool


class TargetCost(ResultModel):
    """A job's best plan inside a target, beside what it could be."""

    schema_version: Literal[1] = 1
    target: TargetName
    plan: Plan | None
    """Absent where the target cannot run the job, or nothing was found."""
    reason: str = ""
    """Why there is no plan."""
    otherwise: dict[str, Any] = Field(default_factory=dict)
    """Field of the workload → what its plan has there instead of what the spec asks for."""
    free_value: float | None = None
    """The objective of the best plan of all for the job as this target has it, with the same margin
    of memory; None: the time limit ended the search of that."""
    share: float | None = None
    """How much more the target's plan takes, as a share of that."""
    driver_seconds: float | None = None
    """Seconds of an iteration that the target's driver was measured to take besides: a plan for it
    has them, and no value here. None: nobody has measured them."""
    lacks: list[str] = Field(default_factory=list)
    """What of that best plan, which may be another target's, this one cannot run, a sentence each;
    empty beside a share above 0: it runs it, and its software is priced as slower, or its own
    search was cut."""
    limits: list[LimitCost] = Field(default_factory=list)
    """The costliest first; costs do not add up, as limits hide each other. Missing are those
    without which the time limit ended the search."""
    seconds: float = 0.0
    """Wall seconds that all plans together took."""


def target_costs(
    spec: JobSpec,
    targets: Iterable[TargetName],
    *,
    by_limit: bool = True,
    nearest: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> list[TargetCost]:
    """For each target the best plan inside it, what its limits cost in all, and each alone.

    What the drivers of some targets were measured to take is left out: of others it is not known.

    Every plan has the spec's time limit; none is simplified, as what is compared are optima. The
    best plan of all is searched once for targets that have the same job. Where a target's own is
    better, because its software is faster, that one is the best of all.

    Args:
        spec: The job; its own `search.target` does not count.
        targets: What is to run it.
        by_limit: False leaves out the plans without one limit.
        nearest: Where a target has the KL divergence, old log-probabilities or packing otherwise
            than the spec asks, plan with what it has; what that costs is its limits' cost too.
        tell: Hears how far it is.
    """
    need_spec(spec)
    known: dict[str, Plan | None] = {}
    found, best = list[_Found](), dict[str, Plan]()
    for name in targets:
        target = next(each for each in TARGETS if each == with_version(name))
        each = _found(spec, target, known, by_limit=by_limit, nearest=nearest, tell=tell)
        found.append(each)
        free, own = known.get(each.key), each.cost.plan
        if free is not None and own is not None:
            best[each.key] = min(best.get(each.key, free), own, key=_value)
    return [_beside(each, best[each.key]) if each.key in best else each.cost for each in found]


def target_cost(
    spec: JobSpec,
    target: TargetName,
    *,
    by_limit: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> TargetCost:
    """What one target costs, as `target_costs` has it of several."""
    return target_costs(spec, [target], by_limit=by_limit, tell=tell)[0]


def driver_seconds(spec: JobSpec) -> float | None:
    """Seconds of its target's driver in the price of an iteration; None: nobody measured them."""
    return sum(Pricing(resolve(spec)).iteration_driver_seconds()) or None


@dataclass(frozen=True, slots=True)
class _Found:
    """What a target has by itself, before it is set beside what others have."""

    cost: TargetCost
    key: str = ""
    """What tells its job from others, whatever is to run it."""
    job: Job | None = None
    """The job as the target has it, None where there is no plan."""


def _value(plan: Plan) -> float:
    return plan.search.objective_value


def _beside(found: _Found, best: Plan) -> TargetCost:
    """A cost beside the best plan of all that are of the same job."""
    cost, job = found.cost, found.job
    if cost.plan is None or job is None:
        return cost
    own, least = _value(cost.plan), _value(best)
    lacks = refusals(job, best.placement(), TARGETS[cost.target]) if least < own else []
    share = own / least - 1.0 if least else 0.0
    return cost.model_copy(update={"free_value": least, "share": share, "lacks": lacks})


def _found(
    spec: JobSpec,
    target: TargetName,
    known: dict[str, Plan | None],
    *,
    by_limit: bool,
    nearest: bool,
    tell: Callable[[str], None],
) -> _Found:
    """A target's best plan and its limits; the best one without any target comes to `known`."""
    started = time.perf_counter()
    tell(target)
    try:
        job = replace(_job_for(spec, target, nearest=nearest), counts_driver=False)
        plan = best_plan(job)
    except PlanningError as error:
        seconds = time.perf_counter() - started
        return _Found(TargetCost(target=target, plan=None, reason=str(error), seconds=seconds))
    otherwise = _otherwise(spec, job)
    as_said = {name: getattr(spec.workload, name) for name in otherwise}
    tell(f"{target} without limits")
    # Packed where the spec has it so, also where the target can only pad.
    asked = _with(job, packed_sequences=spec.workload.packed_sequences, **as_said)
    key = _key(asked)
    _plan_freely(asked, key, known)
    unpadded = _with(job, packed_sequences=spec.workload.packed_sequences)
    costs = _limit_costs(job, unpadded, plan, tell) if by_limit else ()
    cost = TargetCost(
        target=target,
        plan=plan,
        otherwise=otherwise,
        driver_seconds=driver_seconds(job.spec),
        limits=sorted(costs, key=lambda each: -each.share),
        seconds=time.perf_counter() - started,
    )
    return _Found(cost, key, job)


def _key(job: Job) -> str:
    """What tells a job from others, whatever is to run it."""
    search = job.spec.search.model_copy(update={"target": None})
    spec = job.spec.model_copy(update={"search": search}).model_dump_json()
    # Without batches a target's rules are a part of the job: what waits for what.
    rules = job.target.continuous if job.spec.search.continuous_rollouts else None
    return f"{job.max_out_of_memory_probability} {rules} {spec}"


def _plan_freely(job: Job, key: str, known: dict[str, Plan | None]) -> None:
    """Have the best plan without any target be `known`, None if not found in time."""
    if key not in known:
        flows = job.spec.search.continuous_rollouts
        free = replace(
            ANY,
            continuous=job.target.continuous if flows else ANY.continuous,
            max_out_of_memory_probability=job.max_out_of_memory_probability,
        )
        try:
            known[key] = best_plan(with_table(job, free))
        except NoSolutionInTimeError:
            known[key] = None


def _limit_costs(
    job: Job, unpadded: Job, plan: Plan, tell: Callable[[str], None]
) -> Iterator[LimitCost]:
    """Each limit alone; `unpadded` has sequences as the spec has them, where the target pads."""
    target, own = TARGETS[job.target.name], plan.search.objective_value
    for words, lifted in limits(target):
        tell(f"{target.name} without: {words}")
        try:
            pads = lifted.padded_only or not target.padded_only
            found = best_plan(with_table(job if pads else unpadded, lifted)).search
        except NoSolutionInTimeError:
            continue  # the larger space takes longer
        yield LimitCost(
            limit=words,
            objective_value=found.objective_value,
            share=max(1.0 - found.objective_value / own, 0.0) if own else 0.0,
            proven=found.status == "optimal" and plan.search.status == "optimal",
        )


def _job_for(spec: JobSpec, target: TargetName, *, nearest: bool) -> Job:
    """The job for a target, whose best plan is asked for, and no simpler one."""
    try:
        return resolve(_optimal(inside(spec, target)))
    except SpecError:
        if not nearest:
            raise
        return resolve(_optimal(inside_another(spec, target)))


def _otherwise(spec: JobSpec, job: Job) -> dict[str, Any]:
    """Settings of the workload that a job has otherwise than its spec says."""
    return {
        name: getattr(job.spec.workload, name)
        for name in sorted(spec.workload.model_fields_set)
        if getattr(job.spec.workload, name) != getattr(spec.workload, name)
    }


def _with(job: Job, **workload: Any) -> Job:
    """A job with some fields of its workload changed, and nothing checked."""
    changed = job.spec.workload.model_copy(update=workload)
    return replace(job, spec=job.spec.model_copy(update={"workload": changed}))


def _optimal(asked: JobSpec) -> JobSpec:
    search = asked.search.model_copy(update={"simplicity_tolerance": 0.0})
    return asked.model_copy(update={"search": search})
