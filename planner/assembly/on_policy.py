"""A plan that may use stale rollouts, made without them where they gain nothing.

Old weights cost learning, and overlap is harder to run than turns. So nothing is planned stale for
the sake of a cycle that is no shorter: of models that share all their GPUs, most of all.
"""

from automap.planner.assembly.given import scheduled
from automap.planner.assembly.plan import plan_from, value_of
from automap.planner.assembly.proof import why_stopped
from automap.planner.check.check import violations
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.search import describe_space

NOISE = 1e-9


def without_useless_staleness(job: Job, plan: Plan) -> tuple[Job, Plan]:
    """The plan and its job with `search.staleness` 0, where its placement is as good in turns.

    As good is, of a proven plan, what `search.simplicity_tolerance` allows. What was proven of the
    plan holds: whatever a job can do in turns is in the space that was searched. Only targets where
    that is so are asked, and where an iteration has a barrier but for the staleness.
    """
    search = job.spec.search
    if not search.staleness or not search.iteration_barrier or plan.continuous is not None:
        return job, plan
    if job.target.stale_rollouts_apart or job.target.rollouts_apart:
        return job, plan
    spec = job.spec.model_copy(update={"search": search.model_copy(update={"staleness": 0})})
    fresh = resolve(spec)
    try:
        placement, timing = scheduled(fresh, plan.placement())
    except (SpecError, InfeasibleError):
        return job, plan
    report, value = plan.search, value_of(fresh, placement, timing.period)
    most = report.objective_value
    if report.status == "optimal" or report.within_tolerance is not None:
        most = max(most, report.lower_bound * (1 + job.simplicity_tolerance))
    if report.robust is not None or value > most * (1 + NOISE):
        return job, plan
    update: dict[str, object] = {"objective_value": value, "space": describe_space(fresh)}
    if value > report.objective_value * (1 + NOISE) and report.status == "optimal":
        update |= {"status": "feasible", "within_tolerance": job.simplicity_tolerance}
    report = report.model_copy(update=update)
    nominal = report.status == "optimal" or report.within_tolerance is not None
    stopped = why_stopped(spec, report, nominal_proven=nominal)
    report = report.model_copy(update={"stopped": stopped})
    made = plan_from(fresh, placement, timing, report, plan.lower_bound_seconds)
    if violations(fresh, made):
        return job, plan
    told = (
        f"search.staleness: {search.staleness} is allowed and nothing is gained by it here, so "
        "rollouts have the newest weights (0)"
    )
    update = {"assumptions": [told, *made.assumptions], "warnings": [told, *made.warnings]}
    return fresh, made.model_copy(update=update)
