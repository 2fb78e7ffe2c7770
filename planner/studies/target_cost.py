"""What it costs to plan for a target: its best plan beside the free one, and limit by limit."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pydantic import Field

from automap.planner.errors import NoSolutionInTimeError, PlanningError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve, with_table
from automap.planner.plan.types import Plan, ResultModel
from automap.planner.spec import JobSpec, TargetName
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
    free_value: float | None = None
    """The objective of the best plan without any target, with the same margin of memory; None: the
    time limit ended that search."""
    share: float | None = None
    """How much more the target's plan takes, as a share of that."""
    limits: list[LimitCost] = Field(default_factory=list)
    """The costliest first; costs do not add up, as limits hide each other. Missing are those
    without which the time limit ended the search."""
    seconds: float = 0.0
    """Wall seconds that all plans together took."""


def target_cost(
    spec: JobSpec,
    target: TargetName,
    *,
    by_limit: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> TargetCost:
    """The best plan inside a target, what its limits cost in all, and each of them alone.

    Every plan has the spec's time limit; none is simplified, as what is compared are optima.

    Args:
        spec: The job; its own `search.target` does not count.
        target: What is to run it.
        by_limit: False leaves out the plans without one limit.
        tell: Hears how far it is.
    """
    started = time.perf_counter()
    try:
        job = resolve(_for_target(spec, target))
        plan = best_plan(job)
    except PlanningError as error:
        return TargetCost(
            target=target, plan=None, reason=str(error), seconds=time.perf_counter() - started
        )
    tell(f"{target} without limits")
    free = replace(ANY, max_out_of_memory_probability=job.max_out_of_memory_probability)
    own, costs = plan.search.objective_value, list[LimitCost]()
    # As the spec has it, also where the target can only pad.
    as_said = {"packed_sequences": spec.workload.packed_sequences}
    workload = job.spec.workload.model_copy(update=as_said)
    own_job = replace(job, spec=job.spec.model_copy(update={"workload": workload}))
    free_value = _value(with_table(own_job, free))
    if free_value is not None:
        free_value = min(own, free_value)  # a search that was cut
    for words, lifted in limits(TARGETS[target]) if by_limit else ():
        tell(f"{target} without: {words}")
        try:
            pads = lifted.padded_only or not TARGETS[target].padded_only
            found = best_plan(with_table(job if pads else own_job, lifted)).search
        except NoSolutionInTimeError:
            continue  # the larger space takes longer
        costs.append(
            LimitCost(
                limit=words,
                objective_value=found.objective_value,
                share=max(1.0 - found.objective_value / own, 0.0) if own else 0.0,
                proven=found.status == "optimal" and plan.search.status == "optimal",
            )
        )
    return TargetCost(
        target=target,
        plan=plan,
        free_value=free_value,
        share=None if free_value is None else own / free_value - 1.0 if free_value else 0.0,
        limits=sorted(costs, key=lambda each: -each.share),
        seconds=time.perf_counter() - started,
    )


def _for_target(spec: JobSpec, target: TargetName) -> JobSpec:
    asked = inside(spec, target)
    search = asked.search.model_copy(update={"simplicity_tolerance": 0.0})
    return asked.model_copy(update={"search": search})


def _value(job: Job) -> float | None:
    """The objective of the best plan; None where the time limit ends the search before."""
    try:
        return best_plan(job).search.objective_value
    except NoSolutionInTimeError:
        return None
