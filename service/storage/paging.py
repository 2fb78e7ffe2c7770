"""Lists page by page: a cursor names the last row that was shown, in the order of the list."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from math import isfinite
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Select, select, tuple_
from sqlalchemy.orm import Session

from automap.service.errors.domain import InvalidInputError
from automap.service.errors.fields import FieldError
from automap.service.schemas.base import PageQuery
from automap.service.schemas.descriptions import ListQuery
from automap.service.storage.tables import (
    ApiKeyRow,
    AuditRow,
    BudgetRow,
    ClusterRow,
    JobRow,
    PlanRow,
    ProfileRow,
)

Row = TypeVar("Row", PlanRow, ClusterRow, JobRow, ProfileRow, ApiKeyRow, AuditRow, BudgetRow)
Found = TypeVar("Found", PlanRow, JobRow)
NEWEST_FIRST = "-created_at"
NEAR = 1000
"""Rows in which a list looks for what was asked before it looks everywhere."""


def page_of(
    session: Session,
    statement: Select[Row],
    table: type[Row],
    query: PageQuery,
    *,
    sort: str = NEWEST_FIRST,
) -> tuple[Sequence[Row], str | None]:
    """Rows after the cursor, newest first: what is inserted meanwhile cannot shift the pages.

    With `sort`, ordered by the column of that name instead, after a - from the largest; rows
    without a value are then left out.

    Raises:
        InvalidInputError: the cursor is none of this service, or of another order.
    """
    ordered = _ordered(statement, table, query, sort)
    rows = session.scalars(ordered.limit(query.limit + 1)).all()
    return _page(rows, query, sort)


def filtered_page(
    session: Session,
    matching: Callable[[bool], Select[Found]],
    table: type[Found],
    query: ListQuery,
    *,
    sort: str,
) -> tuple[Sequence[Found], str | None]:
    """One page, like `page_of`, of plans or jobs that are found by what they contain.

    What many rows have is found among the next few of the order (of the owner, if one was asked
    for), which an index lists: to look for all that have it would take a time that grows with them.
    What is not found there so often is rare, and then all that have it are few. `matching` gives
    the rows that were asked for; with True, as a statement for few rows to look at.

    Raises:
        InvalidInputError: the cursor is none of this service, or of another order.
    """
    few = select(table.id)
    if query.owner is not None:
        few = few.where(table.owner == query.owner)
    next_few = _ordered(few, table, query, sort).limit(NEAR)
    near = matching(True).where(table.id.in_(next_few))
    for statement in (near, matching(False)):
        ordered = _ordered(statement, table, query, sort)
        rows = session.scalars(ordered.limit(query.limit + 1)).all()
        if len(rows) > query.limit:
            break
    return _page(rows, query, sort)


def _ordered(statement: Select[Any], table: type[Row], query: PageQuery, sort: str) -> Select[Any]:
    """After the cursor, in order, without the rows that have no place in it."""
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    column = table.__table__.columns[name]
    if column.nullable:
        statement = statement.where(column.is_not(None))
    if query.cursor is not None:
        value, row_id = _read_cursor(query.cursor, sort)
        # Typed like the columns, so that SQLite compares them in the form it stores.
        place = tuple_(value, row_id, types=[column.type, table.id.type])
        order = tuple_(column, table.id)
        statement = statement.where(order < place if descending else order > place)
    return statement.order_by(
        *((each.desc() if descending else each.asc()) for each in (column, table.id))
    )


def _page(rows: Sequence[Row], query: PageQuery, sort: str) -> tuple[Sequence[Row], str | None]:
    if len(rows) <= query.limit:
        return rows, None
    shown = rows[: query.limit]
    value = getattr(shown[-1], sort.removeprefix("-"))
    return shown, _cursor(sort, value, shown[-1].id)


def _cursor(sort: str, value: object, row_id: UUID) -> str:
    stored = value.isoformat() if isinstance(value, datetime) else value
    text = json.dumps([sort, stored, row_id.hex], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str, sort: str) -> tuple[object, UUID]:
    """The value and the id of the row that it names."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        of_sort, value, row_id = json.loads(base64.urlsafe_b64decode(padded))
        if of_sort == sort:
            return _value(sort.removeprefix("-"), value), UUID(row_id)
        message = f"is of another order, {str(of_sort)[:40]}"
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        message = "is no cursor of this service"
    error = FieldError(
        field="query.cursor",
        value=cursor,
        message=message,
        remedy="pass the next_cursor of the page before, unchanged, with the same sort",
    )
    raise InvalidInputError([error])


def _value(column: str, stored: object) -> object:
    """What the cursor says of the column.

    Raises:
        ValueError, TypeError: it is no value of that column.
    """
    if column == "created_at":
        moment = datetime.fromisoformat(str(stored))
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return moment
    if column == "name":
        if not isinstance(stored, str) or "\0" in stored:
            raise TypeError("no text")
        return stored
    if isinstance(stored, bool) or not isinstance(stored, int | float):
        raise TypeError("no number")
    if not isfinite(stored) or abs(stored) >= 2**53:
        raise ValueError("no number of this column")
    return int(stored) if column == "gpus_used" else float(stored)
