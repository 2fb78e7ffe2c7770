"""Say a plan in the words of another framework."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from automap.planner.check.trust import need_sound
from automap.planner.errors import NotExportableError
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.refusals import refusals
from automap.planner.exports.verl.settings import launch_of
from automap.planner.exports.subject import subject_of
from automap.planner.frameworks.description import Framework, framework
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan


def _verl(job: Job, plan: Plan, described: Framework) -> Launch:
    subject = subject_of(job, plan, described)
    reasons = refusals(subject)
    if reasons:
        raise NotExportableError(described.target, reasons)
    return launch_of(subject)


EXPORTERS: Mapping[str, Callable[[Job, Plan, Framework], Launch]] = {"verl": _verl}
"""Name of a framework → what says a plan in its words, or raises NotExportableError."""


def export(plan: Plan, target: str) -> Launch:
    """The launch that runs a plan on a framework, `name@version`.

    Raises:
        NotExportableError: the framework cannot be told the plan; has every reason.
        PlanCheckError: the plan fails the check.
        SpecError: no such framework is described.
    """
    described = framework(target)
    need_sound(plan)
    return EXPORTERS[described.name](resolve(plan.spec), plan, described)


def settings_of(
    plan: Plan, target: str, *, token_budgets: frozenset[str] = frozenset()
) -> list[LaunchSetting]:
    """The settings of a plan, also of one that the framework could not run as it is.

    Args:
        plan: A plan of a job that the framework has the algorithm for.
        target: The framework, `name@version`.
        token_budgets: Roles whose micro-batches are to be numbers of tokens.
    """
    subject = subject_of(resolve(plan.spec), plan, framework(target))
    return launch_of(replace(subject, token_budgets=token_budgets)).settings
