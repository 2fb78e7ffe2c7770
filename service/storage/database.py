"""The database: engine, transactions, and the types that behave alike on SQLite and PostgreSQL."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import to_json
from sqlalchemy import (
    Connection,
    CursorResult,
    DateTime,
    Dialect,
    Engine,
    MetaData,
    Update,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import SingletonThreadPool
from sqlalchemy.types import TypeDecorator

from automap.executor.private_folders import make_private
from automap.service.storage.writability import Writability, why_not_written

BUSY_TIMEOUT_SECONDS = 10.0


class Base(DeclarativeBase):
    """Constraints get the same names everywhere, so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime: timestamptz on PostgreSQL, UTC text of fixed width on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def utc_now() -> datetime:
    """The time by this server's clock; servers that share a queue keep theirs in step."""
    return datetime.now(UTC)


def changes_a_row(session: Session, statement: Update) -> bool:
    """Apply a guarded update; False: no row satisfied its guard, and nothing was written."""
    result = session.execute(statement.execution_options(synchronize_session=False))
    assert isinstance(result, CursorResult)
    return result.rowcount > 0


class StoredText(str):
    """A document that is text already: it is stored as it is."""

    __slots__ = ()


def document_text(value: object) -> str:
    """A document as the API writes it, so that it can be answered as it is stored."""
    if isinstance(value, StoredText):
        return value
    try:
        return to_json(value).decode()
    except ValueError:  # half a surrogate pair, which may come from what a run printed
        return json.dumps(value)


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None: a server has it, or SQLite itself reads the URL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or "uri" in parsed.query:
        return None
    assert parsed.database is not None  # Settings refuses a database without a file
    return Path(parsed.database)


def _make_private_file(url: str) -> None:
    """Make the file of a new database for its owner alone, and the folders that are missing.

    SQLite gives the files that it keeps beside it the same mode.
    """
    file = sqlite_file(url)
    # One that exists keeps its mode, and is not even opened: to close it would let go of what
    # SQLite's other connections of this process have locked.
    if file is None or file.exists():
        return
    make_private(file.parent)
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))


class Database:
    """One engine, and the only place where a transaction is committed."""

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            _make_private_file(url)
            self.engine = create_engine(
                parsed,
                hide_parameters=True,
                json_serializer=document_text,
                connect_args={"timeout": BUSY_TIMEOUT_SECONDS},
            )
            _prepare_sqlite(self.engine)
            own = create_engine(
                parsed,
                hide_parameters=True,
                json_serializer=document_text,
                poolclass=SingletonThreadPool,
                connect_args={"timeout": 0},
            )
            _prepare_sqlite(own)
            self._at_once: Engine | None = own.execution_options(read_only=True)
        else:
            self._at_once = None
            self.engine = create_engine(
                parsed,
                hide_parameters=True,  # an error is logged, and a spec is nobody's business there
                json_serializer=document_text,
                pool_pre_ping=True,
                connect_args={"connect_timeout": 10},
            )
        self._reading = self.engine.execution_options(read_only=True)
        self._writability = Writability()

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Write: commit at the end, roll back on an exception."""
        try:
            with Session(self.engine) as session, session.begin():
                yield session
        except OperationalError as error:
            self._writability.note(error)
            raise

    def why_not_writable(self) -> str | None:
        """Why writes fail, as far as is known; some time after one that failed it tries one.

        None: they do.

        Raises:
            OperationalError: the database is away, or too busy.
        """
        if self._writability.is_to_be_tried:
            try:
                with self.transaction() as session:
                    session.execute(text("UPDATE alembic_version SET version_num = version_num"))
            except OperationalError as error:
                if why_not_written(error) is None:
                    raise
            else:
                self._writability.note_success()
        return self._writability.why_not

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Read: a snapshot that never waits for a writer and is never committed."""
        with Session(self._reading, autoflush=False) as session:
            yield session

    @contextmanager
    def reading_at_once(self) -> Iterator[Connection | None]:
        """Read on a connection of the thread's own; None with a server's database.

        It waits for nothing: a file that is locked raises SQLAlchemy's OperationalError.
        """
        if self._at_once is None:
            yield None
            return
        with self._at_once.connect() as connection:
            yield connection

    def dispose(self) -> None:
        """Close the pooled connections."""
        self.engine.dispose()
        if self._at_once is not None:
            self._at_once.dispose()


def _prepare_sqlite(engine: Engine) -> None:
    """Let SQLAlchemy, not the driver, begin transactions; writers queue up instead of failing."""

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A deferred transaction that reads and then writes fails at once when another has written
        # in between; IMMEDIATE waits for the busy timeout.
        read_only = connection.get_execution_options().get("read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
