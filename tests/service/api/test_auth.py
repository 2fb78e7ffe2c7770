from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from automap.service.app import create_app
from automap.service.storage.database import Database
from tests.service.support.databases import settings_for, url_of
from tests.service.support.requests import POST_HEADERS, problem

# Keys of the environment, which no database has; the other one is for make test-all.
pytestmark = pytest.mark.slow_on("postgresql")


@pytest.fixture
def guarded(database: Database) -> Iterator[TestClient]:
    keys = (SecretStr("first-key"), SecretStr("second-key"))
    app = create_app(settings_for(url_of(database), api_keys=keys))
    yield TestClient(app, raise_server_exceptions=False)
    app.state.service.database.dispose()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer first-key2"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "first-key"},
        {"X-Api-Key": "first-key"},
    ],
)
def test_without_a_known_key_nothing_is_answered(
    guarded: TestClient, headers: dict[str, str]
) -> None:
    for method, path in [
        ("GET", "/v1/plans"),
        ("GET", "/v1/models"),
        ("POST", "/v1/plans"),
        ("DELETE", "/v1/clusters/team"),
        ("GET", "/v1/schemas/job-spec"),
    ]:
        response = guarded.request(method, path, headers=headers)
        problem(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"


def test_the_body_is_not_looked_at_before_the_key(guarded: TestClient) -> None:
    response = guarded.post("/v1/plans", content=b"[" * 1000, headers=POST_HEADERS)
    problem(response, 401, "unauthorized")


def test_each_key_opens(guarded: TestClient) -> None:
    for key in ("first-key", "second-key"):
        headers = {"Authorization": f"Bearer {key}"}
        assert guarded.get("/v1/plans", headers=headers).status_code == 200


def test_health_needs_no_key(guarded: TestClient) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert guarded.get(path).status_code == 200


@pytest.mark.slow
def test_the_document_shows_keys_and_scopes(guarded: TestClient, client: TestClient) -> None:
    document = guarded.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert "401" in document["paths"]["/v1/plans"]["get"]["responses"]
    assert "401" not in document["paths"]["/healthz"]["get"]["responses"]
    asked = {
        (path, method): operation["security"][0]["HTTPBearer"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if path.startswith("/v1/")
    }
    assert asked["/v1/plans", "get"] == ["read"]
    assert asked["/v1/plans", "post"] == asked["/v1/plans/{plan_id}/explain", "get"] == ["plan"]
    assert asked["/v1/jobs", "post"] == asked["/v1/profiles", "post"] == ["run"]
    assert asked["/v1/keys", "get"] == asked["/v1/audit", "get"] == ["admin"]
    # One document for all services: a client made from it works before and after the first key.
    assert client.get("/openapi.json").json() == document
