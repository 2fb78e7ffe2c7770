"""What a restore would put a backup in place of: rows, keys, and the work that somebody holds."""

from collections.abc import Iterator
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from automap.service.cli.terminal.failures import BadInputError
from automap.service.storage import api_keys, backups
from automap.service.storage.backups import Head
from automap.service.storage.database import Database, UtcDateTime, utc_now

_QUEUES = ("plans", "jobs")


def refuse_while_held(database: Database) -> None:
    """Refuse to take rows away from servers and workers that run.

    Raises:
        BadInputError: somebody holds the lease of a plan or job.
    """
    expires = sa.column("lease_expires_at", UtcDateTime())
    held, until = [], []
    with database.reading() as session:
        for table in _there(session, *_QUEUES):
            leases = sa.select(sa.func.count(), sa.func.max(expires)).select_from(sa.table(table))
            count, last = session.execute(leases.where(expires > utc_now())).one()
            if count:
                held.append(f"{count} {table}")
                until.append(last)
    if held:
        raise BadInputError(
            f"servers or workers of this database run: they hold {' and '.join(held)}",
            [
                "stop them, and try again; what one holds that was killed is free from "
                f"{max(until):%Y-%m-%d %H:%M:%S} UTC on"
            ],
        )


def replaced(database: Database, head: Head) -> Iterator[str]:
    """What goes, and what comes back beside that, a line each; nothing of an empty database."""
    counts = {table: count for table, count in backups.counted(database).items() if count}
    if not counts:
        return
    yield "all that is in the database goes: " + ", ".join(
        f"{count} {table}" for table, count in counts.items()
    )
    yield f"what was done after {_moment(head.created_at)}, the time of the backup, is lost"
    with database.reading() as session:
        if _there(session, "api_keys"):
            yield from _keys(session, head)
    yield "stop all servers and workers of this database first: one that is idle is not seen"


def _keys(session: Session, head: Head) -> Iterator[str]:
    """Keys that open no more, or again."""
    table = sa.table(
        "api_keys",
        sa.column("id", sa.Uuid()),
        sa.column("created_at", UtcDateTime()),
        sa.column("revoked_at", UtcDateTime()),
    )
    key_id, created, revoked = table.c
    newer = session.scalars(sa.select(key_id).where(created > head.created_at)).all()
    if newer:
        yield f"keys made since open no more: {', '.join(map(api_keys.prefix_of, newer))}"
    since = sa.select(key_id).where(created <= head.created_at, revoked > head.created_at)
    if back := session.scalars(since).all():
        names = ", ".join(map(api_keys.prefix_of, back))
        yield f"keys revoked since open again, until they are revoked again: {names}"


def _there(session: Session, *tables: str) -> list[str]:
    """The tables of these that the database has at its revision."""
    names = sa.inspect(session.connection()).get_table_names()
    return [table for table in tables if table in names]


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
