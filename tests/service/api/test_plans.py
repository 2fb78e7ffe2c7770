"""Planning through the whole application: real planner processes, real search."""

import re
import time
from typing import get_args

import pytest
import yaml
from fastapi.testclient import TestClient

from automap.planner import Launch, catalogue
from automap.planner.plan.types import Plan
from automap.planner.simulation.result import Simulation
from automap.planner.spec import ModelSpec, StrategyName
from automap.service.api.examples import COMPARE_EXAMPLES, ESTIMATE_EXAMPLES, PPO_SPEC
from tests.service.support.requests import YAML, created, finished, problem, stored_plans
from tests.service.support.samples import (
    Json,
    changed,
    infeasible_spec,
    large_spec,
    small_spec,
    tiny_spec,
)
from tests.service.support.servers import ASYNC


def same_plan(one: Plan, other: Plan) -> bool:
    """All that was decided; not how long it took to find."""
    return (one.placement(), one.iteration_seconds) == (other.placement(), other.iteration_seconds)


@pytest.mark.slow_on("sqlite")
def test_a_plan_is_made_stored_and_read_back(live: TestClient) -> None:
    response = live.post("/v1/plans", json=small_spec())
    record = created(response)
    assert record.status == "succeeded"
    assert record.plan is not None
    assert record.plan.lower_bound_seconds <= record.plan.iteration_seconds
    assert record.created_at <= record.finished_at  # type: ignore[operator]
    assert live.get(response.headers["location"]).json() == response.json()


@pytest.mark.slow_on("sqlite")
def test_a_stored_plan_can_be_repeated(live: TestClient) -> None:
    record = created(live.post("/v1/plans", json=small_spec()))
    assert record.plan is not None
    provenance = record.plan.provenance
    assert provenance.catalogue_version == catalogue.catalogue_version()
    assert provenance.code_version
    assert set(provenance.profile_versions) == {"a100-80gb-sxm"}
    # The stored spec, sent again, gives the same plan but for the time it took.
    again = created(live.post("/v1/plans", json=record.spec.model_dump(mode="json")))
    assert again.id != record.id
    assert again.plan is not None
    assert same_plan(again.plan, record.plan)


@pytest.mark.slow_on("postgresql")
@pytest.mark.parametrize(
    "reward",
    [
        {"remote": {"requests_per_second": 200, "seconds_per_response": 0.4}},
        {"function": True, "seconds_per_response": 0.01, "concurrency": 4},
    ],
    ids=lambda model: next(iter(model)),
)
def test_every_kind_of_model_passes_through_every_door(live: TestClient, reward: Json) -> None:
    spec = changed(tiny_spec(), "models.reward", reward)
    record = created(live.post("/v1/plans", json=spec))
    assert record.plan is not None
    assert record.plan.spec.models["reward"] == ModelSpec.model_validate(reward)
    for door, body in (
        ("explain", {"parts": ["regret"], "scenarios": 1, "search_seconds": 0.1}),
        ("simulate", {"iterations": 1}),
        ("replan", {"lose_nodes": {"a100": 1}}),
        ("compare", {"strategies": ["split"]}),
    ):
        response = live.post(f"/v1/plans/{record.id}/{door}", json=body)
        assert response.status_code == 200, (door, response.text)
    front = live.post("/v1/plans/pareto", json={"spec": record.spec.model_dump(mode="json")})
    assert front.status_code == 201, front.text


@pytest.mark.slow_on("sqlite")
def test_columns_say_what_the_plan_says(live: TestClient) -> None:
    record = created(live.post("/v1/plans", json=small_spec()))
    assert record.plan is not None
    (item,) = stored_plans(live)
    for name in ("iteration_seconds", "lower_bound_seconds", "relative_gap", "gpus_used"):
        assert item[name] == getattr(record.plan, name)
    assert item["price_per_iteration"] == record.plan.price_per_iteration
    assert item["spec_name"] == record.plan.name == PPO_SPEC["name"]


def test_a_plan_that_nobody_searched_is_not_listed_as_proven(live: TestClient) -> None:
    before = _proofs(live)
    record = created(live.post("/v1/plans", json=tiny_spec(search={"strategy": "split"})))
    assert record.plan is not None
    assert record.plan.search.status == "given"
    (item,) = stored_plans(live)
    assert (item["relative_gap"], item["lower_bound_seconds"]) == (None, None)
    assert item["iteration_seconds"] == record.plan.iteration_seconds
    header, row = live.get("/v1/plans", params={"format": "csv"}).text.splitlines()
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    assert (cells["relative_gap"], cells["lower_bound_seconds"]) == ("", "")
    assert {proof: count - before.get(proof, 0) for proof, count in _proofs(live).items()} == {
        **dict.fromkeys(before, 0),
        "given": 1,
    }


