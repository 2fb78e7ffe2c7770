"""Run by Alembic: connects, takes a lock so that two servers never migrate at once, migrates."""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import context
from sqlalchemy import Connection

from automap.migrations import text_index
from automap.service.settings import Settings
from automap.service.storage import tables  # noqa: F401 - registers the tables on Base.metadata
from automap.service.storage.database import Base, Database


def run(connection: Connection) -> None:
    with _unenforced_foreign_keys(connection):
        _run(connection)


@contextmanager
def _unenforced_foreign_keys(connection: Connection) -> Iterator[None]:
    """On SQLite, where altering a table drops the old one, and what refers to its rows with it.

    It can only be said between transactions. `_follow_foreign_keys` does what they would have.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    driver = connection.connection.dbapi_connection
    driver.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
    finally:
        connection.rollback()  # what was looked at since the migrations were committed
        driver.execute("PRAGMA foreign_keys = ON")


def _run(connection: Connection) -> None:
    sqlite = connection.dialect.name == "sqlite"
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=sqlite,  # SQLite alters a table by building it anew
        compare_type=True,
        include_name=lambda name, *_: name not in text_index.NAMES.values(),
        transaction_per_migration=False,
        # Alembic takes SQLite's for none, as Python's driver once committed before each statement:
        # ours begins by itself (storage/database.py), and a lock let go between two migrations
        # lets another server run the next one too.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        if not sqlite:  # SQLite's transaction is IMMEDIATE: it holds the only write lock
            text_index.lock(connection)
        context.run_migrations()
        if sqlite:
            _follow_foreign_keys(connection)


def _follow_foreign_keys(connection: Connection) -> None:
    """Let rows whose parents the migrations have removed go with them, as their tables say."""
    for table, row_id, _, key in connection.exec_driver_sql("PRAGMA foreign_key_check").all():
        keys = connection.exec_driver_sql(f'PRAGMA foreign_key_list("{table}")').all()
        [(column, on_delete)] = [(each[3], each[6]) for each in keys if each[0] == key]
        # The names are those of our own schema.
        change = (
            f'UPDATE "{table}" SET "{column}" = NULL'  # nosec B608
            if on_delete == "SET NULL"
            else f'DELETE FROM "{table}"'  # nosec B608
        )
        connection.exec_driver_sql(f"{change} WHERE rowid = ?", (row_id,))


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = Database(Settings().database_url)
    with database.engine.connect() as opened:
        run(opened)
    database.dispose()
