"""Forgets what ended long ago: jobs with their events and logs, and plans without jobs."""

from datetime import timedelta

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from automap.service.schemas.jobs import UNFINISHED
from automap.service.storage import costs
from automap.service.storage.database import utc_now
from automap.service.storage.tables import JobRow, PlanRow, ProfileRow

AT_ONCE = 100
"""In a transaction: others who write wait for it."""


def forget(session: Session, *, days: float) -> tuple[int, int]:
    """Delete some jobs and plans that ended longer ago; how many. What runs have cost is kept.

    A measurement stays as long as a profile of it, which shows the cluster that it found.
    """
    before = utc_now() - timedelta(days=days)
    measured = exists().where(ProfileRow.job_id == JobRow.id)
    jobs = session.scalars(
        select(JobRow.id)
        .where(JobRow.finished_at < before, JobRow.status.not_in(UNFINISHED), ~measured)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    costs.keep(session, jobs)
    session.execute(delete(JobRow).where(JobRow.id.in_(jobs)))
    unused = ~exists().where(JobRow.plan_id == PlanRow.id)
    ended = PlanRow.finished_at < before, PlanRow.status.not_in(("queued", "running"))
    locked = session.scalars(
        select(PlanRow.id).where(*ended, unused).limit(AT_ONCE).with_for_update(skip_locked=True)
    ).all()
    # Asked again now that they are locked: a job that was being posted held its plan until now.
    plans = session.scalars(select(PlanRow.id).where(PlanRow.id.in_(locked), unused)).all()
    session.execute(delete(PlanRow).where(PlanRow.id.in_(plans)))
    return len(jobs), len(plans)
