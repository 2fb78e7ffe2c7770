"""Texts are indexed where PostgreSQL can, and found without where it cannot."""

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, make_url, text

from automap import migrations
from automap.migrations import text_index
from automap.service.storage import checking
from automap.service.storage.database import Database
from benchmarks.chaos.databases import Postgres
from tests.service.support.databases import Databases, migrated

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Debian's PostgreSQL, with contributed modules; that of our tests has none."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not INSTALLED:
        pytest.skip("no PostgreSQL with contributed modules is installed")
    # Not in pytest's folders, which are closed to PostgreSQL's user.
    with tempfile.TemporaryDirectory(prefix="automap-pg-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        running = Postgres(folder, folder, INSTALLED[-1])
        yield running.url
        running.stop()


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """A new database of that server."""
    name = request.node.name
    with _as_superuser(server) as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
    return server.replace("/postgres?", f"/{name}?")


def _as_superuser(url: str) -> Connection:
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    return engine.connect()


def notes(database: Database) -> list[str]:
    return [each.what for each in checking.check(database) if "index" in each.what]


def test_an_upgrade_indexes_texts_and_a_search_uses_it(url: str) -> None:
    database = migrated(url)
    with database.reading() as session:
        session.execute(text("SET enable_seqscan = off"))
        statement = "EXPLAIN SELECT plan_id FROM plan_texts WHERE text LIKE '%' || 'math' || '%'"
        assert "ix_plan_texts_trigrams" in "\n".join(session.scalars(text(statement)))
    assert notes(database) == []
    migrations.upgrade(database.engine)  # and again, with nothing to do
    migrations.downgrade(database.engine, "base")
    migrations.upgrade(database.engine)
    assert notes(database) == []
    database.dispose()


def test_an_index_that_was_not_allowed_is_made_when_it_is(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with _as_superuser(url) as connection:
        connection.execute(text("CREATE ROLE guest LOGIN"))
        connection.execute(text("GRANT CREATE ON SCHEMA public TO guest"))
    database = migrated(url.replace("//postgres:@", "//guest:@"))
    assert "permission denied to create extension" in caplog.text
    [note] = notes(database)
    assert note.startswith("plan_texts and job_texts are searched without an index")
    with _as_superuser(url) as connection:
        connection.execute(text(f"CREATE EXTENSION {text_index.EXTENSION}"))
    migrations.upgrade(database.engine)
    assert notes(database) == []
    database.dispose()


def test_an_upgrade_does_without_an_index(
    databases: Databases, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        database = migrated(databases.create("unindexed"))
    expected = 1 if databases.backend == "postgresql" else 0
    assert caplog.text.count("contributed modules are not installed") == expected
    assert len(notes(database)) == expected
    database.dispose()
