"""Which job a worker may claim: the conditions of its query.

Runs are side by side, but a profile has the cluster to itself: it waits for what was queued before
it, and what is queued after it waits for it. Else each would measure the other.
"""

from datetime import timedelta

from sqlalchemy import and_, case, exists, func, literal, or_, select
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql import ColumnElement

from automap.service.queues import leases
from automap.service.schemas.jobs import JobKind
from automap.service.storage.costs import gpu_seconds_by_owner
from automap.service.storage.database import utc_now
from automap.service.storage.tables import JobRow, PlanRow

SUBMITTED = ("starting", "running")
FAIR_WITHIN = timedelta(days=7)
"""How long back GPU time counts when owners take turns."""
_CLAIM_LOCK = 5_207_011_847
"""Any number but that of the migrations, the same for all workers of a database."""


def claims_alone(session: Session) -> bool:
    """Whether nobody else claims until this transaction ends.

    What may start depends on what runs, which must not change between the look and the claim.
    """
    if session.get_bind().dialect.name == "sqlite":  # it has only one writer at a time
        return True
    return bool(session.scalar(select(func.pg_try_advisory_xact_lock(_CLAIM_LOCK))))


def claimable(*, new: bool) -> ColumnElement[bool]:
    """What may be claimed now; without `new` only what was submitted before."""
    submitted = and_(JobRow.status.in_(SUBMITTED), leases.is_free(JobRow))
    if not new:
        return submitted
    planned = and_(PlanRow.status == "succeeded", ~_is_before(kind="profile"))
    measurable = and_(JobRow.kind == "profile", ~_is_before(kind=None))
    return or_(submitted, and_(JobRow.status == "queued", or_(planned, measurable)))


def fair_order(session: Session) -> ColumnElement[int]:
    """The place of a job's owner: first who has used the least GPU time of late.

    Among jobs of one owner, and of owners who have used the same, the older goes first.
    """
    waiting = session.scalars(select(JobRow.owner).where(JobRow.status == "queued").distinct())
    owners = sorted(waiting)
    if len(owners) < 2:
        return literal(0)
    used = gpu_seconds_by_owner(session, since=utc_now() - FAIR_WITHIN)
    gpu_minutes = {owner: round(used.get(owner, 0.0) / 60) for owner in owners}
    least = sorted(set(gpu_minutes.values()))
    places = {owner: least.index(gpu_minutes[owner]) for owner in owners}
    return case(places, value=JobRow.owner, else_=0)


def _is_before(*, kind: JobKind | None) -> ColumnElement[bool]:
    """Whether a job of the kind, or any, is submitted; or a profile was queued earlier."""
    other = aliased(JobRow)
    submitted = other.status.in_(SUBMITTED)
    earlier = and_(
        other.kind == "profile",
        other.status == "queued",
        other.created_at < JobRow.created_at,
    )
    of_kind = submitted if kind is None else and_(submitted, other.kind == kind)
    return exists(select(other.id).where(or_(of_kind, earlier)))
