"""`automap db` on both databases, with data."""

import json
from io import StringIO
from pathlib import Path

import pytest

from automap import migrations
from automap.service.schemas.access import NewApiKey
from automap.service.storage import api_keys, backups
from automap.service.storage.database import Database
from tests.cli.commands import call
from tests.service.support.databases import Databases, migrated, url_of
from tests.service.support.job_claims import taken
from tests.service.support.measured_jobs import add_measurement
from tests.service.support.workers import add_job, record


def revision(database: Database) -> str | None:
    with database.reading() as session:
        return migrations.current_revision(session.connection())


@pytest.mark.slow_on("sqlite")
def test_up_and_down_say_what_is_lost(
    databases: Databases, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = databases.create("commands")
    database = ("--database-url", url)
    assert call(capsys, "db", "upgrade", *database, "--revision", "0004")[:2] == (
        0,
        "revision base → 0004\n",
    )
    call(capsys, "db", "upgrade", *database)
    code, out, _ = call(capsys, "db", "upgrade", *database)
    assert (code, out) == (0, f"at revision {migrations.head_revision()} already\n")
    opened = migrated(url)
    job_id = add_job(opened)
    add_measurement(opened)
    # Nobody is there to be asked, so nothing is done.
    code, out, err = call(capsys, "db", "downgrade", "0001", *database)
    assert (code, "--yes" in err) == (2, True)
    assert "the table jobs goes, with 2 rows" in out
    code, out, _ = call(capsys, "db", "downgrade", "0003", *database, "--yes")
    assert code == 0
    assert "jobs: 1 rows go" in out
    assert "jobs: the column kind goes, with 2 values" in out
    assert revision(opened) == "0003"
    code, _, err = call(capsys, "db", "check", *database)
    assert (code, "1 kind of fault" in err) == (1, True)
    assert call(capsys, "db", "downgrade", "12", *database)[0] == 2
    call(capsys, "db", "upgrade", *database)
    code, out, _ = call(capsys, "db", "check", *database)
    assert (code, out.splitlines()[-1]) == (0, "the database is sound")
    assert record(opened, job_id).status == "queued"
    opened.dispose()


def test_a_backup_and_back(
    databases: Databases, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = migrated(databases.create("backed_up"))
    job_id = add_job(source)
    file = str(tmp_path / "backup.gz")
    code, out, _ = call(capsys, "db", "backup", file, "--database-url", url_of(source))
    assert (code, "1 plans, " in out, "1 jobs" in out) == (0, True, True)
    other = f"sqlite:///{tmp_path}/other.db"
    code, out, _ = call(capsys, "db", "restore", file, "--database-url", other)
    assert (code, "restored 1 plans" in out) == (0, True)
    code, _, err = call(capsys, "db", "restore", file, "--database-url", other)
    assert (code, "say --replace" in err) == (2, True)
    replacing = ("db", "restore", file, "--replace", "--yes", "--database-url", other)
    assert call(capsys, *replacing)[0] == 0
    code, out, _ = call(capsys, "db", "check", "--json", "--database-url", other)
    assert (code, json.loads(out)) == (0, [])
    restored = Database(other)
    assert record(restored, job_id) == record(source, job_id)
    source.dispose()
    restored.dispose()


def test_a_restore_says_what_goes_and_asks(
    databases: Databases, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    database = migrated(databases.create("replaced"))
    with database.transaction() as session:
        revoked, kept = (api_keys.create(session, NewApiKey(owner="ada")) for _ in range(2))
    file = str(tmp_path / "backup.gz")
    assert call(capsys, "db", "backup", file, "--database-url", url_of(database))[0] == 0
    with database.transaction() as session:
        api_keys.revoke(session, revoked.id)
        newer = api_keys.create(session, NewApiKey(owner="bob"))
    add_job(database)
    replacing = ("db", "restore", file, "--replace", "--database-url", url_of(database))
    # Nobody is there to be asked, so nothing is done.
    code, out, err = call(capsys, *replacing)
    assert (code, "--yes" in err) == (2, True)
    told = out.splitlines()
    assert "1 plans" in told[0]
    assert "3 api_keys" in told[0]
    assert f"keys made since open no more: {newer.prefix}" in told
    assert f"keys revoked since open again, until they are revoked again: {revoked.prefix}" in told
    assert kept.prefix not in out
    assert sum(backups.counted(database).values()) > 3
    # Nor while a worker holds the job, whatever is said.
    held = taken(database)
    code, _, err = call(capsys, *replacing, "--yes")
    assert (code, "they hold 1 jobs" in err, "stop them" in err) == (2, True, True)
    with database.transaction() as session:
        assert held.lease.release(session)
    assert call(capsys, *replacing, "--yes")[0] == 0
    assert backups.counted(database)["api_keys"] == 2
    assert backups.counted(database)["plans"] == 0
    database.dispose()


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_a_restore_obeys_the_answer(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
) -> None:
    url = f"sqlite:///{tmp_path}/replaced.db"
    database, file = migrated(url), str(tmp_path / "backup.gz")
    assert call(capsys, "db", "backup", file, "--database-url", url)[0] == 0
    add_job(database)
    terminal = StringIO(f"{answer}\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    assert call(capsys, "db", "restore", file, "--replace", "--database-url", url)[0] == code
    assert backups.counted(database)["jobs"] == code
    database.dispose()


def test_a_database_that_is_away(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    away = "postgresql://nobody:x@127.0.0.1:1/nothing"
    for arguments in (["check"], ["backup", str(tmp_path / "file")]):
        code, _, err = call(capsys, "db", *arguments, "--database-url", away)
        assert (code, "cannot be used" in err) == (1, True)
        assert "\\t" not in err
        assert "\n  Is the server running on that host" in err
    (tmp_path / "broken.db").write_bytes(b"no database at all" * 100)
    code, _, err = call(capsys, "db", "check", "--database-url", f"sqlite:///{tmp_path}/broken.db")
    assert (code, "cannot be used" in err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["db", "check"],
        ["db", "backup", "file"],
        ["db", "downgrade", "0001", "--yes"],
        ["keys", "list"],
        ["keys", "revoke", "00000000-0000-0000-0000-000000000000"],
        ["audit"],
    ],
)
def test_a_file_that_is_not_there_is_not_made(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(
        capsys, *arguments, "--database-url", f"sqlite:///{tmp_path}/a/mistyped.db"
    )
    assert (code, out) == (2, "")
    assert f"--database-url (AUTOMAP_DATABASE_URL): there is no database {tmp_path}/a" in err
    assert list(tmp_path.iterdir()) == []