def _proofs(live: TestClient) -> dict[str, float]:
    """Plans asked for, by what was proved."""
    text = live.get("/metrics").text
    found = re.findall(r'automap_plans_made_total\{proof="(\w+)"\} (.+)', text)
    return {proof: float(count) for proof, count in found}


@pytest.mark.slow_on("sqlite")
def test_yaml_gives_the_same_plan(live: TestClient) -> None:
    from_json = created(live.post("/v1/plans", json=small_spec()))
    from_yaml = created(live.post("/v1/plans", content=yaml.dump(small_spec()), headers=YAML))
    assert from_json.plan is not None
    assert from_yaml.plan is not None
    assert same_plan(from_json.plan, from_yaml.plan)
    assert from_json.spec == from_yaml.spec


@pytest.mark.slow_on("sqlite")
def test_a_stored_cluster_is_resolved_into_the_spec(live: TestClient) -> None:
    pools = small_spec()["cluster"]["pools"]
    assert live.post("/v1/clusters", json={"name": "team", "pools": pools}).status_code == 201
    record = created(live.post("/v1/plans", json=small_spec(cluster="team")))
    assert record.cluster == "team"
    assert live.delete("/v1/clusters/team").status_code == 204
    read = live.get(f"/v1/plans/{record.id}").json()
    assert read["spec"]["cluster"]["pools"][0]["gpu"] == pools[0]["gpu"]
    assert [item["id"] for item in live.get("/v1/plans?cluster=team").json()["items"]] == [
        str(record.id)
    ]


@pytest.mark.slow_on("sqlite")
@pytest.mark.parametrize("architecture", ["llama-2-7b", "llama-2-70b"])
def test_an_infeasible_job_is_answered_with_reasons_and_not_stored(
    live: TestClient, architecture: str
) -> None:
    spec = infeasible_spec(architecture)
    body = problem(live.post("/v1/plans", json=spec), 422, "infeasible")
    assert body["reasons"]
    assert all(reason["summary"] for reason in body["reasons"])
    assert any(reason.get("over_bytes", 0) > 0 for reason in body["reasons"])
    assert any(reason.get("remedy") for reason in body["reasons"])
    assert stored_plans(live) == []


def test_a_queued_plan_is_made(live: TestClient) -> None:
    response = live.post("/v1/plans", json=small_spec(), headers=ASYNC)
    queued = created(response, 202)
    assert queued.status in ("queued", "running")  # it may be taken up at once
    assert response.headers["retry-after"] == "1"
    assert response.headers["preference-applied"] == "respond-async"
    record = finished(live, response.headers["location"])
    assert (record.status, record.attempts) == ("succeeded", 1)
    assert record.plan is not None
    assert record.problem is None
    assert queued.created_at <= record.started_at <= record.finished_at  # type: ignore[operator]
    waited = created(live.post("/v1/plans", json=small_spec()))
    assert waited.plan is not None
    assert same_plan(waited.plan, record.plan)


@pytest.mark.slow_on("sqlite")
def test_a_queued_infeasible_job_keeps_its_problem(live: TestClient) -> None:
    response = live.post("/v1/plans", json=infeasible_spec(), headers=ASYNC)
    record = finished(live, response.headers["location"])
    assert record.status == "failed"
    assert record.plan is None
    assert record.problem is not None
    assert record.problem.type == "/problems/infeasible"
    assert record.problem.reasons
    assert live.get(response.headers["location"]).status_code == 200


