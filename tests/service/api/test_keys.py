"""Keys in the database: what they open, for whom, how much of it, and until when."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from sqlalchemy import select, update

from automap.service.api.key_limits import KeyLimits
from automap.service.api.refusals import TooManyRequestsError
from automap.service.app import create_app
from automap.service.schemas.access import ALL_SCOPES, CreatedApiKey, NewApiKey, Scope
from automap.service.storage import api_keys
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import ApiKeyRow
from tests.service.support.databases import Databases, migrated, settings_for, url_of
from tests.service.support.requests import problem
from tests.service.support.samples import Json
from tests.service.support.servers import serving
from tests.service.support.workers import add_job

NO_PLAN = UUID(int=0)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def made(database: Database, *scopes: Scope, **fields: Any) -> CreatedApiKey:
    new = NewApiKey(**{"owner": "ada", "scopes": list(scopes or ALL_SCOPES), **fields})
    with database.transaction() as session:
        return api_keys.create(session, new)


def row_of(database: Database, key_id: UUID) -> ApiKeyRow:
    with database.reading() as session:
        return session.scalars(select(ApiKeyRow).where(ApiKeyRow.id == key_id)).one()


def audit(client: TestClient, key: str, **query: object) -> list[Json]:
    response = client.get("/v1/audit", headers=bearer(key), params=query)  # type: ignore[arg-type]
    assert response.status_code == 200, response.text
    items: list[Json] = response.json()["items"]
    return items


@pytest.fixture
def limited(database: Database) -> Iterator[TestClient]:
    app = create_app(
        settings_for(url_of(database), max_requests_per_minute=5, max_plans_at_once=1, max_queued=2)
    )
    yield TestClient(app, raise_server_exceptions=False)
    app.state.service.database.dispose()


def test_the_first_key_closes_the_service(client: TestClient, database: Database) -> None:
    asked: Json = {"owner": "ada", "scopes": ["admin", "read", "read"], "note": "laptop"}
    response = client.post("/v1/keys", json=asked)
    assert response.status_code == 201, response.text
    assert response.headers["cache-control"] == "no-store"
    key = CreatedApiKey.model_validate_json(response.content)
    assert (key.owner, key.scopes, key.note) == ("ada", ["read", "admin"], "laptop")
    assert response.headers["location"] == f"/v1/keys/{key.id}"
    assert key.key.startswith(f"am_{key.id.hex}_")
    assert key.prefix == f"am_{key.id.hex}"
    problem(client.get("/v1/plans"), 401, "unauthorized")
    assert client.get("/v1/plans", headers=bearer(key.key)).status_code == 200
    secret = key.key.removeprefix(key.prefix + "_")
    assert len(secret) >= 43
    listed = client.get("/v1/keys", headers=bearer(key.key))
    assert [each["id"] for each in listed.json()["items"]] == [str(key.id)]
    assert secret not in listed.text
    assert secret not in str(vars(row_of(database, key.id)))


def test_a_key_is_known_from_its_first_moment(client: TestClient, database: Database) -> None:
    assert client.get("/v1/plans").status_code == 200
    reader = made(database, "read", owner="bob")  # by another process
    refused = client.post("/v1/clusters", headers=bearer(reader.key), json={})
    problem(refused, 403, "missing-scope")
    problem(client.get("/v1/plans", headers=bearer(reader.key + "x")), 401, "unauthorized")
    problem(client.get("/v1/plans"), 401, "unauthorized")


@pytest.mark.slow_on("sqlite")
def test_keys_that_do_not_open(client: TestClient, database: Database) -> None:
    good = made(database).key
    other = made(database).key
    expired = made(database, expires_at=utc_now() - timedelta(seconds=1))
    revoked = made(database)
    with database.transaction() as session:
        api_keys.revoke(session, revoked.id)
    assert client.get("/v1/plans", headers=bearer(good)).status_code == 200
    mixed = good[: len("am_") + 32] + other[len("am_") + 32 :]
    for key in (good[:-1], good + "x", mixed, "am_", "am__", f"am_{'0' * 32}_x", "am_x_y_z"):
        problem(client.get("/v1/plans", headers=bearer(key)), 401, "unauthorized")
    for key, word in ((expired.key, "expired"), (revoked.key, "revoked")):
        refused = problem(client.get("/v1/plans", headers=bearer(key)), 401, "unauthorized")
        assert word in refused["detail"]
        assert refused["title"] == "API key revoked or expired"


def test_a_key_that_ended_is_named_in_both_logs(
    client: TestClient, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    admin = made(database)
    expired = made(database, expires_at=utc_now() - timedelta(seconds=1), owner="bob")
    revoked = made(database, owner="eve")
    with database.transaction() as session:
        api_keys.revoke(session, revoked.id)
    with caplog.at_level("INFO"):
        for key in (expired.key, revoked.key, "unknown"):
            client.get("/v1/plans", headers=bearer(key))
    named = [("bob", str(expired.id)), ("eve", str(revoked.id)), (None, None)]
    logged = [each for each in caplog.records if hasattr(each, "route")]
    found = [(getattr(each, "owner", None), getattr(each, "key_id", None)) for each in logged]
    assert found == named
    written = audit(client, admin.key)[::-1]
    assert [(each["owner"], each["key_id"]) for each in written] == named


def test_a_key_that_ended_does_not_open_the_service_again(
    client: TestClient, database: Database
) -> None:
    key = made(database)
    with database.transaction() as session:
        api_keys.revoke(session, key.id)
        assert not api_keys.is_any_usable(session)
        assert api_keys.is_any(session)
    problem(client.get("/v1/plans"), 401, "unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/plans", "read"),
        ("GET", "/v1/jobs", "read"),
        ("POST", "/v1/plans", "plan"),
        ("DELETE", "/v1/plans/00000000-0000-0000-0000-000000000000", "plan"),
        ("GET", "/v1/plans/00000000-0000-0000-0000-000000000000/explain", "plan"),
        ("POST", "/v1/estimates", "plan"),
        ("POST", "/v1/clusters", "plan"),
        ("POST", "/v1/jobs", "run"),
        ("POST", "/v1/jobs/00000000-0000-0000-0000-000000000000/cancel", "run"),
        ("POST", "/v1/profiles", "run"),
        ("PUT", "/v1/profiles/0123456789ab/default", "run"),
        ("GET", "/v1/keys", "admin"),
        ("POST", "/v1/keys", "admin"),
        ("GET", "/v1/audit", "admin"),
    ],
)
def test_each_route_needs_its_scope(
    client: TestClient, database: Database, method: str, path: str, scope: Scope
) -> None:
    others = made(database, *(ALL_SCOPES - {scope}))
    refused = client.request(method, path, headers=bearer(others.key))
    assert scope in problem(refused, 403, "missing-scope")["detail"]
    assert f'scope="{scope}"' in refused.headers["www-authenticate"]
    allowed = client.request(method, path, headers=bearer(made(database, scope).key))
    assert allowed.status_code not in (401, 403), allowed.text


def test_the_use_of_a_key_is_written_once_a_minute(client: TestClient, database: Database) -> None:
    key = made(database)
    assert row_of(database, key.id).last_used_at is None
    client.get("/v1/plans", headers=bearer(key.key))
    first = row_of(database, key.id).last_used_at
    assert first is not None
    client.get("/v1/plans", headers=bearer(key.key))
    assert row_of(database, key.id).last_used_at == first
    with database.transaction() as session:
        session.execute(update(ApiKeyRow).values(last_used_at=first - timedelta(minutes=2)))
    client.get("/v1/plans", headers=bearer(key.key))
    again = row_of(database, key.id).last_used_at
    assert again is not None
    assert again >= first


def test_revoking_is_at_once_and_twice_is_once(client: TestClient, database: Database) -> None:
    admin, victim = made(database), made(database, owner="bob")
    assert client.get("/v1/plans", headers=bearer(victim.key)).status_code == 200
    url = f"/v1/keys/{victim.id}"
    first = client.delete(url, headers=bearer(admin.key)).json()
    assert first["revoked_at"] is not None
    assert first["usable"] is False
    problem(client.get("/v1/plans", headers=bearer(victim.key)), 401, "unauthorized")
    assert client.delete(url, headers=bearer(admin.key)).json()["revoked_at"] == first["revoked_at"]
    listed = client.get("/v1/keys", headers=bearer(admin.key), params={"owner": "bob"}).json()
    assert [each["id"] for each in listed["items"]] == [str(victim.id)]
    nobody = "/v1/keys/00000000-0000-0000-0000-000000000000"
    problem(client.delete(nobody, headers=bearer(admin.key)), 404, "not-found")


@pytest.mark.slow_on("sqlite")
def test_a_stream_of_events_ends_with_the_key_that_opened_it(databases: Databases) -> None:
    url = databases.create("streamed")
    database = migrated(url)
    path = f"/v1/jobs/{add_job(database)}/events"
    with serving(url) as server:

        def followed(key: CreatedApiKey | None, end: Callable[[], object]) -> str:
            """All that is told, of which the first line is there before the end is brought about.

            A comment every 15 seconds says that a stream goes on.
            """
            headers = {} if key is None else bearer(key.key)
            deadline = time.monotonic() + 30
            with server.client.stream("GET", path, headers=headers) as answer:
                lines = answer.iter_lines()
                told = [next(lines)]
                end()
                for line in lines:
                    told.append(line)
                    assert time.monotonic() < deadline, "it goes on"
            return "\n".join(told)

        keys: list[CreatedApiKey] = []
        first = followed(None, lambda: keys.append(made(database)))  # now keys are asked for
        [admin] = keys
        victim = made(database)
        revoke = f"/v1/keys/{victim.id}"
        second = followed(victim, lambda: server.client.delete(revoke, headers=bearer(admin.key)))
        brief = made(database, expires_at=utc_now() + timedelta(seconds=3))
        third = followed(brief, lambda: None)
        for told in (first, second, third):
            assert "the key opens no more" in told
            assert "id: 1" in told
        problem(server.client.get(path, headers=bearer(victim.key)), 401, "unauthorized")
        # Another one goes on meanwhile, to the end of the job.
        cancel = path.replace("events", "cancel")
        whole = followed(admin, lambda: server.client.post(cancel, headers=bearer(admin.key)))
        assert "cancelled" in whole
        assert "opens no more" not in whole
    database.dispose()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"owner": ""},
        {"owner": "two words"},
        {"owner": "-dash"},
        {"owner": "ada", "scopes": []},
        {"owner": "ada", "scopes": ["root"]},
        {"owner": "ada", "expires_at": "2030-01-01T00:00:00"},
        {"owner": "ada", "note": "a\nb"},
    ],
)
def test_a_key_that_is_none_is_refused(client: TestClient, body: Json) -> None:
    problem(client.post("/v1/keys", json=body), 422, "invalid-spec")


def test_a_key_has_so_many_requests_a_minute(limited: TestClient, database: Database) -> None:
    key, other = made(database), made(database)
    for _ in range(5):
        assert limited.get("/v1/plans", headers=bearer(key.key)).status_code == 200
    refused = limited.get("/v1/plans", headers=bearer(key.key))
    assert "AUTOMAP_MAX_REQUESTS_PER_MINUTE" in problem(refused, 429, "too-many-requests")["detail"]
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert limited.get("/v1/plans", headers=bearer(other.key)).status_code == 200


def test_without_keys_nobody_is_limited(limited: TestClient) -> None:
    for _ in range(10):
        assert limited.get("/v1/plans").status_code == 200


def test_a_key_plans_so_much_at_once(limited: TestClient, database: Database) -> None:
    key = made(database)
    limits: KeyLimits = limited.app.state.limits  # type: ignore[attr-defined]
    with limits.planning(str(key.id)):
        refused = limited.post("/v1/estimates", headers=bearer(key.key), json={})
        assert "AUTOMAP_MAX_PLANS_AT_ONCE" in problem(refused, 429, "too-many-requests")["detail"]
        assert refused.headers["retry-after"]
        with limits.planning("another"), pytest.raises(TooManyRequestsError):
            limits.planning(str(key.id)).__enter__()
    # And a request that has ended, in whatever way, is counted no more.
    for _ in range(2):
        assert limited.post("/v1/estimates", headers=bearer(key.key), json={}).status_code == 422


def test_what_needs_no_planner_now_is_no_plan_at_once(
    limited: TestClient, database: Database
) -> None:
    key = made(database)
    headers = bearer(key.key)
    limits: KeyLimits = limited.app.state.limits  # type: ignore[attr-defined]
    plan = f"/v1/plans/{NO_PLAN}"
    with limits.planning(str(key.id)):
        queued = limited.post("/v1/plans", headers=headers | {"Prefer": "respond-async"}, json={})
        assert queued.status_code == 422
        labelled = limited.patch(plan, headers=headers, json={"name": "a"})
        assert (labelled.status_code, limited.delete(plan, headers=headers).status_code) == (
            404,
            404,
        )
        pool = {"name": "a", "gpu": "h100", "num_nodes": 1}
        cluster = {"name": "team", "pools": [pool]}
        assert limited.post("/v1/clusters", headers=headers, json=cluster).status_code == 201


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "plans"),
        ("POST", "estimates"),
        ("POST", "plans/pareto"),
        ("POST", "plans/what-if"),
        ("GET", f"plans/{NO_PLAN}/explain"),
        *(
            ("POST", f"plans/{NO_PLAN}/{what}")
            for what in ("compare", "explain", "replan", "simulate")
        ),
    ],
)
def test_each_request_that_plans_now_is_counted(
    limited: TestClient, database: Database, method: str, path: str
) -> None:
    key = made(database)
    limits: KeyLimits = limited.app.state.limits  # type: ignore[attr-defined]
    with limits.planning(str(key.id)):
        refused = limited.request(method, f"/v1/{path}", headers=bearer(key.key))
    assert "AUTOMAP_MAX_PLANS_AT_ONCE" in problem(refused, 429, "too-many-requests")["detail"]


def test_queues_have_an_end_for_keys(limited: TestClient, database: Database) -> None:
    key = bearer(made(database).key)
    for owner in ("ada", "ada", "bob"):
        add_job(database, owner=owner)
    bob = bearer(made(database, owner="bob").key)
    assert limited.post("/v1/jobs", headers=bob, json={}).status_code == 422  # has room for one
    for path, more in (("jobs", {}), ("profiles", {}), ("plans", {"Prefer": "respond-async"})):
        refused = limited.post(f"/v1/{path}", headers=key | more, json={})
        assert "AUTOMAP_MAX_QUEUED" in problem(refused, 429, "too-many-requests")["detail"]
        assert refused.headers["retry-after"]
    assert limited.post("/v1/plans", headers=key, json={}).status_code == 422  # it would not wait
    assert limited.get("/v1/jobs", headers=key).status_code == 200


def test_the_log_says_who_did_what(client: TestClient, database: Database) -> None:
    ada, looker = made(database), made(database, "read", owner="bob")
    pool = {"name": "a", "gpu": "h100", "num_nodes": 1}
    body = {"name": "team", "pools": [pool]}
    secret = "a-text-of-the-body"
    assert client.post("/v1/clusters", headers=bearer(ada.key), json=body).status_code == 201
    client.get("/v1/clusters", headers=bearer(ada.key))  # changes nothing, and is let in
    client.post("/v1/clusters?q=" + secret, headers=bearer(looker.key), json={"name": secret})
    client.delete(f"/v1/clusters/{ada.key}", headers=bearer(ada.key))
    client.delete("/v1/clusters/team", headers=bearer(ada.key))
    client.get("/v1/plans", headers=bearer(secret))
    client.post("/v1/keys", headers=bearer(ada.key), json={"owner": "eve"})
    found = audit(client, ada.key)
    what = ["method", "route", "resource_id", "status", "owner"]
    newest, *rest = [tuple(each[name] for name in what) for each in found]
    assert newest[:2] == ("POST", "/v1/keys")
    assert UUID(str(newest[2]))
    assert rest == [
        ("GET", "/v1/plans", None, 401, None),
        ("DELETE", "/v1/clusters/{name}", "team", 204, "ada"),
        ("DELETE", "/v1/clusters/{name}", None, 422, "ada"),
        ("POST", "/v1/clusters", None, 403, "bob"),
        ("POST", "/v1/clusters", "team", 201, "ada"),
    ]
    ids = [each["request_id"] for each in found]
    assert len(set(ids)) == len(found)
    assert [each["status"] for each in audit(client, ada.key, request_id=ids[1])] == [401]
    assert found[1]["key_id"] is None
    assert found[2]["key_id"] == str(ada.id)
    assert found[0]["remote_address"] == "testclient"
    text = str(found)
    assert secret not in text
    assert ada.key.removeprefix(ada.prefix) not in text
    assert len(audit(client, ada.key, owner="bob")) == 1
    assert len(audit(client, ada.key, min_status=400)) == 3
    assert len(audit(client, ada.key, resource_id="team")) == 2
    assert len(audit(client, ada.key, key_id=str(looker.id), method="POST")) == 1


@pytest.mark.parametrize("url", ["/v1/clusters/none", "/v1/nothing"])
def test_the_log_has_the_id_that_the_answer_and_the_logs_have(
    client: TestClient, database: Database, url: str
) -> None:
    admin = made(database)
    named = client.delete(url, headers=bearer(admin.key) | {"X-Request-ID": "mine-1"})
    unnamed = client.delete(url, headers=bearer(admin.key) | {"X-Request-ID": "not harmless \n"})
    assert (named.status_code, unnamed.status_code) == (404, 404)
    last, first = audit(client, admin.key)
    assert first["request_id"] == named.headers["x-request-id"] == "mine-1"
    assert last["request_id"] == unnamed.headers["x-request-id"]


@pytest.mark.slow_on("sqlite")
def test_an_admin_gives_plans_and_jobs_to_others(client: TestClient, database: Database) -> None:
    admin, runner = made(database), made(database, "read", "plan", "run", owner="bob")
    job_id = add_job(database, owner="bob")
    job = f"/v1/jobs/{job_id}"
    plan_id = client.get(job, headers=bearer(admin.key)).json()["plan_id"]
    for url in (job, f"/v1/plans/{plan_id}"):
        refused = client.patch(url, headers=bearer(runner.key), json={"owner": "bob", "name": "x"})
        assert "'admin'" in problem(refused, 403, "missing-scope")["detail"]
        assert client.patch(url, headers=bearer(runner.key), json={"name": "x"}).is_success
        given = client.patch(url, headers=bearer(admin.key), json={"owner": "carla"})
        assert (given.status_code, given.json()["owner"]) == (200, "carla")
        assert client.get(url, headers=bearer(admin.key)).json()["name"] == "x"
        for wrong in (None, "", "two words"):
            body = {"owner": wrong}
            found = client.patch(url, headers=bearer(admin.key), json=body)
            assert problem(found, 422, "invalid-spec")["errors"][0]["field"] == "owner"
    for path in ("/v1/jobs", "/v1/plans"):
        for query in ({"owner": "carla"}, {"q": "carla"}):
            found = client.get(path, headers=bearer(admin.key), params=query)
            assert len(found.json()["items"]) == 1
    said = [
        (each["status"], each["owner"], each["change"])
        for each in audit(client, admin.key, method="PATCH", resource_id=str(job_id))
    ]
    refusals = [(422, "ada", None)] * 3
    assert said == [
        *refusals,
        (200, "ada", "owner: bob -> carla"),
        (200, "bob", None),
        (403, "bob", None),
    ]


def test_the_log_is_read_in_pages_and_kept_for_a_while(database: Database) -> None:
    app = create_app(settings_for(url_of(database), audit_days=1e-9))
    client = TestClient(app, raise_server_exceptions=False)
    for _ in range(4):
        client.delete("/v1/clusters/nobody")
    first = client.get("/v1/audit", params={"limit": 3}).json()
    rest = client.get("/v1/audit", params={"cursor": first["next_cursor"]}).json()
    ids = [each["id"] for each in first["items"] + rest["items"]]
    assert len(set(ids)) == 4
    assert rest["next_cursor"] is None
    assert {each["owner"] for each in first["items"]} == {"local"}
    # What is too old goes once an hour, with a request that is written down.
    for middleware in _audit_logs(app):
        middleware._forget_at = 0.0
    client.delete("/v1/clusters/nobody")
    assert len(client.get("/v1/audit").json()["items"]) == 1
    app.state.service.database.dispose()


def _audit_logs(app: Any) -> Iterator[Any]:
    from automap.service.api.audit_log import AuditLog

    layer = app.middleware_stack
    while layer is not None:
        if isinstance(layer, AuditLog):
            yield layer
        layer = getattr(layer, "app", None)


@pytest.mark.slow_on("sqlite")
def test_strangers_do_not_fill_the_log(client: TestClient, database: Database) -> None:
    admin = made(database)
    ended = made(database, expires_at=utc_now() - timedelta(seconds=1))
    for _ in range(75):
        client.get("/v1/plans", headers=bearer("wrong"))
        client.get("/v1/plans", headers=bearer(ended.key))
    kept = audit(client, admin.key, limit=200)
    assert 0 < len(kept) <= 120


def test_keys_of_the_environment_do_everything(database: Database) -> None:
    settings = settings_for(url_of(database), api_keys=(SecretStr("one"), SecretStr("two")))
    app = create_app(settings)
    client = TestClient(app, raise_server_exceptions=False)
    assert client.post("/v1/keys", headers=bearer("two"), json={"owner": "ada"}).status_code == 201
    (entry,) = audit(client, "one")
    assert (entry["owner"], entry["key_id"]) == ("local", "environment-2")
    app.state.service.database.dispose()
