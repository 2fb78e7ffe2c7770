"""All rows of a database in one file, which either kind of database can be made of again.

The file is JSON lines in gzip: a head with the schema's revision and the kind of every column, a
line per row, and how many rows there were. What is read is one snapshot, so the service may go on;
what is written is one transaction.
"""

import gzip
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from automap import migrations
from automap.service.errors.domain import ServiceError
from automap.service.storage import tables  # noqa: F401 - registers the tables on Base.metadata
from automap.service.storage.database import Base, Database, UtcDateTime, utc_now

FORMAT = 1
_BATCH_ROWS = 200
Rows = Iterator[tuple[str, list[Any]]]
"""A table's name and the values of one row, in the order of its columns."""


class BackupError(ServiceError):
    """This cannot be backed up or restored; the message says why."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How values of a kind of column are stored, and how they are written in JSON."""

    stored: sa.types.TypeEngine[Any]
    write: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value


_KINDS = {
    "uuid": _Kind(sa.Uuid(), str, UUID),
    "time": _Kind(UtcDateTime(), datetime.isoformat, datetime.fromisoformat),
    "document": _Kind(sa.JSON(none_as_null=True)),
    "boolean": _Kind(sa.Boolean()),
    "integer": _Kind(sa.BigInteger()),
    "number": _Kind(sa.Float()),
    "text": _Kind(sa.Text()),
}


class Head(BaseModel):
    """The first line of a backup."""

    model_config = ConfigDict(frozen=True)

    format: int
    automap: str
    """The version that wrote it."""
    revision: str
    """The schema that the rows have."""
    created_at: datetime
    tables: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Columns of each table with their kinds; a table comes after those that it refers to."""

    def described(self) -> dict[str, sa.TableClause]:
        """The tables as the rows have them, whatever this version's are."""
        return {
            name: sa.table(
                name, *(sa.column(each, _KINDS[kind].stored) for each, kind in of.items())
            )
            for name, of in self.tables.items()
        }


def back_up(database: Database, path: Path) -> Counter[str]:
    """Write all rows to a new file, which only its owner may read; how many of each table.

    Raises:
        BackupError: the database is not at this version's revision, or the file exists.
    """
    head = _head(database)
    partial = path.with_name(f"{path.name}.partial")
    try:
        # Both fail where there is one: nothing is ever written over.
        handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        if path.exists():
            partial.unlink()
            raise FileExistsError
    except FileExistsError:
        raise BackupError(f"{path} exists (or {partial.name} beside it)") from None
    try:
        with os.fdopen(handle, "wb") as file:
            with (
                gzip.open(file, "wt", encoding="utf-8", newline="\n") as text,
                _rows(database) as rows,
            ):
                counts = _write(head, rows, text)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    return counts


def restore(path: Path, database: Database, *, replace: bool = False) -> tuple[Head, Counter[str]]:
    """Fill a database with what a backup has, upgraded to this version's schema.

    Either all of it is there in the end, or what was there before.

    Raises:
        BackupError: it is no backup, is cut off, or of a later version; or the database has rows
            and is not to be replaced.
    """
    with _reading(path) as (head, rows):
        if not replace and (there := sum(counted(database).values())):
            raise BackupError(
                f"the database has {there} rows, which would be replaced: stop the service and "
                "say --replace if this is meant"
            )
        migrations.upgrade(database.engine)
        if head.revision == migrations.head_revision():
            return head, _fill(database, head, rows)
        with scratch() as older:
            migrations.upgrade(older.engine, head.revision)
            _fill(older, head, rows)
            migrations.upgrade(older.engine)
            with _rows(older) as upgraded:
                return head, _fill(database, _head(older), upgraded)


def head_of(path: Path) -> Head:
    """What a backup says of itself; its rows are not read.

    Raises:
        BackupError: it is no backup, or of a later version.
    """
    with _reading(path) as (head, _):
        return head


@contextmanager
def copied(database: Database) -> Iterator[Database]:
    """A copy to try things on, which goes in the end.

    Raises:
        BackupError: the database is not at this version's revision.
    """
    head = _head(database)
    with scratch() as copy, _rows(database) as rows:
        migrations.upgrade(copy.engine)
        _fill(copy, head, rows)
        yield copy


