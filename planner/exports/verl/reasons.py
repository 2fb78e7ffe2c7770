"""One reason why verl cannot be told a plan, in the words of its description."""

from automap.planner.errors import Reason
from automap.planner.exports.verl.subject import Subject


def reason(subject: Subject, limit: str, where: str, found: str) -> Reason:
    """A reason by the name of the limit, with the role or call and what the plan has there."""
    described = subject.framework.limit(limit)
    return Reason(
        summary=f"{where}: {found}; {subject.framework.target} cannot be told {described.what}",
        remedy=described.instead,
    )
