import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import StatementError

from automap.service import server
from automap.service.schemas.base import PageQuery
from automap.service.schemas.catalogue import NewCluster
from automap.service.settings import Settings
from automap.service.storage import clusters
from automap.service.storage.database import Database
from automap.service.storage.tables import ClusterRow
from tests.service.support.databases import migrated

POOLS = [{"name": "a100", "gpu": "a100", "num_nodes": 1}]


def add(database: Database, created_at: datetime) -> None:
    with database.transaction() as session:
        session.add(ClusterRow(name="one", spec={"pools": POOLS}, created_at=created_at))


def test_times_come_back_in_utc(database: Database) -> None:
    moment = datetime(2026, 3, 29, 3, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5)))
    add(database, moment)
    with database.reading() as session:
        stored = session.scalars(select(ClusterRow.created_at)).one()
    assert stored == moment
    assert stored.tzinfo == UTC


def test_times_without_a_zone_are_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="no time zone"):
        add(database, datetime(2026, 3, 29))  # noqa: DTZ001 - the mistake under test


def add_and_fail(database: Database) -> None:
    with database.transaction() as session:
        clusters.add(session, NewCluster.model_validate({"name": "one", "pools": POOLS}))
        raise RuntimeError


def test_an_exception_rolls_back(database: Database) -> None:
    with pytest.raises(RuntimeError):
        add_and_fail(database)
    with database.reading() as session:
        assert clusters.list_clusters(session, PageQuery()).items == []


def test_readers_do_not_wait_for_a_writer(database: Database) -> None:
    with database.transaction() as writing:
        clusters.add(writing, NewCluster.model_validate({"name": "one", "pools": POOLS}))
        with database.reading() as reading:
            assert clusters.list_clusters(reading, PageQuery()).items == []


def test_documents_keep_the_order_of_their_keys(database: Database) -> None:
    # A planner may break ties by the order of roles: the same spec must come back.
    spec = {"zebra": 1, "b": {"long-key": 1, "a": 2}, "a": 3}
    with database.transaction() as session:
        session.add(ClusterRow(name="one", spec=spec))
    with database.reading() as session:
        stored = session.scalars(select(ClusterRow.spec)).one()
    assert json.dumps(stored) == json.dumps(spec)


def test_sqlite_enforces_foreign_keys_and_writes_ahead(database: Database) -> None:
    if database.engine.dialect.name != "sqlite":
        pytest.skip("settings of SQLite")
    with database.reading() as session:
        assert session.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
        assert session.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"


@pytest.mark.parametrize(
    "url", ["", "mysql://host/name", "sqlite://", "sqlite:///:memory:", "somewhere.db"]
)
def test_databases_we_cannot_use_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="use sqlite"):
        Settings(database_url=url)


def test_keys_are_split_and_kept_out_of_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOMAP_API_KEYS", "first, second,,")
    settings = Settings()
    assert [key.get_secret_value() for key in settings.api_keys] == ["first", "second"]
    assert "first" not in repr(settings)


def modes_of(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    opened = migrated(f"sqlite:///{folder}/automap.db")
    with opened.transaction() as session:
        clusters.add(session, NewCluster.model_validate({"name": "one", "pools": POOLS}))
        names = ("automap.db", "automap.db-wal", "automap.db-shm")
        assert modes_of(folder) == dict.fromkeys(names, 0o600)
    opened.dispose()
    assert modes_of(tmp_path) | modes_of(tmp_path / "new") == {"new": 0o700, "folder": 0o700}


def test_a_file_that_a_group_shares_stays_shared(tmp_path: Path) -> None:
    (tmp_path / "automap.db").touch()
    (tmp_path / "automap.db").chmod(0o660)
    opened = migrated(f"sqlite:///{tmp_path}/automap.db")
    with opened.reading() as session:
        clusters.list_clusters(session, PageQuery())
        names = ("automap.db", "automap.db-wal", "automap.db-shm")
        assert modes_of(tmp_path) == dict.fromkeys(names, 0o660)
    opened.dispose()


@pytest.mark.parametrize("open_to_all", [True, False])
def test_a_database_that_everybody_can_read_is_named_at_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    open_to_all: bool,
) -> None:
    # The folders of tests are closed to others.
    monkeypatch.setattr(server, "is_open_to_all", lambda path: open_to_all)
    server.migrate(Settings(database_url=f"sqlite:///{tmp_path}/automap.db"))
    assert (f"{tmp_path}/automap.db: chmod 600" in caplog.text) == open_to_all
