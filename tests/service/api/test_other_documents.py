"""A body that is another document than the request takes: told so, and where it belongs."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automap.service.storage.database import Database
from tests.service.support.requests import problem, stored_rows
from tests.service.support.samples import small_spec

# What is refused before the database is asked; the other one is for make test-all.
pytestmark = pytest.mark.slow_on("postgresql")

SPEC = small_spec()
SETTINGS = {"data": {"path": "/rows.jsonl"}, "functions": {}}
PLACEMENT: dict[str, Any] = {"copies": [], "calls": []}


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("plans", SETTINGS, [("document", "this is run settings", "/v1/jobs")]),
        ("plans", {"spec": SPEC, "settings": SETTINGS}, [("document", "for a run", "/v1/jobs")]),
        ("plans", {"spec": SPEC}, [("document", "inside of `spec`", "without `spec`")]),
        ("plans", PLACEMENT, [("document", "this is a placement", "models, workload")]),
        ("jobs", SPEC, [("document", "this is a job spec", "{spec: …, settings: …}")]),
        ("jobs", SETTINGS, [("document", "this is run settings", "{plan_id: …, settings: …}")]),
        ("jobs", {"spec": SPEC, "settings": SPEC}, [("settings", "this is a job spec", "data")]),
        (
            "jobs",
            {"spec": SETTINGS, "settings": SPEC, "when": "now"},
            [
                ("spec", "this is run settings", "models"),
                ("settings", "this is a job spec", "data"),
                ("when", "Extra inputs", "remove"),
            ],
        ),
        ("plans/pareto", SPEC, [("document", "this is a job spec", "{spec: …}")]),
        ("estimates", SPEC, [("document", "this is a job spec", "{spec: …, placement: …}")]),
    ],
)
def test_another_document_is_one_mistake_with_its_place(
    client: TestClient,
    database: Database,
    path: str,
    body: dict[str, Any],
    told: list[tuple[str, str, str]],
) -> None:
    errors = problem(client.post(f"/v1/{path}", json=body), 422, "invalid-spec")["errors"]
    assert [error["field"] for error in errors] == [field for field, _, _ in told]
    for error, (_, message, remedy) in zip(errors, told, strict=True):
        assert message in error["message"]
        assert remedy in error["remedy"]
    assert stored_rows(database) == 0


@pytest.mark.slow
def test_spellings_of_the_spec_are_stored_canonically(client: TestClient) -> None:
    given = small_spec(algorithm="PPO")
    pool = given["cluster"]["pools"][0]
    pool["num_gpus"] = 8 * pool.pop("num_nodes")
    for model in given["models"].values():
        model["architecture"] = "meta-llama/Llama-2-7b-chat-hf"
    record = client.post("/v1/plans", json=given).json()
    usual = client.post("/v1/plans", json=small_spec()).json()
    assert record["spec"] == usual["spec"]
    assert record["plan"]["calls"] == usual["plan"]["calls"]
    found = client.get("/v1/plans", params={"algorithm": given["algorithm"]}).json()
    assert {each["id"] for each in found["items"]} == {record["id"], usual["id"]}


def test_a_path_that_is_not_there_is_told_with_where_to_look(client: TestClient) -> None:
    for method, path, status in (("GET", "/v1/plan", 404), ("PUT", "/v1/plans", 405)):
        detail = client.request(method, path).json()["detail"]
        assert detail.startswith(f"{method} {path}: ")
        assert "/openapi.json" in detail
        assert client.request(method, path).status_code == status
