"""Texts are indexed where PostgreSQL can, and found without where it cannot."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine, make_url, text

from automap import migrations
from automap.migrations import text_index
from automap.service.storage import checking
from automap.service.storage.database import Database
from benchmarks.chaos.databases import Postgres
from tests.cli.commands import call
from tests.service.support.databases import Databases, migrated

INSTALLED = [each.parent for each in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
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
    by_superuser(server, f'CREATE DATABASE "{name}"')
    return server.replace("/postgres?", f"/{name}?")


def by_superuser(url: str, *statements: str) -> None:
    there = make_url(url).set(drivername="postgresql+psycopg")
    engine = create_engine(there, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for each in statements:
            connection.execute(text(each))
    engine.dispose()


def notes(database: Database) -> list[str]:
    return [each.what for each in checking.check(database) if "index" in each.what]


@pytest.mark.parametrize("schema", ["public", "Another one"])
def test_texts_are_indexed_and_a_search_uses_it(url: str, schema: str) -> None:
    by_superuser(url, f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    by_superuser(url, f'CREATE EXTENSION {text_index.EXTENSION} SCHEMA "{schema}"')
    database = migrated(url)
    for _ in range(2):
        text_index.make(database.engine)
    assert notes(database) == []
    with database.reading() as session:
        session.execute(text("SET enable_seqscan = off"))
        statement = "EXPLAIN SELECT plan_id FROM plan_texts WHERE text LIKE '%' || 'math' || '%'"
        assert "ix_plan_texts_trigrams" in "\n".join(session.scalars(text(statement)))
    with database.engine.connect() as connection:
        command.check(migrations.alembic_config(connection))
    migrations.downgrade(database.engine, "base")
    text_index.make(database.engine)  # there is nothing to be indexed
    migrations.upgrade(database.engine)
    assert len(notes(database)) == 1
    text_index.make(database.engine)
    assert notes(database) == []
    database.dispose()


def test_an_index_that_was_not_allowed_is_made_when_it_is(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    by_superuser(url, "CREATE ROLE guest LOGIN", "GRANT CREATE ON SCHEMA public TO guest")
    database = migrated(url.replace("//postgres:@", "//guest:@"))
    text_index.make(database.engine)
    assert "without an index: permission denied to create extension" in caplog.text
    [note] = notes(database)
    assert note.startswith("job_texts and plan_texts are searched without an index")
    by_superuser(url, f"CREATE EXTENSION {text_index.EXTENSION}")
    text_index.make(database.engine)
    assert notes(database) == []
    database.dispose()


def test_an_upgrade_does_without_an_index(
    databases: Databases, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    database = ("--database-url", databases.create("unindexed"))
    assert call(capsys, "db", "upgrade", *database)[0] == 0
    expected = 1 if databases.backend == "postgresql" else 0
    assert caplog.text.count("contributed modules") == expected
    code, out, _ = call(capsys, "db", "check", *database)
    assert (code, out.count("are searched without an index")) == (0, expected)
