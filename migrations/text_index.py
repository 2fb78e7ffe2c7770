"""The index that finds plans and jobs by a part of their text, where PostgreSQL can have one.

It needs the extension pg_trgm, which comes with PostgreSQL's contributed modules and which a
database's owner may create. Without it the same rows are found by reading all texts. So it belongs
to no revision: whoever next starts a server or upgrades makes it, once it can be made.
"""

import logging

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

_log = logging.getLogger(__name__)

LOCK_KEY = 5_207_011_846
"""Any number, the same for all servers of a database."""
EXTENSION = "pg_trgm"
# Jobs first, in whose order rows are forgotten too: neither waits for what the other holds.
NAMES = {table: f"ix_{table}_trigrams" for table in ("job_texts", "plan_texts")}


def make(engine: Engine) -> None:
    """Index the texts by their trigrams if they are not, or say in the log why not.

    On SQLite there is nothing to do. Meanwhile nothing can be stored.
    """
    if engine.dialect.name != "postgresql":
        return
    try:
        with engine.begin() as connection:
            why = _made(connection) if lacking(connection) else None
    except DBAPIError as error:
        why = str(error.orig).strip()
    if why is not None:
        _log.warning("texts are searched without an index: %s", why)


def lock(connection: Connection) -> None:
    """Keep others from changing PostgreSQL's schema until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})


def lacking(connection: Connection) -> list[str]:
    """The tables on PostgreSQL whose texts are searched without an index."""
    if connection.dialect.name != "postgresql":
        return []
    return [
        table
        for table, name in NAMES.items()
        if _is_there(connection, table) and not _is_there(connection, name)
    ]


def _made(connection: Connection) -> str | None:
    """Why it is not made, if so."""
    lock(connection)
    known = text("SELECT count(*) FROM pg_available_extensions WHERE name = :name")
    if not connection.scalar(known, {"name": EXTENSION}):
        return f"PostgreSQL's contributed modules, and {EXTENSION} with them, are not installed"
    connection.execute(text(f"CREATE EXTENSION IF NOT EXISTS {EXTENSION}"))
    operators = f"{_schema(connection)}.gin_trgm_ops"
    for table in lacking(connection):  # another server may have been quicker
        # A text changes seldom and is looked for often: no list of pending ones to read each time.
        connection.execute(
            text(
                f"CREATE INDEX {NAMES[table]} ON {table} "
                f"USING gin (text {operators}) WITH (fastupdate = off)"
            )
        )
    return None


def _schema(connection: Connection) -> str:
    """Where the extension is, perhaps since long and for others."""
    where = text("SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = :name")
    return str(connection.scalar(where, {"name": EXTENSION}))


def _is_there(connection: Connection, relation: str) -> bool:
    return connection.scalar(text("SELECT to_regclass(:name)"), {"name": relation}) is not None
