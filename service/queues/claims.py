"""Which job a worker may claim: the conditions of its query.

Runs are side by side, but a profile has the cluster to itself: it waits for what was queued before
it, and what is queued after it waits for it. Else each would measure the other.
"""

from sqlalchemy import and_, exists, func, or_, select
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql import ColumnElement

from automap.service.queues import leases
from automap.service.schemas.jobs import JobKind
from automap.service.storage.tables import JobRow, PlanRow

SUBMITTED = ("starting", "running")
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
