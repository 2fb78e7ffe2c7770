"""Run by Alembic: connects, takes a lock so that two servers never migrate at once, migrates."""

from alembic import context
from sqlalchemy import Connection, text

from service import tables  # noqa: F401 - registers the tables on Base.metadata
from service.database import Base, Database
from service.settings import Settings

LOCK_KEY = 5_207_011_846
"""Any number, the same for all servers of a database."""


def run(connection: Connection) -> None:
    sqlite = connection.dialect.name == "sqlite"
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=sqlite,  # SQLite alters a table by building it anew
        compare_type=True,
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        if not sqlite:  # SQLite's transaction is IMMEDIATE: it holds the only write lock
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = Database(Settings().database_url)
    with database.engine.connect() as opened:
        run(opened)
    database.dispose()
