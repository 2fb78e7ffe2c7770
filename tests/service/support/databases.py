"""New databases of either kind, with and without tables, and settings for them."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from automap import migrations
from automap.service.settings import Settings
from automap.service.storage.database import Base, Database

FAST = {"lease_seconds": 5, "poll_seconds": 0.2, "allowed_hosts": ("testserver",)}


class Databases:
    """Makes databases of one kind."""

    def __init__(self, backend: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self.backend = backend
        self._folder = folder
        self._uri = request.getfixturevalue("postgres_uri") if backend == "postgresql" else None

    def create(self, name: str) -> str:
        """The URL of a new, empty database."""
        if self._uri is None:
            return f"sqlite:///{self._folder / name}.db"
        server = Settings(database_url=self._uri).database_url
        engine = create_engine(server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
            connection.execute(text(f'CREATE DATABASE "{name}"'))
        engine.dispose()
        return self._uri.replace("/postgres?", f"/{name}?")


def settings_for(url: str, **changes: Any) -> Settings:
    return Settings(database_url=url, **{**FAST, **changes})


def migrated(url: str) -> Database:
    database = Database(Settings(database_url=url).database_url)
    migrations.upgrade(database.engine)
    return database


def emptied(database: Database) -> Database:
    with database.transaction() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
    return database


def url_of(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)
