"""Explaining and re-planning stored plans through the whole application."""

from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from automap.planner.explanation.result import ExplainOptions, Explanation
from automap.planner.replanning.result import Replan
from automap.service.api.examples import EXPLAIN_EXAMPLES, REPLAN_EXAMPLES
from tests.service.support.requests import POST_HEADERS, YAML, created, problem
from tests.service.support.samples import small_spec

# Planning takes its time, and how rows are stored is shown elsewhere on both databases.
pytestmark = pytest.mark.slow_on("postgresql")


def test_a_stored_plan_is_explained_and_replanned(live: TestClient) -> None:
    spec = small_spec()
    spec["models"] = {role: {"architecture": "qwen2.5-0.5b"} for role in spec["models"]}
    record = created(live.post("/v1/plans", json=spec))
    url = f"/v1/plans/{record.id}"
    response = live.post(f"{url}/explain", json={"parts": ["regret"], "scenarios": 1})
    assert response.status_code == 200, response.text
    found = Explanation.model_validate_json(response.content)
    assert found.regret is not None
    assert (found.sensitivity, found.alternatives) == ([], [])
    for example in REPLAN_EXAMPLES.values():
        response = live.post(f"{url}/replan", json=example["value"])
        assert response.status_code == 200, response.text
        answer = Replan.model_validate_json(response.content)
        assert answer.iterations_left == 400
        assert answer.corrections[0].measured_seconds == 30.0
    refused = live.post(f"{url}/replan", json={"measured": {"judge.score": 1.0}})
    (error,) = problem(refused, 422, "invalid-spec")["errors"]
    assert error["field"] == "measured.judge.score"
    assert "actor.generate" in error["remedy"]


def test_the_example_is_valid() -> None:
    for example in EXPLAIN_EXAMPLES.values():
        ExplainOptions.model_validate(example["value"])


def test_a_body_without_required_fields_may_be_left_out(client: TestClient) -> None:
    for route in ("simulate", "explain", "replan"):
        problem(client.post(f"/v1/plans/{uuid4()}/{route}"), 404, "not-found")
        # Clients that name the type of what they leave empty mean the same.
        for headers in (POST_HEADERS, YAML):
            missing = client.post(f"/v1/plans/{uuid4()}/{route}", content=b"\n", headers=headers)
            problem(missing, 404, "not-found")
            unnamed = client.post(f"/v1/plans/mine/{route}", headers=headers)
            assert problem(unnamed, 422, "invalid-spec")["errors"][0]["field"] == "path.plan_id"
    problem(client.post(f"/v1/plans/{uuid4()}/compare"), 415, "unsupported-media-type")


def test_options_are_checked_and_plans_must_exist(client: TestClient) -> None:
    missing = f"/v1/plans/{uuid4()}"
    problem(client.get(f"{missing}/explain"), 404, "not-found")
    problem(client.post(f"{missing}/replan", json={}), 404, "not-found")
    bad = client.post(f"{missing}/explain", json={"parts": ["everything"]})
    assert problem(bad, 422, "invalid-spec")["errors"][0]["field"] == "parts.0"
    bad = client.post(f"{missing}/replan", json={"lose_nodes": {"a100": 0}})
    assert problem(bad, 422, "invalid-spec")["errors"][0]["field"] == "lose_nodes.a100"
