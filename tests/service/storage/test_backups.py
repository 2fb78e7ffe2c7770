"""Backups of databases with data, restored into either kind."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete, func, select, text

from automap import migrations
from automap.service.settings import Settings
from automap.service.storage import backups, checking
from automap.service.storage.backups import BackupError
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import (
    ClusterRow,
    IdempotencyRow,
    JobEventRow,
    JobRow,
)
from tests.service.support.databases import Databases, migrated
from tests.service.support.job_claims import finish, taken
from tests.service.support.measured_jobs import add_measurement
from tests.service.support.workers import add_job, record


def check(database: Database) -> list[checking.Finding]:
    """What is found, but that the PostgreSQL of our tests has no contributed modules."""
    return [each for each in checking.check(database) if "pg_trgm" not in each.what]


def filled(databases: Databases, name: str) -> Database:
    """A database with something in most tables, running, over and waiting."""
    database = migrated(databases.create(name))
    job_id = add_job(database)
    finish(database, taken(database))
    add_job(database)
    add_measurement(database)
    with database.transaction() as session:
        session.add(ClusterRow(name="lab", spec={"pools": [], "ümlaut": None}))
        session.add(IdempotencyRow(key="k", fingerprint="f", job_id=job_id, expires_at=utc_now()))
    return database


def lines(path: Path) -> list[Any]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def written(path: Path, documents: list[Any]) -> Path:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents)
    return path


@contextmanager
def careless(database: Database) -> Iterator[Connection]:
    """A transaction in which no reference is looked at."""
    with database.engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        if connection.dialect.name == "sqlite":
            driver.execute("PRAGMA foreign_keys = OFF")
        else:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        yield connection
        connection.commit()
        if connection.dialect.name == "sqlite":
            driver.execute("PRAGMA foreign_keys = ON")


def number_of(table: Any, database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


@pytest.mark.slow_on("sqlite")
def test_rows_come_back_in_either_kind_of_database(databases: Databases, tmp_path: Path) -> None:
    source = filled(databases, "source")
    counts = backups.back_up(source, tmp_path / "first")
    assert counts["jobs"] == 3
    assert counts["job_events"] > 3
    assert (tmp_path / "first").stat().st_mode & 0o777 == 0o600
    with backups.scratch() as other:
        backups.restore(tmp_path / "first", other)
        assert check(other) == []
        backups.back_up(other, tmp_path / "second")
    back = Database(Settings(database_url=databases.create("back")).database_url)
    backups.restore(tmp_path / "second", back)
    backups.back_up(back, tmp_path / "third")
    first, *rows = lines(tmp_path / "first")
    assert first["revision"] == migrations.head_revision()
    for again in ("second", "third"):
        assert lines(tmp_path / again)[1:] == rows
    source.dispose()
    back.dispose()


def test_a_backup_is_of_one_moment(databases: Databases) -> None:
    database = migrated(databases.create("moment"))
    add_job(database)
    with backups._rows(database) as rows:
        seen = [next(rows)[0]]
        add_job(database)  # the service goes on
        seen += [name for name, _ in rows]
    assert (seen.count("plans"), seen.count("jobs")) == (1, 1)
    assert number_of(JobRow, database) == 2
    database.dispose()


def test_what_is_there_is_kept_unless_it_is_to_be_replaced(
    databases: Databases, tmp_path: Path
) -> None:
    database = filled(databases, "kept")
    backups.back_up(database, tmp_path / "backup")
    with pytest.raises(BackupError, match="exists"):
        backups.back_up(database, tmp_path / "backup")
    with database.transaction() as session:
        session.execute(delete(ClusterRow))
    with pytest.raises(BackupError, match="would be replaced"):
        backups.restore(tmp_path / "backup", database)
    # Whatever is wrong with a backup, nothing has changed then.
    head, *rows, end = lines(tmp_path / "backup")
    broken = {
        "cut off": [head, *rows],
        "short": [head, *rows[1:], end],
        "no row": [head, *rows, ["plans", 1], end],
        "other format": [head | {"format": 2}, *rows, end],
        "later": [head | {"revision": "9999"}, *rows, end],
        "no backup": [{"something": "else"}],
    }
    for name, documents in broken.items():
        with pytest.raises(BackupError):
            backups.restore(written(tmp_path / name, documents), database, replace=True)
    half = (tmp_path / "backup").read_bytes()
    (tmp_path / "half").write_bytes(half[: len(half) // 2])
    (tmp_path / "text").write_text("no gzip")
    for name in ("half", "text", "absent"):
        with pytest.raises(BackupError):
            backups.restore(tmp_path / name, database, replace=True)
    assert number_of(ClusterRow, database) == 0
    assert number_of(JobRow, database) == 3
    backups.restore(tmp_path / "backup", database, replace=True)
    assert number_of(ClusterRow, database) == 1
    assert number_of(JobRow, database) == 3
    database.dispose()


def test_an_older_backup_is_upgraded(databases: Databases, tmp_path: Path) -> None:
    database = migrated(databases.create("older"))
    job_id = add_job(database)
    backups.back_up(database, tmp_path / "backup")
    # As revision 0003 had written it: jobs had no kind, profiles no job, and nothing had a name.
    head, *rows, end = lines(tmp_path / "backup")
    known = {"plans", "plan_models", "clusters", "profiles", "jobs", "job_events", "job_logs"}
    known |= {"idempotency_keys"}
    described = ["origin", "name", "owner", "labels", "notes"]
    later = {
        "plans": ["written_as", *described],
        "jobs": ["kind", "priority", "retry_of", *described],
        "profiles": ["job_id"],
    }
    rows = [row for row in rows if row[0] in known]
    for table, names in later.items():
        columns = list(head["tables"][table])
        names = sorted(names, key=columns.index, reverse=True)
        for row in rows:
            if row[0] == table:
                for name in names:
                    del row[1 + columns.index(name)]
        for name in names:
            del head["tables"][table][name]
    head["tables"] = {name: of for name, of in head["tables"].items() if name in known}
    end["rows"] = {name: count for name, count in end["rows"].items() if name in known}
    older = written(tmp_path / "older", [head | {"revision": "0003"}, *rows, end])
    read, _ = backups.restore(older, database, replace=True)
    assert read.revision == "0003"
    job = record(database, job_id)
    assert (job.kind, job.status) == ("run", "queued")
    assert check(database) == []
    database.dispose()


def test_a_database_of_another_revision_is_not_backed_up(
    databases: Databases, tmp_path: Path
) -> None:
    database = migrated(databases.create("earlier"))
    migrations.downgrade(database.engine, "0003")
    with pytest.raises(BackupError, match="automap db upgrade"):
        backups.back_up(database, tmp_path / "backup")
    assert list(tmp_path.iterdir()) == []
    [found] = check(database)
    assert (found.weight, "0003" in found.what) == ("fault", True)
    database.dispose()


def test_a_check_finds_what_is_wrong(databases: Databases) -> None:
    database = filled(databases, "wrong")
    assert check(database) == []
    held = taken(database, lease_seconds=-1)
    with careless(database) as connection:
        # Every job has more events than this, or none.
        connection.execute(delete(JobEventRow).where(JobEventRow.sequence == 1))
        spec = {"spec": '{"models": {}}'}
        connection.execute(text("UPDATE plans SET spec = :spec, code_version = 'old'"), spec)
    found = {finding.what: (finding.weight, finding.count) for finding in check(database)}
    assert found["jobs have gaps in their events"][0] == "fault"
    assert found["plans.spec of old is shown as it was stored"] == ("note", 2)
    assert found["jobs wait for the next worker: their lease has expired"] == ("note", 1)
    assert held.job_id
    with careless(database) as connection:
        connection.execute(text("DELETE FROM plans"))
    found = {finding.what: (finding.weight, finding.count) for finding in check(database)}
    assert found["jobs.plan_id names no row of plans"] == ("fault", 2)
    database.dispose()
