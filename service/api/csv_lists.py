"""Lists as CSV: all rows, read page by page while they are sent."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from automap.service.schemas.base import Page
from automap.service.schemas.descriptions import ListQuery
from automap.service.storage.database import Database

Pages = Callable[[Session, str | None, int], Page[Any]]
"""The items after a cursor, so many."""

_ROWS_AT_A_TIME = 200
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes a cell for a formula by."""


def wants_csv(request: Request, query: ListQuery) -> bool:
    """Whether the client asked for CSV, by the query or by what it accepts first."""
    first = request.headers.get("accept", "").split(",")[0].partition(";")[0].strip().lower()
    return query.format == "csv" or first == "text/csv"


def csv_response(
    database: Database,
    columns: list[str],
    page: Pages,
    *,
    file: str,
) -> StreamingResponse:
    """The rows of all pages, with a line of headers.

    Args:
        database: Read anew for each page, so that a slow client holds no snapshot.
        columns: Fields of an item; a field that an item lacks is empty.
        page: The items after a cursor, so many.
        file: What it is saved as.
    """
    headers = {"Content-Disposition": f'attachment; filename="{file}"', "Vary": "Accept"}
    lines = _lines(database, columns, page)
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


def _lines(
    database: Database,
    columns: list[str],
    page: Pages,
) -> Iterator[str]:
    cursor: str | None = None
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    while True:
        with database.reading() as session:
            found = page(session, cursor, _ROWS_AT_A_TIME)
        for item in found.items:
            document = item.model_dump(mode="json")
            writer.writerow([_cell(document.get(column)) for column in columns])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        cursor = found.next_cursor
        if cursor is None:
            return


def _cell(value: object) -> object:
    if isinstance(value, dict):
        value = ";".join(f"{key}:{each}" for key, each in value.items())
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
