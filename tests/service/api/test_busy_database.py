"""A database that is too busy to answer is said to be that, and is no fault of ours."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import QueuePool

from automap.service.storage.database import Database
from tests.service.support.requests import problem


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
