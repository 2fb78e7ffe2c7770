"""Lists page by page: a cursor names the last row that was shown."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import Session

from automap.service.errors.domain import InvalidInputError
from automap.service.errors.fields import FieldError
from automap.service.schemas.base import PageQuery
from automap.service.storage.tables import (
    ApiKeyRow,
    AuditRow,
    ClusterRow,
    JobRow,
    PlanRow,
    ProfileRow,
)

Row = TypeVar("Row", PlanRow, ClusterRow, JobRow, ProfileRow, ApiKeyRow, AuditRow)


def page_of(
    session: Session, statement: Select[Row], table: type[Row], query: PageQuery
) -> tuple[Sequence[Row], str | None]:
    """Rows after the cursor, newest first: what is inserted meanwhile cannot shift the pages.

    Raises:
        InvalidInputError: the cursor is none of this service.
    """
    order = tuple_(table.created_at, table.id)
    if query.cursor is not None:
        created_at, row_id = _read_cursor(query.cursor)
        # Typed like the columns, so that SQLite compares them in the form it stores.
        place = tuple_(created_at, row_id, types=[table.created_at.type, table.id.type])
        statement = statement.where(order < place)
    statement = statement.order_by(table.created_at.desc(), table.id.desc())
    rows = session.scalars(statement.limit(query.limit + 1)).all()
    if len(rows) <= query.limit:
        return rows, None
    shown = rows[: query.limit]
    return shown, _cursor(shown[-1].created_at, shown[-1].id)


def _cursor(created_at: datetime, row_id: UUID) -> str:
    text = f"{created_at.isoformat()}|{row_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        moment, row_id = base64.urlsafe_b64decode(padded).decode("ascii").split("|")
        created_at = datetime.fromisoformat(moment)
        if created_at.tzinfo is None:
            raise ValueError("no time zone")
        return created_at, UUID(row_id)
    except (ValueError, binascii.Error):
        error = FieldError(
            field="query.cursor",
            value=cursor,
            message="is no cursor of this service",
            remedy="pass the next_cursor of the page before, unchanged",
        )
        raise InvalidInputError([error]) from None
