"""Say a plan in the words of another framework."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from automap.planner.check.trust import need_sound
from automap.planner.errors import NotExportableError
from automap.planner.exports.areal.settings import launch_of as areal_launch
from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.memory_share import FILLED_WITH_A_CHANCE_OF, spare_cache_bytes
from automap.planner.exports.nemo_rl.settings import launch_of as nemo_rl_launch
from automap.planner.exports.openrlhf.settings import launch_of as openrlhf_launch
from automap.planner.exports.refusals import refusals
from automap.planner.exports.skyrl.settings import launch_of as skyrl_launch
from automap.planner.exports.slime.settings import launch_of as slime_launch
from automap.planner.exports.subject import Subject, subject_of
from automap.planner.exports.trl.settings import launch_of as trl_launch
from automap.planner.exports.verl.settings import launch_of as verl_launch
from automap.planner.frameworks.description import framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan

EXPORTERS: Mapping[str, Callable[[Subject], Launch]] = {
    "verl": verl_launch,
    "slime": slime_launch,
    "nemo-rl": nemo_rl_launch,
    "openrlhf": openrlhf_launch,
    "trl": trl_launch,
    "skyrl": skyrl_launch,
    "areal": areal_launch,
}
"""Name of a framework → what says in its words a plan that none of its limits refuses."""


def export(
    plan: Plan,
    target: str,
    *,
    spare_cache: bool = True,
    says_model: bool = True,
    beside: Callable[[Subject], Mapping[str, str]] = lambda subject: {},
    most_sequences: int | None = None,
) -> Launch:
    """The launch that runs a plan on a framework, `name@version`.

    Args:
        plan: A plan that passes the check.
        target: The framework, `name@version`.
        spare_cache: Whether engines get the memory that the plan leaves free as cache, too.
        says_model: Whether the launch is to say what the actor is, where the framework does not
            read it from the model; one that exists says it already.
        beside: What a launch that is converted says beside the plan: key → value.
        most_sequences: What all engines of such a launch run at once; None: it has no limit.

    Raises:
        NotExportableError: the framework cannot be told the plan; has every reason.
        PlanCheckError: the plan fails the check.
        SpecError: no such framework is described.
    """
    described = framework(target)
    need_sound(plan)
    subject = subject_of(resolve(plan.spec), plan, described)
    subject = replace(
        subject,
        says_model=says_model,
        beside=beside(subject),
        most_sequences=most_sequences,
    )
    reasons = refusals(subject)
    if reasons:
        raise NotExportableError(described.target, reasons)
    spare = spare_cache_bytes(subject) if spare_cache else 0
    return EXPORTERS[described.name](replace(subject, spare_cache_bytes=spare))


def settings_of(
    plan: Plan,
    target: str,
    *,
    token_budgets: frozenset[str] | None = None,
    spare_cache: bool = True,
    spare_chance: float = FILLED_WITH_A_CHANCE_OF,
) -> list[LaunchSetting]:
    """The settings of a plan, also of one that the framework could not run as it is.

    Args:
        plan: A plan of a job that the framework has the algorithm for.
        target: The framework, `name@version`.
        token_budgets: Roles whose micro-batches are to be numbers of tokens; None: as the framework
            has them.
        spare_cache: Whether engines get the memory that the plan leaves free as cache, too.
        spare_chance: Chance of running out of memory up to which they do.
    """
    described = framework(target)
    subject = subject_of(resolve(plan.spec), plan, described)
    spare = spare_cache_bytes(subject, spare_chance) if spare_cache else 0
    told = replace(subject, token_budgets=token_budgets, spare_cache_bytes=spare)
    return EXPORTERS[described.name](told).settings
