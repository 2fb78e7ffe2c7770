"""A launch of all settings that were collected, before its files are written."""

from collections.abc import Mapping, Sequence

from automap.planner.exports.launch import Launch, LaunchSetting, Placeholder
from automap.planner.exports.lines import Lines
from automap.planner.exports.subject import Subject

MADE_OF = "the launch that this one is made of"
"""Where a setting of a conversion comes from that no plan has."""


def collected(
    subject: Subject,
    lines: Lines,
    *,
    environment: Mapping[str, str] | None = None,
    placeholders: Sequence[Placeholder] = (),
) -> Launch:
    """The launch with neither script nor files; its own `placeholders` go before the settings'."""
    settings = _with_beside(lines.settings, subject.beside)
    asked = {each.value for each in settings if each.placeholder}
    return Launch(
        target=subject.framework.target,
        plan=subject.plan.name,
        num_nodes=len(subject.nodes(subject.plan.copies)),
        gpus_per_node=len(subject.gpus_of_node()),
        iterations=subject.job.spec.workload.iterations,
        assumptions=[*subject.framework.assumptions, *subject.plan.assumptions],
        environment=dict(environment or {}),
        settings=settings,
        placeholders=[*placeholders, *(p for p in lines.placeholders if p.variable in asked)],
        script="",
    )


def _with_beside(settings: list[LaunchSetting], beside: Mapping[str, str]) -> list[LaunchSetting]:
    """The settings with what a launch that is converted says beside its plan."""
    said = {
        key: LaunchSetting(key=key, value=value, because=MADE_OF) for key, value in beside.items()
    }
    there = {each.key.lstrip("+") for each in settings}
    # With a + or without, as the framework's own files have the key or not.
    kept = [
        said[name].model_copy(update={"key": each.key})
        if (name := each.key.lstrip("+")) in said
        else each
        for each in settings
    ]
    return [*kept, *(each for key, each in said.items() if key not in there)]
