"""Leases, by which servers and workers share the queues of plans and jobs.

Both tables are queues. Whoever claims a row writes a fresh token and when the lease expires, works
outside any transaction, and renews the lease meanwhile. Each of its writes is guarded by the token:
a row that was cancelled, deleted or claimed again since is not written. Who dies renews no more,
and the row can be claimed again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import Select, and_, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql import ColumnElement

from automap.service.storage.database import changes_a_row, utc_now
from automap.service.storage.tables import JobRow, PlanRow

Row = TypeVar("Row", PlanRow, JobRow)
FREE: Mapping[str, Any] = {"lease_token": None, "lease_expires_at": None}
"""The columns of a row that nobody holds."""


@dataclass(frozen=True, slots=True)
class Lease(Generic[Row]):
    """A row that is ours as long as we renew the lease."""

    table: type[Row]
    row_id: UUID
    token: UUID

    @property
    def is_held(self) -> ColumnElement[bool]:
        """Guards a statement: true of the row while it is ours."""
        return and_(self.table.id == self.row_id, self.table.lease_token == self.token)

    def write(self, session: Session, **values: Any) -> bool:
        """Write these columns; False: the row is no longer ours and nothing was written."""
        return changes_a_row(session, update(self.table).where(self.is_held).values(**values))

    def renew(self, session: Session, *, seconds: float) -> bool:
        """Hold the row from now for so long; False: it is no longer ours."""
        return self.write(session, lease_expires_at=expiry(seconds))

    def release(self, session: Session, **values: Any) -> bool:
        """Let others claim the row at once; False: it is no longer ours."""
        return self.write(session, **FREE, **values)

    def row(self, session: Session) -> Row | None:
        """The row, locked until the transaction ends; None: it is no longer ours."""
        return session.scalars(
            select(self.table).where(self.is_held).with_for_update()
        ).one_or_none()


def claim(
    session: Session, table: type[Row], candidates: Select[Row], *, seconds: float
) -> tuple[Row, Lease[Row]] | None:
    """Lease the first candidate; None: there is none that nobody else is claiming."""
    # Two PostgreSQL servers take different rows; on SQLite this is left out of the SQL, where only
    # one transaction writes at a time.
    first = candidates.limit(1).with_for_update(skip_locked=True, of=table)
    row = session.scalars(first).one_or_none()
    if row is None:
        return None
    row.lease_token = token = uuid4()
    row.lease_expires_at = expiry(seconds)
    return row, Lease(table, row.id, token)


def expiry(seconds: float) -> datetime:
    """When a lease that is taken or renewed now expires."""
    return utc_now() + timedelta(seconds=seconds)


def is_expired(table: type[Row]) -> ColumnElement[bool]:
    """Whether the lease was not renewed in time."""
    return table.lease_expires_at < utc_now()


def is_free(table: type[Row]) -> ColumnElement[bool]:
    """Whether the row has no lease, or an expired one."""
    return or_(table.lease_token.is_(None), is_expired(table))


def ended(status: str) -> dict[str, Any]:
    """The columns of a row whose work is over."""
    return {"status": status, "finished_at": utc_now(), **FREE}
