"""The audit log: who did what, for as long as the operator keeps it."""

from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from automap.service.schemas.access import AuditQuery, AuditRecord
from automap.service.schemas.base import Page
from automap.service.storage.database import utc_now
from automap.service.storage.paging import page_of
from automap.service.storage.tables import AuditRow

COMMANDS = "cli"
"""Who has done what commands did to the database itself: whoever may write to it."""


def add(session: Session, row: AuditRow) -> None:
    """Write a request down, cut to what its columns hold."""
    for name, most in (("route", 200), ("resource_id", 200), ("remote_address", 64)):
        given = getattr(row, name)
        setattr(row, name, given and given[:most].replace("\0", ""))
    session.add(row)


def add_command(session: Session, command: str, *, about: str) -> None:
    """Write down what a command has done to the database itself, where nobody asks for a key."""
    row = AuditRow(
        created_at=utc_now(),
        owner=COMMANDS,
        method=COMMANDS.upper(),
        route=command,
        resource_id=about,
        status=200,
    )
    add(session, row)


def forget(session: Session, *, days: float) -> None:
    """Remove what is older."""
    session.execute(delete(AuditRow).where(AuditRow.created_at < utc_now() - timedelta(days=days)))


def list_requests(session: Session, query: AuditQuery) -> Page[AuditRecord]:
    """One page of the log, newest first."""
    statement = select(AuditRow)
    for name in ("owner", "key_id", "resource_id", "request_id", "method"):
        given = getattr(query, name)
        if given is not None:
            statement = statement.where(getattr(AuditRow, name) == given)
    if query.min_status is not None:
        statement = statement.where(AuditRow.status >= query.min_status)
    if query.created_after is not None:
        statement = statement.where(AuditRow.created_at > query.created_after)
    if query.created_before is not None:
        statement = statement.where(AuditRow.created_at < query.created_before)
    rows, next_cursor = page_of(session, statement, AuditRow, query)
    return Page(items=[_record(row) for row in rows], next_cursor=next_cursor)


def _record(row: AuditRow) -> AuditRecord:
    return AuditRecord.model_validate(
        {name: getattr(row, name) for name in AuditRecord.model_fields}
    )
