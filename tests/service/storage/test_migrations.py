import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from alembic import command
from sqlalchemy import CheckConstraint, Uuid, bindparam, event, inspect, select, text, update
from sqlalchemy.exc import IntegrityError

from automap import migrations
from automap.service.schemas.access import AuditQuery, NewApiKey
from automap.service.schemas.jobs import JobQuery
from automap.service.schemas.plans import PlanQuery
from automap.service.settings import Settings
from automap.service.storage import api_keys, audit, job_records, plan_records
from automap.service.storage.database import Base, Database, UtcDateTime, utc_now
from automap.service.storage.tables import AuditRow, IdempotencyRow, JobEventRow, JobRow, PlanRow
from tests.service.support.databases import Databases
from tests.service.support.measured_jobs import add_measurement
from tests.service.support.workers import add_job, events, record


def opened(databases: Databases, name: str) -> Database:
    return Database(Settings(database_url=databases.create(name)).database_url)


def test_up_gives_the_tables_and_down_removes_them(databases: Databases) -> None:
    database = opened(databases, "up_and_down")
    migrations.upgrade(database.engine)
    with database.engine.connect() as connection:
        assert migrations.current_revision(connection) == migrations.head_revision() is not None
        assert set(inspect(connection).get_table_names()) == {
            *Base.metadata.tables,
            "alembic_version",
        }
    migrations.downgrade(database.engine, "base")
    with database.engine.connect() as connection:
        assert migrations.current_revision(connection) is None
        assert inspect(connection).get_table_names() == ["alembic_version"]
    migrations.upgrade(database.engine)
    database.dispose()


def test_keys_survive_the_way_up_and_those_of_plans_the_way_down(databases: Databases) -> None:
    database = opened(databases, "keys")
    migrations.upgrade(database.engine, "0001")
    expiry = utc_now()
    with database.transaction() as session:
        session.execute(
            text(
                "INSERT INTO idempotency_keys (key, fingerprint, lease_token, expires_at)"
                " VALUES ('held', 'f', :token, :expiry)"
            ).bindparams(bindparam("token", type_=Uuid()), bindparam("expiry", type_=UtcDateTime)),
            {"token": uuid4(), "expiry": expiry},
        )
    migrations.upgrade(database.engine)
    job_id = add_job(database)
    with database.transaction() as session:
        (kept,) = session.scalars(select(IdempotencyRow))
        assert (kept.key, kept.job_id, kept.expires_at) == ("held", None, expiry)
        row = IdempotencyRow(key="job", fingerprint="f", job_id=job_id, expires_at=expiry)
        session.add(row)
    for both in ({"plan_id": None, "job_id": job_id, "lease_token": uuid4()}, {}):
        with pytest.raises(IntegrityError), database.transaction() as session:
            session.add(IdempotencyRow(key="bad", fingerprint="f", expires_at=expiry, **both))
    migrations.downgrade(database.engine, "0001")
    with database.engine.connect() as connection:
        keys = connection.execute(text("SELECT key FROM idempotency_keys")).scalars().all()
        assert keys == ["held"]
        assert "jobs" not in inspect(connection).get_table_names()
    migrations.upgrade(database.engine)
    with database.engine.connect() as connection:
        command.check(migrations.alembic_config(connection))
    database.dispose()


def test_plans_and_jobs_of_before_are_found_by_their_text(databases: Databases) -> None:
    database = opened(databases, "texts")
    migrations.upgrade(database.engine)
    job_id = add_job(database)
    with database.transaction() as session:
        session.execute(update(PlanRow).values(spec_name="Ärger"))
    migrations.downgrade(database.engine, "0007")
    migrations.upgrade(database.engine)
    with database.reading() as session:
        (plan,) = plan_records.list_plans(session, PlanQuery(q="ärger tiny")).items
        assert (plan.name, plan.owner, plan.labels) == ("Ärger", "local", {})
        (job,) = job_records.list_jobs(session, JobQuery(q="ÄRGER")).items
        assert (job.id, job.name) == (job_id, "Ärger")
    database.dispose()


def test_what_belongs_to_a_job_survives_the_way_up_and_runs_the_way_down(
    databases: Databases,
) -> None:
    """SQLite builds the table of jobs anew, and what refers to it must not go with the old one."""
    database = opened(databases, "jobs")
    migrations.upgrade(database.engine)
    job_id = add_job(database)
    migrations.downgrade(database.engine, "0003")
    migrations.upgrade(database.engine)
    assert record(database, job_id).status == "queued"
    assert [event["status"] for event in events(database, job_id)] == ["queued"]
    profile_id = add_measurement(database)
    migrations.downgrade(database.engine, "0003")
    migrations.upgrade(database.engine)
    assert record(database, job_id).status == "queued"
    with database.reading() as session:
        assert session.get(JobRow, profile_id) is None
        assert session.get(JobRow, job_id) is not None
        # What belonged to the profile went with it.
        assert set(session.scalars(select(JobEventRow.job_id))) == {job_id}
    # Foreign keys are enforced again.
    with pytest.raises(IntegrityError), database.transaction() as session:
        session.execute(update(JobRow).values(plan_id=uuid4()))
    database.dispose()


