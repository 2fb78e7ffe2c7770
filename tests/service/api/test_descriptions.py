import csv
import io
from typing import Any
from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from automap.service.storage import paging
from automap.service.storage.database import Database
from automap.service.storage.tables import PlanRow
from tests.service.api.test_plan_list import add, ids, pages
from tests.service.support.requests import problem
from tests.service.support.samples import Json, small_spec
from tests.service.support.workers import add_job


def described(client: TestClient, path: str, **changes: object) -> Json:
    response = client.patch(path, json=changes)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


@pytest.mark.slow_on("sqlite")
def test_a_merge_patch_changes_what_it_names(client: TestClient, database: Database) -> None:
    plan = f"/v1/plans/{add(database, 0)}"
    usual = client.get(plan).json()
    assert (usual["name"], usual["owner"]) == (usual["spec_name"], "local")
    assert (usual["labels"], usual["notes"]) == ({}, None)
    described(client, plan, name="mine", labels={"team": "math", "run": "7"}, notes="first")
    found = described(client, plan, labels={"run": None, "ok": ""})
    assert found["labels"] == {"team": "math", "ok": ""}
    assert (found["name"], found["notes"]) == ("mine", "first")
    found = described(client, plan, name=None, notes=None)
    assert (found["name"], found["notes"]) == (usual["spec_name"], None)
    assert client.get(plan).json()["labels"] == {"team": "math", "ok": ""}
    job = f"/v1/jobs/{add_job(database)}"
    assert described(client, job, name="run", labels={"a": "b"})["labels"] == {"a": "b"}
    assert client.get(job).json()["name"] == "run"


def test_a_merge_patch_may_be_called_that(client: TestClient, database: Database) -> None:
    headers = {"Content-Type": "application/merge-patch+json; charset=utf-8"}
    for path in (f"/v1/plans/{add(database, 0)}", f"/v1/jobs/{add_job(database)}"):
        found = client.patch(path, content='{"name": "mine"}', headers=headers)
        assert (found.status_code, found.json()["name"]) == (200, "mine")
    refused = client.post("/v1/clusters", content="{}", headers=headers)
    problem(refused, 415, "unsupported-media-type")
    for path in ("/v1/plans/{plan_id}", "/v1/jobs/{job_id}"):
        operation = client.get("/openapi.json").json()["paths"][path]["patch"]
        assert "application/merge-patch+json" in operation["requestBody"]["content"]


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"status": "succeeded"}, "status"),
        ({"labels": {"-a": "b"}}, "labels.-a"),
        ({"labels": {"a": "b c"}}, "labels.a"),
        ({"labels": {"a": 3}}, "labels.a"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"notes": "x" * 10_001}, "notes"),
        ({"labels": {f"l{i}": "" for i in range(33)}}, "labels"),
    ],
)
def test_what_cannot_be_said_is_named(
    client: TestClient, database: Database, patch: Json, field: str
) -> None:
    plan = f"/v1/plans/{add(database, 0)}"
    found = problem(client.patch(plan, json=patch), 422, "invalid-spec")
    assert field in found["errors"][0]["field"]
    assert client.get(plan).json()["labels"] == {}


def test_what_is_not_there_cannot_be_described(client: TestClient) -> None:
    for what in ("plans", "jobs"):
        path = f"/v1/{what}/11111111-2222-3333-4444-555555555555"
        problem(client.patch(path, json={"name": "x"}), 404, "not-found")


@pytest.mark.parametrize(("near", "limit"), [(1000, 50), (2, 1), (1, 2)])
def test_plans_are_found_by_text_label_and_owner(
    client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch, near: int, limit: int
) -> None:
    monkeypatch.setattr(paging, "NEAR", near)
    one, two, three = (add(database, minute) for minute in range(3))
    described(client, f"/v1/plans/{one}", labels={"team": "Math", "keep": ""}, notes="100 %_ done")
    described(client, f"/v1/plans/{two}", labels={"team": "code"}, name="Résumé of MATH")
    with database.transaction() as session:
        session.get_one(PlanRow, UUID(three)).owner = "ann"
    for query, found in (
        ({"q": "math"}, [two, one]),
        ({"q": "LLAMA-2-7B"}, [three, two, one]),
        ({"q": "%_ d"}, [one]),
        ({"q": "résumé"}, [two]),
        ({"q": "nothing"}, []),
        ({"label": "team"}, [two, one]),
        ({"label": "team:Math"}, [one]),
        ({"label": "team:math"}, []),
        ({"label": ["team:Math", "keep"]}, [one]),
        ({"label": "keep:"}, [one]),
        ({"label": "eam"}, []),
        ({"label": "team:Mat"}, []),
        ({"model": "llama-2-7b", "sort": "created_at"}, [one, two, three]),
        ({"model": "llama-2-70b"}, []),
        ({"owner": "ann"}, [three]),
        ({"owner": "local", "q": "math", "label": "team:code"}, [two]),
    ):
        assert ids(pages(client, limit=limit, **query)) == found, query
    found = problem(client.get("/v1/plans", params={"label": "a:b:c"}), 422, "invalid-spec")
    assert found["errors"][0]["field"].startswith("query.label")