@pytest.mark.slow_on("sqlite")
def test_a_running_plan_is_cancelled(live: TestClient) -> None:
    url = live.post("/v1/plans", json=large_spec(), headers=ASYNC).headers["location"]
    while live.get(url).json()["status"] == "queued":
        time.sleep(0.01)
    cancelled = live.post(f"{url}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    # Its planner process is free again at once, and the cancelled job stays cancelled.
    after = live.post("/v1/plans", json=small_spec(), headers=ASYNC).headers["location"]
    assert finished(live, after, seconds=30).status == "succeeded"
    record = live.get(url).json()
    assert (record["status"], record["plan"]) == ("cancelled", None)


@pytest.mark.slow_on("sqlite")
def test_a_running_plan_is_deleted(live: TestClient) -> None:
    """At once, and for good: its planner ends, and nothing of it is written later."""
    url = live.post("/v1/plans", json=large_spec(), headers=ASYNC).headers["location"]
    while live.get(url).json()["status"] == "queued":
        time.sleep(0.01)
    assert live.delete(url).status_code == 204
    after = live.post("/v1/plans", json=small_spec(), headers=ASYNC).headers["location"]
    assert finished(live, after, seconds=30).status == "succeeded"
    assert live.get(url).status_code == live.delete(url).status_code == 404


@pytest.mark.slow_on("sqlite")
def test_a_plan_is_compared_with_strategies(live: TestClient) -> None:
    optimum = small_spec(search={"simplicity_tolerance": 0.0})
    record = created(live.post("/v1/plans", json=optimum))
    assert record.plan is not None
    for example in COMPARE_EXAMPLES.values():
        response = live.post(f"/v1/plans/{record.id}/compare", json=example["value"])
        assert response.status_code == 200, response.text
        compared = response.json()
        assert [s["name"] for s in compared["strategies"]] == example["value"]["strategies"]
        for strategy in compared["strategies"]:
            assert strategy["feasible"] or strategy["reason"]
            if strategy["feasible"]:
                assert strategy["iteration_seconds"] >= record.plan.iteration_seconds * (1 - 1e-9)


@pytest.mark.slow_on("sqlite")
def test_a_plan_is_simulated(live: TestClient) -> None:
    record = created(live.post("/v1/plans", json=small_spec()))
    assert record.plan is not None
    url = f"/v1/plans/{record.id}/simulate"
    response = live.post(url, json={"iterations": 3, "seed": 4})
    assert response.status_code == 200, response.text
    found = Simulation.model_validate(response.json())
    assert (found.iterations, found.seed) == (3, 4)
    assert len(found.each_iteration_seconds) == 3
    assert found.planned_seconds == record.plan.iteration_seconds
    assert found.trace is None
    traced = Simulation.model_validate(live.post(url, json={"iterations": 2, "trace": True}).json())
    assert traced.trace is not None
    names = {event["name"] for event in traced.trace["traceEvents"]}
    assert {call.name for call in traced.calls} <= names
    refused = problem(live.post(url, json={"iterations": 0}), 422, "invalid-spec")
    assert "iterations" in str(refused["errors"])


@pytest.mark.slow_on("sqlite")
def test_every_listed_strategy_can_be_compared(live: TestClient) -> None:
    names = [strategy["name"] for strategy in live.get("/v1/strategies").json()]
    assert set(names) == set(get_args(StrategyName))
    # The steps of real_mcmc follow the limit; by work, however busy the machine.
    spec = small_spec(search={"time_limit_seconds": 0.2, "limit_by": "work"})
    record = created(live.post("/v1/plans", json=spec))
    url = f"/v1/plans/{record.id}/compare"
    response = live.post(url, json={"strategies": names})
    assert response.status_code == 200, response.text
    compared = response.json()["strategies"]
    assert [s["name"] for s in compared] == names
    for strategy in compared:
        assert strategy["feasible"] or strategy["reason"].startswith(strategy["name"])
    assert live.post(url, json={"strategies": names}).json()["strategies"] == compared


def test_a_plan_can_be_a_strategys(live: TestClient) -> None:
    spec = small_spec(search={"strategy": "hybridflow"})
    record = created(live.post("/v1/plans", json=spec))
    assert record.plan is not None
    assert record.plan.search.strategy == "hybridflow"
    response = live.post(f"/v1/plans/{record.id}/compare", json={"strategies": ["hybridflow"]})
    (compared,) = response.json()["strategies"]
    assert compared["iteration_seconds"] == record.plan.iteration_seconds
    assert compared["reason"] == "same placement"
    assert compared["claimed_seconds"] > 0


def test_a_strategy_that_does_not_fit_or_does_not_exist_is_refused(live: TestClient) -> None:
    late = small_spec(search={"strategy": "one_step_off"})
    body = problem(live.post("/v1/plans", json=late), 422, "infeasible")
    assert "search.staleness" in body["reasons"][0]["summary"]
    assert "hybridflow" in body["reasons"][0]["remedy"]
    unknown = small_spec(search={"strategy": "magic"})
    body = problem(live.post("/v1/plans", json=unknown), 422, "invalid-spec")
    assert body["errors"][0]["field"] == "search.strategy"
    assert "rlinf" in str(body["errors"][0])


@pytest.mark.slow_on("sqlite")
@pytest.mark.parametrize("strategies", [["no-such"], [], ["split", 3], "split", None])
def test_unknown_strategies_are_refused(live: TestClient, strategies: object) -> None:
    record = created(live.post("/v1/plans", json=small_spec()))
    url = f"/v1/plans/{record.id}/compare"
    body = problem(live.post(url, json={"strategies": strategies}), 422, "invalid-spec")
    assert body["errors"][0]["field"].startswith("strategies")


def test_comparing_a_missing_plan_is_404(live: TestClient) -> None:
    url = "/v1/plans/00000000-0000-0000-0000-000000000000/compare"
    problem(live.post(url, json={"strategies": ["split"]}), 404, "not-found")


@pytest.mark.slow_on("sqlite")
def test_the_plans_own_placement_is_estimated_at_its_seconds(live: TestClient) -> None:
    record = created(live.post("/v1/plans", json=small_spec()))
    assert record.plan is not None
    placement = record.plan.placement().model_dump(mode="json", by_alias=True)
    response = live.post("/v1/estimates", json={"spec": small_spec(), "placement": placement})
    assert response.status_code == 200, response.text
    estimate = Plan.model_validate_json(response.content)
    assert estimate.search.status == "given"
    assert estimate.iteration_seconds == pytest.approx(record.plan.iteration_seconds, rel=1e-3)
    whole = record.plan.model_dump(mode="json", by_alias=True)
    for given in (whole, record.model_dump(mode="json", by_alias=True)):
        response = live.post("/v1/estimates", json={"spec": small_spec(), "placement": given})
        assert response.status_code == 200, response.text
        assert Plan.model_validate_json(response.content).calls == estimate.calls
    whole["copies"][0]["ofload"] = "optimizer"
    response = live.post("/v1/estimates", json={"spec": small_spec(), "placement": whole})
    body = problem(response, 422, "invalid-spec")
    assert [error["field"] for error in body["errors"]] == ["placement.copies.0.ofload"]
    assert len(stored_plans(live)) == 1  # an estimate is not stored


def test_the_example_of_an_estimate(live: TestClient) -> None:
    for example in ESTIMATE_EXAMPLES.values():
        response = live.post("/v1/estimates", json=example["value"])
        assert response.status_code == 200, response.text


def test_a_placement_that_does_not_fit_says_where(live: TestClient) -> None:
    (example,) = ESTIMATE_EXAMPLES.values()
    request = changed(example["value"], "spec.cluster.pools.0.gpu", "a10g")
    request["spec"]["models"]["actor"]["architecture"] = "qwen2.5-72b"
    body = problem(live.post("/v1/estimates", json=request), 422, "infeasible")
    assert any(reason.get("over_bytes", 0) > 0 for reason in body["reasons"])


def test_a_wrong_placement_names_its_field(live: TestClient) -> None:
    (example,) = ESTIMATE_EXAMPLES.values()
    for path, value, field in [
        ("placement.copies.0.num_gpus", 4, "placement.copies.0"),
        ("placement.copies.0.kind", "house", "placement.copies.0.kind"),
        ("placement.calls.0.kind", "dream", "placement.calls.0.kind"),
        ("placement.calls", [], "placement"),
        ("placement.copies.0.pool", "nowhere", "placement"),
        ("placement.copies.0.first_gpu", 4, "placement"),
        ("placement.calls.0.copy", "nobody", "placement"),
        ("spec.models.actor.architecture", "no-such", "spec.models.actor.architecture"),
        ("spec", None, "spec"),
    ]:
        body = problem(
            live.post("/v1/estimates", json=changed(example["value"], path, value)),
            422,
            "invalid-spec",
        )
        assert any(error["field"].startswith(field) for error in body["errors"]), body


def test_a_profile_folder_over_http_is_refused(live: TestClient) -> None:
    spec = small_spec()
    spec["cluster"]["pools"][0]["profile"] = "/etc"
    response = live.post("/v1/plans", json=spec)
    assert response.status_code == 422, response.text
    (mistake,) = response.json()["errors"]
    assert mistake["field"] == "cluster.pools.0.profile"
    assert "read by the command line" in mistake["message"]
    assert stored_plans(live) == []


@pytest.mark.slow_on("sqlite")
def test_a_plan_is_exported_or_refused_with_every_reason(live: TestClient) -> None:
    record = created(live.post("/v1/plans", json=small_spec()))
    url = f"/v1/plans/{record.id}/export"
    problem(live.get(url, params={"target": "verl@0.1"}), 422, "invalid-spec")
    problem(live.get(url), 422, "invalid-spec")
    response = live.get(url, params={"target": "verl@0.9.1"})
    if response.status_code == 200:
        assert Launch.model_validate(response.json()).target == "verl@0.9.1"
    own = small_spec(search={"strategy": "split"})
    apart = created(live.post("/v1/plans", json=own))
    refused = live.get(f"/v1/plans/{apart.id}/export", params={"target": "verl@0.9.1"})
    found = problem(refused, 422, "not-exportable")
    assert any("cannot be told" in reason["summary"] for reason in found["reasons"])