def test_plans_survive_the_way_of_keys_and_the_log(databases: Databases) -> None:
    database = opened(databases, "access")
    migrations.upgrade(database.engine)
    job_id = add_job(database)
    with database.transaction() as session:
        made = api_keys.create(session, NewApiKey(owner="ada"))
        audit.add(session, AuditRow(owner="ada", method="POST", route="/v1/plans", status=201))
    migrations.downgrade(database.engine, "0004")
    with database.engine.connect() as connection:
        assert not {"api_keys", "audit_log"} & set(inspect(connection).get_table_names())
    migrations.upgrade(database.engine)
    assert record(database, job_id).status == "queued"
    with database.reading() as session:
        assert not api_keys.is_any(session)
        assert audit.list_requests(session, AuditQuery()).items == []
        assert api_keys.find_sent(session, made.key) is None
    database.dispose()


def test_requests_of_before_have_no_id(databases: Databases) -> None:
    database = opened(databases, "requests")
    migrations.upgrade(database.engine)
    given = {"method": "POST", "route": "/v1/plans", "status": 201}
    with database.transaction() as session:
        audit.add(session, AuditRow(owner="ada", request_id="r-1", **given))
    migrations.downgrade(database.engine, "0011")
    with database.engine.connect() as connection:
        columns = {each["name"] for each in inspect(connection).get_columns("audit_log")}
        assert "request_id" not in columns
    migrations.upgrade(database.engine)
    with database.reading() as session:
        (entry,) = audit.list_requests(session, AuditQuery()).items
        assert (entry.owner, entry.request_id) == ("ada", None)
    database.dispose()


def test_autogenerate_finds_no_difference(database: Database) -> None:
    with database.engine.connect() as connection:
        command.check(migrations.alembic_config(connection))


def test_check_constraints_are_those_of_the_tables(database: Database) -> None:
    # Autogenerate does not compare check constraints.
    with database.engine.connect() as connection:
        for name, table in Base.metadata.tables.items():
            migrated = {check["name"] for check in inspect(connection).get_check_constraints(name)}
            declared = {
                str(constraint.name)
                for constraint in table.constraints
                if isinstance(constraint, CheckConstraint)
            }
            assert migrated == declared


def when_at(database: Database, revision: str, do: Callable[[], None]) -> None:
    """`do` something before the database is said to be at a revision."""

    @event.listens_for(database.engine, "before_cursor_execute")
    def look(*arguments: Any) -> None:
        if "alembic_version" in arguments[2] and f"'{revision}'" in arguments[2]:
            do()


def is_locked(url: str) -> bool:
    """Whether another server would have to wait before it migrates."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return "locked" in str(error)
        finally:
            connection.close()
        return False
    other = Database(Settings(database_url=url).database_url)
    with other.engine.connect() as connection:
        held = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        locks = connection.execute(held).scalar_one()
    other.dispose()
    return bool(locks)


def test_the_lock_is_held_from_the_first_migration_to_the_last(databases: Databases) -> None:
    url = databases.create("locked")
    database = Database(Settings(database_url=url).database_url)
    found: list[bool] = []
    for revision in migrations.revisions():
        when_at(database, revision, lambda: found.append(is_locked(url)))
    ends: list[str] = []
    event.listen(database.engine, "commit", lambda _: ends.append("let go"))
    migrations.upgrade(database.engine)
    assert len(ends) == 1
    assert len(found) >= len(migrations.revisions())
    assert all(found)
    database.dispose()
    assert not is_locked(url)


def test_a_migration_that_fails_leaves_the_schema_as_it_was(databases: Databases) -> None:
    database = opened(databases, "fails")
    migrations.upgrade(database.engine, "0002")
    with database.engine.connect() as connection:
        tables = inspect(connection).get_table_names()

    def fail() -> None:
        raise RuntimeError("the disk is full")

    when_at(database, "0005", fail)
    with pytest.raises(RuntimeError, match="full"):
        migrations.upgrade(database.engine)
    with database.engine.connect() as connection:
        assert migrations.current_revision(connection) == "0002"
        assert inspect(connection).get_table_names() == tables
    database.dispose()


def test_servers_that_start_together_migrate_once(databases: Databases) -> None:
    environment = {**os.environ, "AUTOMAP_DATABASE_URL": databases.create("together")}
    code = "from automap.service.server import migrate, Settings; migrate(Settings())"
    servers = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [server.wait(timeout=60) for server in servers] == [0, 0, 0]
