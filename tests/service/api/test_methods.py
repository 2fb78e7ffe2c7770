"""Methods that every path has, and what a client is told of the others."""

import pytest
from fastapi.testclient import TestClient

from automap.service.storage import clusters
from automap.service.storage.database import Database
from tests.service.support.workers import add_job, add_plan

GETS = ["/healthz", "/v1/plans", "/v1/models", "/v1/schemas/job-spec", "/openapi.json", "/metrics"]


@pytest.mark.slow_on("sqlite")
@pytest.mark.parametrize("path", GETS)
def test_head_answers_as_get_does_without_a_body(client: TestClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    if path != "/metrics":  # which counts itself
        assert head.headers["content-length"] == str(len(got.content))
    assert head.headers["content-type"] == got.headers["content-type"]


def test_head_of_what_is_not_there_is_404(client: TestClient) -> None:
    assert client.head("/v1/nothing").status_code == 404
    assert client.head("/v1/clusters/none").status_code == 404


def test_head_does_not_follow_a_job(client: TestClient, database: Database) -> None:
    response = client.head(f"/v1/jobs/{add_job(database)}/events")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/plans", "GET, HEAD, POST, OPTIONS"),
        ("/v1/plans/00000000-0000-0000-0000-000000000000", "GET, HEAD, PATCH, DELETE, OPTIONS"),
        ("/v1/plans/history", "GET, HEAD, OPTIONS"),
        ("/v1/plans/pareto", "POST, OPTIONS"),
        ("/v1/profiles/abc/default", "PUT, DELETE, OPTIONS"),
        ("/v1/estimates", "POST, OPTIONS"),
        ("/healthz", "GET, HEAD, OPTIONS"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
def test_options_and_405_name_every_method_of_a_path(
    client: TestClient, path: str, allowed: str
) -> None:
    options = client.options(path)
    assert (options.status_code, options.headers["allow"], options.content) == (204, allowed, b"")
    assert not [name for name in options.headers if name.startswith("access-control")]
    others = {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - set(allowed.split(", "))
    for method in sorted(others):
        refused = client.request(method, path)
        assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
        assert refused.json()["type"] == "/problems/method-not-allowed"


def test_options_of_what_is_not_there_is_404(client: TestClient) -> None:
    assert client.options("/v1/nothing").status_code == 404


def test_a_client_that_has_a_plan_is_not_sent_it_again(
    client: TestClient, database: Database
) -> None:
    path = f"/v1/plans/{add_plan(database)}"
    first = client.get(path)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for known in ('"other"', tag.strip('"')):
        assert client.get(path, headers={"If-None-Match": known}).content == first.content


def test_a_plan_that_changes_has_another_tag(client: TestClient, database: Database) -> None:
    job_id = add_job(database)
    path = f"/v1/plans/{client.get(f'/v1/jobs/{job_id}').json()['plan_id']}"
    before = client.get(path)
    assert client.post(f"/v1/jobs/{job_id}/cancel").status_code == 200
    after = client.get(path, headers={"If-None-Match": before.headers["etag"]})
    assert (after.status_code, after.json()["jobs"][0]["status"]) == (200, "cancelled")


def test_an_error_of_ours_has_the_id_of_its_request(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(clusters, "find", broken)
    response = client.get("/v1/clusters/any", headers={"X-Request-ID": "bug-1"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "bug-1")
    counted = client.get("/metrics").text
    assert 'method="GET",route="/v1/clusters/{name}",status="500"} 1.0' in counted
