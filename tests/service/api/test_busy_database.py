"""A database that is too busy, or full, is said to be that, and is no fault of ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import QueuePool, event
from sqlalchemy.exc import OperationalError

from automap.service.api import scrape
from automap.service.storage import writability
from automap.service.storage.database import Database
from tests.service.support.requests import problem

CLUSTER = {"name": "team", "pools": [{"name": "a", "gpu": "h100", "num_nodes": 1}]}


@pytest.fixture
def no_connection_left(client: TestClient) -> Iterator[None]:
    """All connections of the service are in use, and it waits for one no longer than this."""
    database: Database = client.app.state.service.database  # type: ignore[attr-defined]
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    pool._timeout = 0.05
    with ExitStack() as used:
        for _ in range(pool.size() + pool._max_overflow):
            used.enter_context(database.engine.connect())
        yield


@pytest.mark.usefixtures("no_connection_left")
@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/v1/clusters/any"), ("GET", "/v1/plans"), ("GET", "/readyz")]
)
def test_a_database_that_all_others_use_is_not_ready(
    client: TestClient, method: str, path: str
) -> None:
    response = client.request(method, path)
    problem(response, 503, "not-ready")
    assert response.headers["retry-after"]


def test_a_full_disk_is_said_to_be_that_and_seen(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "KEPT_SECONDS", -1.0)
    database: Database = client.app.state.service.database  # type: ignore[attr-defined]

    def writable() -> str:
        lines = client.get("/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("automap_database_writable"))

    assert writable().endswith(" 1.0")
    with _full(database) as code:
        response = client.post("/v1/clusters", json=CLUSTER)
        detail = problem(response, 503, "not-ready")["detail"]
        assert detail == f"The database cannot be written: its disk is full ({code})"
        assert client.get("/v1/clusters").status_code == 200
        assert problem(client.get("/readyz"), 503, "not-ready")["detail"] == detail
        assert client.get("/readyz", params={"reads_only": True}).status_code == 200
        assert client.get("/healthz").status_code == 200
        assert writable().endswith(" 0.0")
        # Soon afterwards nothing is tried, later on in vain.
        monkeypatch.setattr(writability, "CHECKED_AFTER_SECONDS", 0.0)
        assert writable().endswith(" 0.0")
        assert client.get("/readyz").status_code == 503
    # Nobody writes to what is not ready: it finds out by itself.
    assert client.get("/readyz").status_code == 200
    assert writable().endswith(" 1.0")
    assert client.post("/v1/clusters", json=CLUSTER).status_code == 201


@contextmanager
def _full(database: Database) -> Iterator[str]:
    """What changes rows fails as on a full disk: SQLite's, or PostgreSQL's, which has no limit."""
    dialect = database.engine.dialect.name

    def refuse(*arguments: Any) -> None:
        statement = arguments[2]
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            raise _disk_full(dialect)

    event.listen(database.engine, "before_cursor_execute", refuse)
    try:
        yield "SQLITE_FULL" if dialect == "sqlite" else "53100"
    finally:
        event.remove(database.engine, "before_cursor_execute", refuse)


def _disk_full(dialect: str) -> OperationalError:
    if dialect == "postgresql":
        return OperationalError(None, None, psycopg.errors.DiskFull())
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE rows (text)")
    connection.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as found:
        connection.execute("INSERT INTO rows VALUES (zeroblob(100000))")
    connection.close()
    return OperationalError(None, None, found.value)
