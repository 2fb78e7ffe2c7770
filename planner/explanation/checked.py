"""Placements that answer a question, after the same independent check as every plan."""

from automap.planner.assembly.plan import placed
from automap.planner.explanation.study import Study
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Placement
from automap.planner.search import Selected


def checked(study: Study, selected: Selected) -> Placement:
    """A placement in words, once the check of it as a plan has passed.

    Where calls were measured the study given is the one before: the check knows estimates alone,
    and the order of the calls is kept.
    """
    placement = study.placement(selected)
    placed(_job(study), placement, study.space.timed(selected), intervals=False)
    return placement


def _job(study: Study) -> Job:
    """The study's job; without streams where its calls wait for whole responses."""
    streamed = any(edge.streamed for edge in study.job.dataflow.edges)
    if not streamed or any(edge.streamed for edge in study.problem.precedences):
        return study.job
    # Named, as without streams another target could run the job.
    update = {"streaming": False, "target": study.job.target.name}
    search = study.job.spec.search.model_copy(update=update)
    return resolve(study.job.spec.model_copy(update={"search": search}))
