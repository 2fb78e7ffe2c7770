"""The index that finds plans and jobs by a part of their text, where PostgreSQL can have one.

It needs the extension pg_trgm, which comes with PostgreSQL's contributed modules and which a
database's owner may create. Without it the same rows are found by reading all texts. So it belongs
to no revision: it is made by the first upgrade, or start of a server, that can.
"""

import logging

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

_log = logging.getLogger(__name__)

EXTENSION = "pg_trgm"
NAMES = {table: f"ix_{table}_trigrams" for table in ("plan_texts", "job_texts")}


def make(connection: Connection) -> None:
    """Index the texts by their trigrams if they are not; on SQLite there is nothing to do."""
    if not (missing := lacking(connection)):
        return
    if not _is_installed(connection):
        _warn("PostgreSQL's contributed modules are not installed")
        return
    try:
        with connection.begin_nested():
            connection.execute(text(f"CREATE EXTENSION IF NOT EXISTS {EXTENSION}"))
            for table in missing:
                connection.execute(text(_creation(table)))
    except DBAPIError as error:
        _warn(str(error.orig).strip())


def lacking(connection: Connection) -> list[str]:
    """The tables on PostgreSQL whose texts are searched without an index."""
    if connection.dialect.name != "postgresql":
        return []
    return [
        table
        for table, name in NAMES.items()
        if _is_there(connection, table) and not _is_there(connection, name)
    ]


def _creation(table: str) -> str:
    # A text changes seldom and is looked for often: no list of pending ones to read each time.
    return (
        f"CREATE INDEX {NAMES[table]} ON {table} "
        "USING gin (text gin_trgm_ops) WITH (fastupdate = off)"
    )


def _is_there(connection: Connection, relation: str) -> bool:
    return connection.scalar(text("SELECT to_regclass(:name)"), {"name": relation}) is not None


def _is_installed(connection: Connection) -> bool:
    known = text("SELECT count(*) FROM pg_available_extensions WHERE name = :name")
    return bool(connection.scalar(known, {"name": EXTENSION}))


def _warn(why: str) -> None:
    _log.warning("texts are searched without an index, as %s cannot be had: %s", EXTENSION, why)
