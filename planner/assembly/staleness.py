"""Whether a plan with stale rollouts gains anything by them.

Old weights cost learning, and overlap is harder to run than turns. Models that share all their GPUs
never work at the same time, whatever they may.
"""

from automap.planner.assembly.given import scheduled
from automap.planner.assembly.plan import value_of
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan

LITTLE = 0.01
"""A gain that nobody would pay with old weights: prices tell nothing so small apart."""


def useless_staleness(job: Job, plan: Plan) -> str | None:
    """A warning where the same placement in turns takes hardly longer; None where staleness pays.

    Targets that generate stale rollouts on GPUs of their own are not asked: in turns they would
    have other placements.
    """
    search = job.spec.search
    if not search.staleness or not search.iteration_barrier or plan.continuous is not None:
        return None
    if job.target.stale_rollouts_apart or job.target.rollouts_apart:
        return None
    if search.objective == "fewest_gpus":  # its value says nothing of seconds
        return None
    spec = job.spec.model_copy(update={"search": search.model_copy(update={"staleness": 0})})
    try:
        fresh = resolve(spec)
        placement, timing = scheduled(fresh, plan.placement())
    except (SpecError, InfeasibleError):
        return None
    value = plan.search.objective_value
    gain = value_of(fresh, placement, timing.period) / value - 1
    if gain > LITTLE:
        return None
    saved = "nothing" if gain < LITTLE / 100 else f"{gain:.1%}"
    return (
        f"search.staleness: {search.staleness} gains {saved} here, as the same placement in turns "
        "shows, and rollouts of old weights learn more slowly: set it to 0, or give generation "
        "GPUs of its own"
    )
