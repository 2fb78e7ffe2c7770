"""A launch of all settings that were collected, before its files are written."""

from collections.abc import Mapping, Sequence

from automap.planner.exports.launch import Launch, Placeholder
from automap.planner.exports.lines import Lines
from automap.planner.exports.subject import Subject


def collected(
    subject: Subject,
    lines: Lines,
    *,
    environment: Mapping[str, str] | None = None,
    placeholders: Sequence[Placeholder] = (),
) -> Launch:
    """The launch with neither script nor files; its own `placeholders` go before the settings'."""
    return Launch(
        target=subject.framework.target,
        plan=subject.plan.name,
        num_nodes=len(subject.nodes(subject.plan.copies)),
        gpus_per_node=len(subject.gpus_of_node()),
        iterations=subject.job.spec.workload.iterations,
        assumptions=[*subject.framework.assumptions, *subject.plan.assumptions],
        environment=dict(environment or {}),
        settings=lines.settings,
        placeholders=[*placeholders, *lines.placeholders],
        script="",
    )
