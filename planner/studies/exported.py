"""The launch of a plan on a framework, also of one that it was not made for: it is priced there."""

from collections.abc import Callable

from automap.planner.errors import InfeasibleError, NotExportableError, SpecError
from automap.planner.exports import exporting
from automap.planner.exports.launch import Launch
from automap.planner.frameworks.description import framework
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate


def export(plan: Plan, target: str, *, say: Callable[..., Launch] = exporting.export) -> Launch:
    """The launch that runs a plan on a framework, `name@version`.

    The seconds that it states are those of the framework's own software, and so are the bytes that
    have to fit: software for another target may take less memory for the same placement.

    `say` makes the launch of a plan; see `conversion.saying`.

    Raises:
        NotExportableError: the framework cannot be told the plan, or it does not fit there; has
            every reason.
        PlanCheckError: the plan fails the check.
        SpecError: no such framework is described.
    """
    target = framework(target).target
    launch = say(plan, target)
    if plan.search.target == target:
        return launch
    search = plan.spec.search.model_copy(update={"target": target})
    spec = plan.spec.model_copy(update={"search": search})
    try:
        return say(estimate(spec, plan.placement()), target)
    except SpecError as error:
        told = f"seconds are those of the software that the plan was made for, as {error}"
        assumptions = [*plan.assumptions, told]
        return say(plan.model_copy(update={"assumptions": assumptions}), target)
    except InfeasibleError as error:
        told, remedy = f"with the software of {target}", f"plan it for that: search.target {target}"
        reasons = [
            each.model_copy(update={"summary": f"{told}, {each.summary}", "remedy": remedy})
            for each in error.reasons
        ]
        raise NotExportableError(target, reasons) from None
