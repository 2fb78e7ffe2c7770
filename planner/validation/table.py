"""Read rows from the text of a CSV file: which kind of table it is, and what is wrong with it."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from automap.planner.validation.rows import ROW_TYPES, Row

if TYPE_CHECKING:
    from _csv import Reader

SHOWN_CHARACTERS = 60
"""Most characters of a wrong cell that a message repeats."""
ALIKE = 0.5
"""Share of a kind's columns that a header must have to be read as that kind."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a cell, a row or the header."""

    line: int
    """Line number in the file; the header is line 1."""
    row_id: str | None
    column: str | None
    message: str

    def __str__(self) -> str:
        """The mistake as a line for users."""
        where = f"line {self.line}" + (f" ({self.row_id})" if self.row_id else "")
        return (
            f"{where}: {self.column}: {self.message}" if self.column else f"{where}: {self.message}"
        )


@dataclass(frozen=True, slots=True)
class Table:
    """The sound rows of a table, and its mistakes."""

    kind: str
    rows: tuple[Row, ...]
    mistakes: tuple[Mistake, ...]


class NotATableError(Exception):
    """The text has no header of a known kind of table."""


def parse_table(text: str) -> Table:
    """The rows of a CSV text with a header line; a row with a mistake is left out and reported.

    Raises:
        NotATableError: no header, or one that is like no known kind of table.
    """
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        row_type = _recognise(header)
        mistakes = list(_header_mistakes(header, row_type))
        rows, wrong = _read(reader, header, row_type)
    except csv.Error as error:
        raise NotATableError(f"line {reader.line_num}: not CSV: {error}") from None
    return Table(row_type.kind, tuple(rows), (*mistakes, *wrong))


def _recognise(header: list[str]) -> type[Row]:
    if not any(header):
        raise NotATableError("the file has no header line")
    given = set(header)

    def likeness(row_type: type[Row]) -> float:
        names = set(row_type.model_fields)
        return len(names & given) / len(names | given)

    best = max(ROW_TYPES, key=likeness)
    if len(given & set(best.model_fields)) < ALIKE * len(best.model_fields):
        kinds = ", ".join(row_type.kind for row_type in ROW_TYPES)
        raise NotATableError(
            f"the header is that of no known kind of table ({kinds}){_separator(header)}"
        )
    return best


def _separator(header: list[str]) -> str:
    """Addition to a message where a header has other separators than commas; else empty."""
    alone = header[0] if len(header) == 1 and "row_id" in header[0] else ""
    other = next((mark for mark in ";\t" if mark in alone), None)
    return f"; its columns are separated by {other!r}; commas are read" if other else ""


def _header_mistakes(header: list[str], row_type: type[Row]) -> Iterator[Mistake]:
    expected = list(row_type.model_fields)
    for name in expected:
        if name not in header:
            yield Mistake(1, None, name, f"a {row_type.kind} table has this column; it is missing")
    for name in sorted(set(header) - set(expected)):
        shown = name[:SHOWN_CHARACTERS] or "(empty)"
        yield Mistake(1, None, shown, f"a {row_type.kind} table has no such column; it is ignored")
    for name in sorted({name for name in header if header.count(name) > 1}):
        yield Mistake(1, None, name[:SHOWN_CHARACTERS], "the column appears more than once")


def _read(
    reader: "Reader", header: list[str], row_type: type[Row]
) -> tuple[list[Row], list[Mistake]]:
    rows: list[Row] = []
    mistakes: list[Mistake] = []
    lines: dict[str, int] = {}
    known = set(row_type.model_fields)
    missing = dict.fromkeys(known - set(header), "")
    for cells in reader:
        line = reader.line_num
        if not any(cell.strip() for cell in cells):
            continue
        given = dict(zip(header, cells, strict=False))
        row_id = given.get("row_id", "").strip()[:SHOWN_CHARACTERS] or None
        if len(cells) != len(header):
            message = f"the row has {len(cells)} cells, the header {len(header)}"
            mistakes.append(Mistake(line, row_id, None, message))
            continue
        if row_id in lines:
            message = f"{row_id} is the id of line {lines[row_id]} as well"
            mistakes.append(Mistake(line, row_id, "row_id", message))
            continue
        if row_id is not None:
            lines[row_id] = line
        values = {name: cell.strip() for name, cell in given.items() if name in known} | missing
        try:
            rows.append(row_type.model_validate(values))
        except ValidationError as error:
            mistakes += _row_mistakes(error, values, line, row_id)
    return rows, mistakes


def _row_mistakes(
    error: ValidationError, values: Mapping[str, str], line: int, row_id: str | None
) -> Iterator[Mistake]:
    """One mistake per column; a contradiction names its column itself."""
    reported = set()
    for found in error.errors(include_url=False):
        context = found.get("ctx", {})
        column = str(found["loc"][0]) if found["loc"] else context.get("column")
        if column in reported:
            continue
        reported.add(column)
        message = found["msg"].removeprefix("Value error, ")
        cell = values.get(column or "", "")
        if found["loc"]:
            shown = cell[:SHOWN_CHARACTERS] + ("…" if len(cell) > SHOWN_CHARACTERS else "")
            message = f"{message} (got {shown!r})"
        yield Mistake(line, row_id, column, message)
