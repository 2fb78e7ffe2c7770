"""What a job waits for, in words.

A queued one by the query by which workers take jobs, one that has begun by what its run says.
"""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session, contains_eager, joinedload, load_only

from automap.service.queues import job_log, job_queue
from automap.service.queues.claims import SUBMITTED, holding_up, in_turn
from automap.service.schemas.jobs import UNFINISHED
from automap.service.storage.tables import JobRow, PlanRow

_SHOWN = (JobRow.id, JobRow.kind, JobRow.name, JobRow.owner, JobRow.priority, JobRow.status)
WAITS = "waits for "
"""How the state of a run begins that waits for devices."""
NAMED = 3
"""So many of the jobs that run are named."""


def waits_for(session: Session, job_id: UUID) -> str | None:
    """Why a job does not go on; None: it does, or there is none."""
    row = session.scalars(
        select(JobRow)
        .outerjoin(JobRow.plan)
        .where(JobRow.id == job_id, JobRow.status.in_(UNFINISHED))
        .options(contains_eager(JobRow.plan).load_only(PlanRow.status), load_only(*_SHOWN))
    ).one_or_none()
    if row is None:
        return None
    if row.status != "queued":
        return _devices(session, row)
    if row.plan is not None and row.plan.status != "succeeded":
        return f"its plan, which is {row.plan.status}"
    alone = holding_up(session, row)
    if alone is not None:
        return _cluster_alone(row, session.get_one(JobRow, alone, options=[load_only(*_SHOWN)]))
    order = in_turn(session, new=True).where(JobRow.status == "queued")
    first = session.scalars(
        order.limit(1).options(contains_eager(JobRow.plan).load_only(PlanRow.status))
    ).one()
    if first.id != row.id:
        return _turn(row, first)
    return _worker(session, row)


def _devices(session: Session, row: JobRow) -> str | None:
    """What its run said last, if that is what it waits for."""
    state = job_log.latest(session, row.id).get("state")
    if not isinstance(state, str) or not state.startswith(WAITS):
        return None
    return state.removeprefix(WAITS)


def _cluster_alone(row: JobRow, other: JobRow) -> str:
    why = "it measures" if other.kind == "profile" else "this job measures"
    return f"{_named(other)}: {why}, and has the cluster to itself"


def _turn(row: JobRow, first: JobRow) -> str:
    if first.priority != row.priority:
        why = f"it has priority {first.priority}, this job {row.priority}"
    elif first.owner != row.owner:
        why = f"{first.owner} has used less GPU time of late, or as much and it is older"
    else:
        why = "it is older"
    return f"its turn, after {_named(first)}: {why}"


def _worker(session: Session, row: JobRow) -> str:
    running = session.scalars(
        select(JobRow)
        .where(JobRow.status.in_(SUBMITTED))
        .order_by(JobRow.created_at, JobRow.id)
        .limit(NAMED + 1)
        .options(load_only(*_SHOWN), joinedload(JobRow.plan).load_only(PlanRow.gpus_used))
    ).all()
    reason = None if running else job_queue.why_queued(session, row.id)
    if reason is not None:
        return f"a worker that can take it: {reason}"
    if not running:
        return "a worker: none has taken it yet, and no other job runs"
    named = [
        f"{_named(each)}{f' on {each.plan.gpus_used} GPUs' if each.plan else ''}"
        for each in running[:NAMED]
    ]
    more = " and others" if len(running) > NAMED else ""
    return f"a worker with room for it: it is the next, after {', '.join(named)}{more}"


def _named(row: JobRow) -> str:
    return f"job {row.id} ({row.name}, of {row.owner})"
