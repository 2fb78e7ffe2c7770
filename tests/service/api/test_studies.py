"""Fronts, what-if and explained refusals over HTTP: every plan in them is stored."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automap.planner.plan.types import Plan
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.studies import FrontRecord, WhatIfRecord
from tests.service.support.requests import finished, problem, stored_plans
from tests.service.support.samples import changed, infeasible_spec, tiny_spec
from tests.service.support.servers import ASYNC

# Planning takes its time, and how rows are stored is shown elsewhere on both databases.
pytestmark = pytest.mark.slow_on("postgresql")

FRONT: dict[str, Any] = {"spec": tiny_spec(), "tolerance": 0.01}
WHAT_IF: dict[str, Any] = {"spec": tiny_spec(), "nodes": [1, 2], "gpus": ["a100", "h100"]}


def test_a_front_is_found_and_its_plans_are_stored(live: TestClient) -> None:
    response = live.post("/v1/plans/pareto", json=FRONT)
    assert response.status_code == 201, response.text
    front = FrontRecord.model_validate_json(response.content)
    assert front.proven
    assert front.tolerance == 0.01
    assert front.node_numbers == 2
    seconds = [record.plan.iteration_seconds for record in front.plans if record.plan]
    prices = [record.plan.price_per_iteration for record in front.plans if record.plan]
    assert seconds == sorted(seconds)
    assert prices == sorted(prices, reverse=True)
    assert {item["id"] for item in stored_plans(live)} == {str(each.id) for each in front.plans}
    for record in front.plans:
        assert live.get(f"/v1/plans/{record.id}").json()["status"] == "succeeded"
        compared = live.post(
            f"/v1/plans/{record.id}/compare", json={"strategies": ["colocate_all"]}
        )
        assert compared.status_code == 200


def test_every_cluster_of_what_if_has_its_stored_plan(live: TestClient) -> None:
    response = live.post("/v1/plans/what-if", json=WHAT_IF)
    assert response.status_code == 201, response.text
    answer = WhatIfRecord.model_validate_json(response.content)
    types = ("a100-80gb-sxm", "h100-80gb-sxm")
    assert [(v.gpu, v.num_nodes) for v in answer.variants] == [
        (gpu, nodes) for gpu in types for nodes in (1, 2)
    ]
    assert all(v.plan and v.plan.plan and v.scaling_efficiency for v in answer.variants)
    assert len(stored_plans(live)) == 4


def test_a_cluster_on_which_nothing_fits_has_reasons_and_no_plan(live: TestClient) -> None:
    body = {"spec": infeasible_spec(), "nodes": [1]}
    (variant,) = WhatIfRecord.model_validate_json(
        live.post("/v1/plans/what-if", json=body).content
    ).variants
    assert variant.plan is None
    assert variant.reasons[0].over_bytes
    assert stored_plans(live) == []


def test_what_if_is_queued_on_request(live: TestClient) -> None:
    response = live.post("/v1/plans/what-if", json={**WHAT_IF, "gpus": []}, headers=ASYNC)
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "respond-async"
    variants = WhatIfRecord.model_validate_json(response.content).variants
    assert [v.plan.status for v in variants if v.plan] == ["queued", "queued"]
    for variant in variants:
        assert variant.plan is not None
        record = finished(live, f"/v1/plans/{variant.plan.id}")
        assert record.plan is not None
        (pool,) = record.plan.spec.cluster.pools  # type: ignore[union-attr]
        assert pool.num_nodes == variant.num_nodes


def test_wrong_requests_name_their_field(live: TestClient) -> None:
    for path, body, field in (
        ("pareto", {**FRONT, "tolerance": -1}, "tolerance"),
        ("pareto", changed(FRONT, "spec.search", {"strategy": "verl"}), "spec.search.strategy"),
        ("pareto", changed(FRONT, "spec.cluster", "nowhere"), "spec.cluster"),
        ("what-if", {**WHAT_IF, "nodes": [], "gpus": []}, "nodes"),
        ("what-if", {**WHAT_IF, "gpus": ["a1000"]}, "gpus"),
        ("what-if", {**WHAT_IF, "pool": "other"}, "pool"),
        (
            "what-if",
            changed(WHAT_IF, "spec.search", {"time_limit_seconds": 3000}),
            "spec.search.time_limit_seconds",
        ),
    ):
        response = live.post(f"/v1/plans/{path}", json=body)
        found = problem(response, 422, "invalid-spec")
        assert [error["field"] for error in found["errors"]] == [field], response.text
    assert stored_plans(live) == []


def test_an_infeasible_job_is_explained_where_its_spec_asks_for_it(live: TestClient) -> None:
    spec = tiny_spec(search={"explain_infeasible": True})
    spec["models"]["actor"] = {"architecture": "qwen2.5-1.5b"}
    spec["cluster"] = {
        "pools": [{"name": "small", "gpu": "a10g", "num_nodes": 1, "gpus_per_node": 1}]
    }
    found = problem(live.post("/v1/plans", json=spec), 422, "infeasible")
    assert found["reasons"][0]["over_bytes"] > 0
    plans = [Plan.model_validate(remedy["plan"]) for remedy in found["remedies"]]
    assert {"nodes"} in [set(remedy["kinds"]) for remedy in found["remedies"]]
    assert all(plan.price_per_iteration > 0 for plan in plans)
    assert stored_plans(live) == []
    queued = live.post("/v1/plans", json=spec, headers=ASYNC)
    record = finished(live, queued.headers["location"])
    assert isinstance(record, PlanRecord)
    assert record.problem is not None
    assert [r.change for r in record.problem.remedies] == [
        remedy["change"] for remedy in found["remedies"]
    ]
