"""Say a plan in the words of another framework."""

from automap.planner.check.trust import need_sound
from automap.planner.errors import NotExportableError
from automap.planner.exports.launch import Launch
from automap.planner.exports.verl.refusals import refusals
from automap.planner.exports.verl.settings import launch_of
from automap.planner.exports.verl.subject import subject_of
from automap.planner.frameworks.description import framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan


def export(plan: Plan, target: str) -> Launch:
    """The launch that runs a plan on a framework, `name@version`.

    Raises:
        NotExportableError: the framework cannot be told the plan; has every reason.
        PlanCheckError: the plan fails the check.
        SpecError: no such framework is described.
    """
    described = framework(target)
    need_sound(plan)
    subject = subject_of(resolve(plan.spec), plan, described)
    reasons = refusals(subject)
    if reasons:
        raise NotExportableError(target, reasons)
    return launch_of(subject)