@contextmanager
def scratch() -> Iterator[Database]:
    """An empty database in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="automap-scratch-") as folder:
        database = Database(f"sqlite:///{folder}/scratch.db")
        try:
            yield database
        finally:
            database.dispose()


def counted(database: Database) -> Counter[str]:
    """How many rows each table has that is there, whatever its revision."""
    with database.reading() as session:
        names = sa.inspect(session.connection()).get_table_names()
        return Counter(
            {
                name: session.scalar(sa.select(sa.func.count()).select_from(sa.table(name)))
                for name in names
                if name != "alembic_version"
            }
        )


def _head(database: Database) -> Head:
    with database.reading() as session:
        revision = migrations.current_revision(session.connection())
    if revision is None or revision != migrations.head_revision():
        raise BackupError(
            f"the database is at revision {revision}, this version's is "
            f"{migrations.head_revision()}; bring it there first: automap db upgrade"
        )
    return Head(
        format=FORMAT,
        automap=version("automap"),
        revision=revision,
        created_at=utc_now(),
        tables={
            table.name: {column.name: _kind_of(column.type) for column in table.columns}
            for table in Base.metadata.sorted_tables
        },
    )


def _kind_of(column: sa.types.TypeEngine[Any]) -> str:
    kinds: tuple[tuple[type[Any], str], ...] = (
        (sa.Uuid, "uuid"),
        (UtcDateTime, "time"),
        (sa.JSON, "document"),
        (sa.Boolean, "boolean"),
        (sa.Integer, "integer"),
        (sa.Float, "number"),
        (sa.String, "text"),
    )
    return next(name for kind, name in kinds if isinstance(column, kind))


@contextmanager
def _rows(database: Database) -> Iterator[Rows]:
    """All rows as of one moment."""
    options: dict[str, Any] = {"read_only": True}
    if database.engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with database.engine.connect().execution_options(**options) as connection:
        yield _rows_of(connection)


def _rows_of(connection: sa.Connection) -> Rows:
    for table in Base.metadata.sorted_tables:
        # A row that refers to another of its own table is the later one.
        order = [table.columns["created_at"]] if "created_at" in table.columns else []
        found = connection.execute(
            sa.select(table).order_by(*order, *table.primary_key),
            execution_options={"yield_per": _BATCH_ROWS},
        )
        for row in found:
            yield table.name, list(row)


def _write(head: Head, rows: Rows, text: TextIO) -> Counter[str]:
    text.write(head.model_dump_json() + "\n")
    counts: Counter[str] = Counter(dict.fromkeys(head.tables, 0))
    for name, values in rows:
        counts[name] += 1
        kinds = head.tables[name].values()
        written = [
            None if value is None else _KINDS[kind].write(value)
            for kind, value in zip(kinds, values, strict=True)
        ]
        text.write(json.dumps([name, *written], separators=(",", ":"), allow_nan=False) + "\n")
    text.write(json.dumps({"rows": counts}) + "\n")
    return counts


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Head, Rows]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as text:
            head = Head.model_validate_json(text.readline())
            if head.format != FORMAT:
                raise BackupError(f"{path} has format {head.format}; this version reads {FORMAT}")
            if head.revision not in migrations.revisions():
                raise BackupError(
                    f"{path} was written by automap {head.automap}, whose database is at revision "
                    f"{head.revision}; this version knows up to {migrations.head_revision()}"
                )
            yield head, _read(head, text)
    except OSError as error:
        raise BackupError(f"{path}: {error.strerror or error}") from None
    except (EOFError, ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{path} is no backup, or is damaged: {error}") from None


def _read(head: Head, lines: Iterable[str]) -> Rows:
    counts: Counter[str] = Counter(dict.fromkeys(head.tables, 0))
    for line in lines:
        document = json.loads(line)
        if isinstance(document, dict):
            if document["rows"] != counts:
                raise ValueError(f"it has {dict(counts)} rows of {document['rows']}")
            return
        name, *values = document
        counts[name] += 1
        kinds = head.tables[name].values()
        yield (
            name,
            [
                None if value is None else _KINDS[kind].read(value)
                for kind, value in zip(kinds, values, strict=True)
            ],
        )
    raise ValueError("its end is missing")


def _fill(database: Database, head: Head, rows: Rows) -> Counter[str]:
    """Put these rows in place of all that there are, in one transaction."""
    described = head.described()
    counts: Counter[str] = Counter(dict.fromkeys(described, 0))
    with database.transaction() as session:
        for name in reversed(described):
            session.execute(sa.delete(described[name]))
        for name, batch in _batches(rows):
            columns = head.tables[name]
            counts[name] += len(batch)
            session.execute(
                sa.insert(described[name]),
                [dict(zip(columns, values, strict=True)) for values in batch],
            )
    return counts


def _batches(rows: Rows) -> Iterator[tuple[str, list[list[Any]]]]:
    table, batch = "", list[list[Any]]()
    for name, values in rows:
        if batch and (name != table or len(batch) == _BATCH_ROWS):
            yield table, batch
            batch = []
        table = name
        batch.append(values)
    if batch:
        yield table, batch
