"""Decide whether a plan from outside, a file or a store, still agrees with its job here."""

from functools import lru_cache

from automap.planner.check.check import violations
from automap.planner.errors import PlanCheckError
from automap.planner.job.resolution import resolve
from automap.planner.plan.provenance import other_versions
from automap.planner.plan.types import Plan

KEPT = 8
"""Number of plans whose check is remembered: whoever asks about a running plan asks again soon."""


def need_sound(plan: Plan) -> None:
    """Refuse a plan that contradicts itself or the prices of its job.

    Raises:
        PlanCheckError: what the check finds, and whether another version made the plan.
        SpecError: its spec is not one of this version.
        TypeError: it is no plan, but perhaps the document of one.
    """
    if not isinstance(plan, Plan):
        raise TypeError(
            f"the plan is a {type(plan).__name__}, not a Plan: "
            "Plan.model_validate(document) makes one of a document"
        )
    found = _violations(plan.model_dump_json(by_alias=True))
    if found:
        raise PlanCheckError(other_versions(plan.provenance, resolve(plan.spec)), found)


@lru_cache(maxsize=KEPT)
def _violations(document: str) -> tuple[str, ...]:
    plan = Plan.model_validate_json(document)
    return tuple(violations(resolve(plan.spec), plan))
