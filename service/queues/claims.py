"""Which job a worker may claim: the conditions of its query.

Runs are side by side, but a profile has the cluster to itself: it waits for what was queued before
it, and what is queued after it waits for it. Else each would measure the other.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Select, and_, case, exists, func, literal, or_, select
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
    planned = and_(PlanRow.status == "succeeded", ~exists(_before(kind="profile")))
    measurable = and_(JobRow.kind == "profile", ~exists(_before(kind=None)))
    return or_(submitted, and_(JobRow.status == "queued", or_(planned, measurable)))


def in_turn(session: Session, *, new: bool) -> Select[JobRow]:
    """What may be claimed now, in the order in which workers take it; joined with its plan.

    What runs already comes first, for its events wait to be read; then by priority, by the turn of
    its owner, and by age.
    """
    return (
        select(JobRow)
        .outerjoin(JobRow.plan)
        .where(claimable(new=new))
        .order_by(
            JobRow.status == "queued",
            JobRow.priority.desc(),
            _place_of_owner(session),
            JobRow.created_at,
            JobRow.id,
        )
    )


def places(gpu_seconds: Mapping[str, float], owners: Iterable[str]) -> dict[str, int]:
    """The place of each owner, from 0: first who has used the least GPU time, to the minute.

    Who has used as much shares a place, and of them the older job goes first. So nobody is passed
    over for ever: every run takes its owner back, and every day that passes takes time off.
    """
    minutes = {owner: round(gpu_seconds.get(owner, 0.0) / 60) for owner in owners}
    least = sorted(set(minutes.values()))
    return {owner: least.index(used) for owner, used in minutes.items()}


def _place_of_owner(session: Session) -> ColumnElement[int]:
    owners = session.scalars(select(JobRow.owner).where(JobRow.status == "queued").distinct()).all()
    if len(owners) < 2:
        return literal(0)
    used = gpu_seconds_by_owner(session, since=utc_now() - FAIR_WITHIN)
    return case(places(used, owners), value=JobRow.owner, else_=0)


def holding_up(session: Session, row: JobRow) -> UUID | None:
    """The job that a queued one waits for because a profile has the cluster to itself."""
    found = _before(kind="profile" if row.kind == "run" else None).where(JobRow.id == row.id)
    return session.scalars(found.limit(1)).first()


def _before(*, kind: JobKind | None) -> Select[UUID]:
    """Jobs of the kind, or any, that are submitted; and profiles that were queued earlier."""
    other = aliased(JobRow)
    submitted = other.status.in_(SUBMITTED)
    earlier = and_(
        other.kind == "profile",
        other.status == "queued",
        other.created_at < JobRow.created_at,
    )
    of_kind = submitted if kind is None else and_(submitted, other.kind == kind)
    return select(other.id).where(or_(of_kind, earlier))
