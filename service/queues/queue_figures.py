"""What the tables know of the queues, for metrics: the same whichever process asks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, literal, select, union_all
from sqlalchemy.orm import Session

from automap.service.queues.claims import SUBMITTED
from automap.service.runs import suggestion_notes
from automap.service.storage.database import UtcDateTime, utc_now
from automap.service.storage.tables import JobRow, PlanRow

_OVER = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class StateFigures:
    """All plans, or all jobs, of one status."""

    queue: str
    """plans or jobs."""
    status: str
    count: int
    oldest: datetime | None
    """When the oldest of those that are not over was made."""
    retried: int = 0
    """How many are not over, and were taken up more than once."""
    held: int = 0
    """How many have a lease that somebody renews."""
    expired: int = 0
    """How many have a lease that ran out: whoever held it is gone."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Both queues, and how many running jobs run otherwise than planned."""

    states: Sequence[StateFigures]
    drifting: int


def queue_figures(session: Session) -> QueueFigures:
    """One statement that counts, and one that looks at the few jobs that run.

    What is over is counted by an index alone, however many there are.
    """
    parts = [part for table in (PlanRow, JobRow) for part in (_over(table), _open(table))]
    rows = session.execute(union_all(*parts)).all()
    measured = session.scalars(select(JobRow.measured).where(JobRow.status.in_(SUBMITTED)))
    return QueueFigures(
        states=[StateFigures(*row) for row in rows],
        drifting=sum(map(suggestion_notes.is_active, measured)),
    )


def _over(table: type[PlanRow | JobRow]) -> Select[*tuple[Any, ...]]:
    oldest = literal(None, UtcDateTime).label("oldest")
    zeros = [literal(0) for _ in range(3)]
    return (
        select(literal(table.__tablename__), table.status, func.count(), oldest, *zeros)
        .where(table.status.in_(_OVER))
        .group_by(table.status)
    )


def _open(table: type[PlanRow | JobRow]) -> Select[*tuple[Any, ...]]:
    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.sum(case((condition, 1), else_=0))

    now = utc_now()
    return (
        select(
            literal(table.__tablename__),
            table.status,
            func.count(),
            func.min(table.created_at),
            count(table.attempts > 1),
            count(table.lease_expires_at >= now),
            count(table.lease_expires_at < now),
        )
        .where(table.status.not_in(_OVER))
        .group_by(table.status)
    )
