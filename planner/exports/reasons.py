"""A limit of a framework that a plan breaks, and the reason in the words of its description."""

from collections.abc import Iterable
from dataclasses import dataclass

from automap.planner.errors import Reason
from automap.planner.exports.subject import Subject


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that a plan does and that some framework cannot be told."""

    limit: str
    """Name of the limit; a framework has those that its description names."""
    where: str
    """The role, copy or call that breaks it."""
    found: str
    """What the plan has there."""


def reasons_of(subject: Subject, broken: Iterable[Broken]) -> list[Reason]:
    """A reason for each limit that the framework has and the plan breaks."""
    framework = subject.framework
    described = {limit.name: limit for limit in framework.limits}
    return [
        Reason(
            summary=f"{each.where}: {each.found}; {framework.target} cannot be told "
            f"{described[each.limit].what}",
            remedy=described[each.limit].instead,
        )
        for each in broken
        if each.limit in described
    ]
