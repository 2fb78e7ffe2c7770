"""Named strategies beside a plan: what they take, and in what they differ from it."""

from automap.planner.assembly.plan import placement_of
from automap.planner.job.job import Job
from automap.planner.plan.price import objective_value, paid_gpus, price_per_second
from automap.planner.plan.types import CallPlacement, CopyPlacement, Placement, Plan, Strategy
from automap.planner.search import Attempt, Tables

SHOWN_SECONDS = 5e-4
"""Half of the last digit of seconds that is shown: what is closer counts as equally fast."""
SHOWN_SHARE = 5e-4
"""Half of the last digit of a price, which is shown in tenths of a percent: what is closer counts
as equally cheap."""
NOISE = 1e-9
"""Share by which values that are equal may differ as they are added up in another order."""


def strategy(job: Job, tables: Tables, plan: Plan, attempt: Attempt) -> Strategy:
    """A baseline beside the plan: what it takes, and where it loses or why it cannot run."""
    if attempt.selected is None:
        return Strategy(name=attempt.strategy, feasible=False, reason=attempt.reason)
    placement = placement_of(job, tables, attempt.selected)
    period = attempt.selected.timing.period
    price_rate = price_per_second(job.pools, placement.copies)
    price = period * price_rate
    num_gpus = sum(paid_gpus(job.pools, placement.copies).values())
    difference = _difference(plan, placement, seconds=period, price=price, num_gpus=num_gpus)
    simpler = simpler_in_words(plan, objective_value(plan.spec, period, price_rate, num_gpus))
    return Strategy(
        name=attempt.strategy,
        feasible=True,
        iteration_seconds=period,
        times_slower=period / plan.iteration_seconds if plan.iteration_seconds else 1.0,
        price_per_iteration=price,
        claimed_seconds=attempt.claimed_seconds,
        reason="; ".join(filter(None, (difference, simpler, attempt.note))),
        placement=placement,
    )


def simpler_in_words(plan: Plan, value: float) -> str | None:
    """Why the plan was taken and not a placement with this value of the objective.

    None: that is no better than the plan, or was no choice, or the plan is not the simpler one.
    """
    search = plan.search
    if search.within_tolerance is None:
        return None
    if not search.lower_bound * (1 - NOISE) <= value < search.objective_value * (1 - NOISE):
        return None
    return (
        "the plan is simpler or leaves more memory free, and within "
        f"{100 * search.within_tolerance:.3g} % of the best (search.simplicity_tolerance)"
    )


def _difference(
    plan: Plan, placement: Placement, *, seconds: float, price: float, num_gpus: int
) -> str:
    """In words: the same placement, or how its seconds and what the objective asks for differ."""
    if _parts(placement) == _parts(plan.placement()):
        return "same placement"
    slower = seconds - plan.iteration_seconds
    words = "as fast, placed otherwise"
    if abs(slower) >= SHOWN_SECONDS:
        words = f"{abs(slower):.3f} s {'slower' if slower > 0 else 'faster'}"
    objective = plan.spec.search.objective
    if objective in ("price", "run_price") and plan.price_per_iteration > 0:
        dearer = price / plan.price_per_iteration - 1
        if abs(dearer) >= SHOWN_SHARE:
            words += f", {100 * abs(dearer):.1f} % {'dearer' if dearer > 0 else 'cheaper'}"
    if objective == "fewest_gpus" and num_gpus != plan.gpus_used:
        words += f", on {num_gpus} GPUs instead of {plan.gpus_used}"
    return words


def _parts(placement: Placement) -> tuple[dict[str, CopyPlacement], dict[str, CallPlacement]]:
    """Copies and calls by name: independent calls may be listed in any order."""
    return (
        {copy.id: copy for copy in placement.copies},
        {call.id: call for call in placement.calls},
    )
