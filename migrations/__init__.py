"""The database schema's history. The installed package can bring any database up to date."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration; without a connection the URL comes from the service's settings."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema to `revision`; several servers may do so at the same time."""
    with engine.connect() as connection:
        command.upgrade(alembic_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Take the schema back to `revision`; `base` removes everything."""
    with engine.connect() as connection:
        command.downgrade(alembic_config(connection), revision)


def head_revision() -> str | None:
    """The newest revision this code knows."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head()


def revisions() -> list[str]:
    """All revisions that this code knows, the oldest first."""
    script = ScriptDirectory.from_config(alembic_config())
    return [each.revision for each in script.walk_revisions()][::-1]


def current_revision(connection: Connection) -> str | None:
    """The revision the database is at; None: it has no schema."""
    return MigrationContext.configure(connection).get_current_revision()