def test_jobs_are_found_by_what_their_plan_is_found_by(
    client: TestClient, database: Database
) -> None:
    job = add_job(database)
    described(client, f"/v1/jobs/{job}", labels={"team": "math"}, name="Night run")
    for query in ({"q": "night"}, {"q": "tiny"}, {"label": "team:math"}, {"owner": "local"}):
        assert ids(client.get("/v1/jobs", params=query).json()["items"]) == [str(job)], query
    assert client.get("/v1/jobs", params={"q": "day"}).json()["items"] == []


def test_orders_keep_their_pages_while_plans_are_added(
    client: TestClient, database: Database
) -> None:
    seconds: dict[str, float] = {}
    for minute, value in enumerate((3.5, 1.25, 3.5, 0.1, 2.0)):
        plan_id = add(database, minute)
        seconds[plan_id] = value
        described(client, f"/v1/plans/{plan_id}", name=f"plan {value}")
        with database.transaction() as session:
            session.get_one(PlanRow, UUID(plan_id)).iteration_seconds = value
    add(database, 9)  # has no seconds yet
    for sort, column in (("iteration_seconds", "iteration_seconds"), ("name", "name")):
        expected = sorted(pages(client), key=lambda each: (each[column] or 0, each["id"]))
        expected = [each for each in expected if each["iteration_seconds"] or sort == "name"]
        assert ids(pages(client, sort=sort, limit=2)) == ids(expected)
        assert ids(pages(client, sort=f"-{sort}", limit=2)) == ids(expected)[::-1]
    first = client.get("/v1/plans", params={"sort": "iteration_seconds", "limit": 2}).json()
    assert [each["iteration_seconds"] for each in first["items"]] == [0.1, 1.25]
    late = add(database, 10)
    with database.transaction() as session:
        session.get_one(PlanRow, UUID(late)).iteration_seconds = 0.5
    cursor = {"sort": "iteration_seconds", "cursor": first["next_cursor"]}
    rest = client.get("/v1/plans", params=cursor).json()["items"]
    assert [each["iteration_seconds"] for each in rest] == [2.0, 3.5, 3.5]
    other = problem(client.get("/v1/plans", params={**cursor, "sort": "name"}), 422, "invalid-spec")
    assert "of another order" in other["errors"][0]["message"]


def test_a_list_as_csv_has_every_row_and_no_formula(client: TestClient, database: Database) -> None:
    added = [add(database, minute) for minute in range(3)]
    described(client, f"/v1/plans/{added[0]}", notes='=HYPERLINK("x")', labels={"a": "b", "c": ""})
    for asked in ({"params": {"format": "csv", "limit": 1}}, {"headers": {"Accept": "text/csv"}}):
        response = client.get("/v1/plans", **asked)  # type: ignore[arg-type]
        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(response.text)))
        assert ids(rows) == added[::-1]
    assert rows[-1]["notes"] == '\'=HYPERLINK("x")'
    assert rows[-1]["labels"] == "a:b;c:"
    add_job(database)
    (job,) = csv.DictReader(io.StringIO(client.get("/v1/jobs?format=csv").text))
    assert job["kind"] == "run"


def test_a_plan_is_described_as_it_is_posted(client: TestClient) -> None:
    described = {"name": "night", "label": ["team:math", "ok:"], "notes": "of 7"}
    queue = {"Prefer": "respond-async", "Idempotency-Key": "night"}

    def posted(**query: object) -> Any:
        return client.post("/v1/plans", params=query, headers=queue, json=small_spec())  # type: ignore[arg-type]

    first = posted(**described)
    assert first.status_code == 202, first.text
    plan = first.json()
    assert (plan["name"], plan["notes"]) == ("night", "of 7")
    assert plan["labels"] == {"team": "math", "ok": ""}
    assert posted(**described).json()["id"] == plan["id"]
    reused = problem(posted(name="day"), 422, "idempotency-key-reused")
    assert "used with another request" in reused["detail"]
    for query in ({"q": "NIGHT 7"}, {"label": "team:math"}):
        assert ids(pages(client, **query)) == [plan["id"]]
    for wrong in ({"label": "team"}, {"label": "a:b:c"}, {"owner": "eve"}, {"name": ""}):
        found = problem(posted(**wrong), 422, "invalid-spec")
        assert found["errors"][0]["field"].startswith("query.")
