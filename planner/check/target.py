"""Rules of the target: whether what the plan was searched for can run it."""

from collections.abc import Iterator

from automap.planner.check.software import runs_with
from automap.planner.check.subject import Subject
from automap.planner.plan.runs_with import engine_name, refusals


def wrong_target(subject: Subject) -> Iterator[str]:
    """Everything in which the plan exceeds the capabilities of its target, or misstates them.

    A placement that the caller gives may be one that nothing runs; what it says of that is checked.
    """
    job, plan = subject.job, subject.plan
    if plan.search.target is None:
        return  # of a version before targets
    if plan.search.target != job.target.name:
        yield f"search.target is {plan.search.target}, but the spec gives {job.target.name}"
    placement = plan.placement()
    found = runs_with(job, plan)
    if plan.runs_with != found:
        yield f"runs_with is {plan.runs_with}, but it is told and fits with {found}"
    if plan.search.status != "given":
        yield from refusals(job, placement, job.target)
    for copy in plan.copies:
        engine = engine_name(job, copy, job.target)
        if copy.engine != engine:
            yield f"copy {copy.id} has engine {copy.engine}, but {job.target.name} uses {engine}"
