"""Jobs over HTTP, without workers: what is accepted, refused, listed, followed and cancelled."""

import copy
import json
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml
from fastapi.testclient import TestClient

from automap.planner import make_plan
from automap.planner.spec import JobSpec
from automap.service.app import create_app
from automap.service.queues import plan_queue
from automap.service.runs.output import Printed
from automap.service.schemas.jobs import JobRecord
from automap.service.storage import plan_records
from automap.service.storage.database import Database
from tests.service.support.databases import settings_for, url_of
from tests.service.support.job_claims import finish, keep, printed, taken
from tests.service.support.requests import YAML, finished, problem, stored_rows
from tests.service.support.samples import Json, changed
from tests.service.support.workers import TINY, add_job, add_plan, run_settings

KEY = {"Idempotency-Key": "run-1"}
BODY: Json = {"spec": TINY, "settings": run_settings()}


def created(response: Any) -> JobRecord:
    assert response.status_code == 202, response.text
    record = JobRecord.model_validate_json(response.content)
    assert response.headers["location"] == f"/v1/jobs/{record.id}"
    assert response.headers["retry-after"] == "1"
    return record


@pytest.mark.slow_on("sqlite")
def test_a_spec_is_planned_first_and_then_waits_for_a_worker(live: TestClient) -> None:
    record = created(live.post("/v1/jobs", json=BODY))
    assert (record.status, record.iteration, record.iterations) == ("queued", 0, 4)
    assert record.predicted_iteration_seconds is None
    assert record.calls == []
    plan = finished(live, f"/v1/plans/{record.plan_id}")
    assert plan.status == "succeeded"
    planned = JobRecord.model_validate_json(live.get(f"/v1/jobs/{record.id}").content)
    assert planned.predicted_iteration_seconds == plan.iteration_seconds
    assert [call.call for call in planned.calls] == [
        "actor.generate",
        "reward.forward",
        "actor.train",
    ]
    assert all(call.predicted_seconds is not None for call in planned.calls)
    assert [job.id for job in plan.jobs] == [record.id]


@pytest.mark.slow_on("sqlite")
def test_a_stored_plan_is_run(client: TestClient, database: Database) -> None:
    plan_id = add_plan(database)
    body = {"plan_id": str(plan_id), "settings": run_settings(iterations=2)}
    record = created(client.post("/v1/jobs", json=body))
    assert (record.plan_id, record.iterations) == (plan_id, 2)
    assert str(record.settings.data.path) == "/stand-in/ok.jsonl"
    text = yaml.dump(body)
    assert created(client.post("/v1/jobs", content=text, headers=YAML)).id != record.id


def test_a_spec_may_name_a_stored_cluster(client: TestClient) -> None:
    pools = TINY["cluster"]["pools"]
    assert client.post("/v1/clusters", json={"name": "team", "pools": pools}).status_code == 201
    record = created(client.post("/v1/jobs", json=changed(BODY, "spec.cluster", "team")))
    assert client.get(f"/v1/plans/{record.plan_id}").json()["cluster"] == "team"


WITHOUT_FUNCTION = copy.deepcopy(BODY)
del WITHOUT_FUNCTION["settings"]["functions"]
BAD: list[tuple[str, object, str]] = [
    ("plan_id", str(UUID(int=7)), "plan_id"),  # beside a spec
    ("plan_id", "7", "plan_id"),
    ("spec", None, "plan_id"),
    ("spec.cluster", "nowhere", "spec.cluster"),
    ("spec.models.actor.architecture", "llama-9", "spec.models.actor.architecture"),
    ("spec.workload.iterations", 0, "spec.workload.iterations"),
    ("spec.search", {"generation_tail": True}, "spec.search.generation_tail"),
    ("settings", None, "settings"),
    ("settings", [], "settings"),
    ("settings", {}, "settings.data"),
    ("settings.data", {}, "settings.data.path"),
    ("settings.data.path", 7, "settings.data.path"),
    ("settings.data.path", "prompts.jsonl", "settings.data.path"),
    ("settings.data.path", "/data/prompts.csv", "settings.data.path"),
    ("settings.data.tokenizer", "models/x", "settings.data.tokenizer"),
    ("settings.data.chat_template", True, "settings.data.tokenizer"),
    ("settings.data.pretrain", {"path": "texts.jsonl"}, "settings.data.pretrain.path"),
    ("settings.data.pretrain", {"path": "/data/texts.csv"}, "settings.data.pretrain.path"),
    (
        "settings.data.pretrain",
        {"path": "/t.jsonl", "max_tokens": 1},
        "settings.data.pretrain.max_tokens",
    ),
    ("settings.data.overlong", "shrug", "settings.data.overlong"),
    ("settings.iterations", 0, "settings.iterations"),
    ("settings.iterations", 2.5, "settings.iterations"),
    ("settings.seed", -1, "settings.seed"),
    ("settings.call_timeout_seconds", 0, "settings.call_timeout_seconds"),
    ("settings.max_restart", 3, "settings.max_restart"),
    ("settings.models", {"actor": "models/actor"}, "settings.models.actor"),
    ("settings.models", {"critic": "/models/critic"}, "settings.models.critic"),
    ("settings.models", {"reward": "/models/reward"}, "settings.models.reward"),
    ("settings.functions", {"actor": {"path": "a:b"}}, "settings.functions.actor"),
    ("settings.functions.reward.path", "no function", "settings.functions.reward.path"),
    ("settings.functions.reward.path", "reward.py:score", "settings.functions.reward.path"),
    (
        "settings.functions.reward.path",
        "automap.executor.tiny.tasks:count_tokens",
        "settings.functions.reward.path",
    ),
    ("settings.functions.reward.timeout_seconds", -1, "settings.functions.reward.timeout_seconds"),
    ("settings.training", {"critic": {}}, "settings.training.critic"),
    ("settings.training", {"reward": {}}, "settings.training.reward"),
    ("settings.training", {"actor": {"engine": "deepspeed"}}, "settings.training.actor.engine"),
    (
        "settings.training",
        {"actor": {"optimizer": {"decay": "cosine"}}},
        "settings.training.actor.optimizer.decay_steps",
    ),
    (
        "settings.training",
        {"actor": {"optimizer": {"learning_rate": 1e-6, "minimum_learning_rate": 1e-5}}},
        "settings.training.actor.optimizer.minimum_learning_rate",
    ),
    ("settings.rollout", {"temperature": "hot"}, "settings.rollout.temperature"),
    ("settings.checkpoint", {"every_iterations": -1}, "settings.checkpoint.every_iterations"),
    (
        "settings.algorithm",
        {"off_policy_correction": "decoupled_ppo"},
        "settings.algorithm.off_policy_correction",
    ),
    (
        "settings.algorithm",
        {"importance_weight_cap": 2},
        "settings.algorithm.importance_weight_cap",
    ),
    ("setings", {}, "setings"),
]


@pytest.mark.slow_on("sqlite")
@pytest.mark.parametrize(
    ("path", "value", "field"), BAD, ids=lambda value: str(value)[:50] if value else "none"
)
def test_bad_requests_name_the_field(
    client: TestClient, database: Database, path: str, value: object, field: str
) -> None:
    body = problem(client.post("/v1/jobs", json=changed(BODY, path, value)), 422, "invalid-spec")
    fields = [error["field"] for error in body["errors"]]
    assert field in fields or any(name.startswith(f"{field}.") for name in fields), body
    assert all(error["message"] for error in body["errors"])
    assert stored_rows(database) == 0


ON_H100: Json = {"pools": [{"name": "p", "gpu": "h100", "num_nodes": 1}]}
MIXTURE: Json = {"actor": {"architecture": "qwen3-30b-a3b"}, "reward": {"function": True}}
LORA: Json = {
    "actor": {"architecture": "tiny-llama", "lora": {"rank": 4}},
    "reward": {"function": True},
}
NOT_RUN: dict[str, tuple[Json, str]] = {
    "any": ({"spec.search": {"target": "any"}}, "spec.search.target"),
    "verl": (
        {"spec.search": {"target": "verl@0.9.1"}, "spec.workload.precision": "bf16"},
        "spec.search.target",
    ),
    "tail": ({"spec.search": {"generation_tail": True}}, "spec.search.generation_tail"),
    "tensor schedule": (
        {"spec.search": {"generation_tensor_schedule": True}},
        "spec.search.generation_tensor_schedule",
    ),
    "rollout engine": (
        {"spec.workload.rollout_engine": "sglang"},
        "spec.workload.rollout_engine",
    ),
    "cache": (
        {"spec.workload.rollout_cache_precision": "fp8"},
        "spec.workload.rollout_cache_precision",
    ),
    "rollout precision": (
        {"spec.cluster": ON_H100, "spec.workload.rollout_precision": "int4"},
        "spec.workload.rollout_precision",
    ),
    "rollout precision on cores": (
        {"spec.workload.rollout_precision": "fp8"},
        "spec.workload.rollout_precision",
    ),
    "training precision": (
        {
            "spec.cluster": ON_H100,
            "spec.workload.precision": "bf16",
            "spec.workload.training_precision": "fp8",
        },
        "spec.workload.training_precision",
    ),
    "model": (
        {"spec.cluster": ON_H100, "spec.models.actor": {"architecture": "deepseek-v3"}},
        "spec.models.actor",
    ),
    "precision of a mixture": (
        {"spec.cluster": ON_H100, "spec.models": MIXTURE, "spec.workload.precision": "fp16"},
        "spec.models.actor",
    ),
    "fsdp for a mixture": (
        {
            "spec.cluster": ON_H100,
            "spec.models": MIXTURE,
            "spec.workload.precision": "bf16",
            "settings.training": {"actor": {"engine": "fsdp"}},
        },
        "settings.training.actor.engine",
    ),
    "megatron for an adapter": (
        {"spec.models": LORA, "settings.training": {"default": {"engine": "megatron"}}},
        "settings.training.default.engine",
    ),
}


@pytest.mark.parametrize(("changes", "field"), NOT_RUN.values(), ids=NOT_RUN)
def test_what_the_executor_cannot_run_is_refused_before_it_is_planned(
    client: TestClient, database: Database, changes: Json, field: str
) -> None:
    request: Json = BODY
    for path, value in changes.items():
        request = changed(request, path, value)
    body = problem(client.post("/v1/jobs", json=request), 422, "invalid-spec")
    (error,) = body["errors"]
    assert error["field"] == field
    words = ("can be priced, but not run: ", "does not run", "are exported, and run there")
    assert any(each in error["message"] for each in words)
    assert error["remedy"]
    assert error["value"] is not None
    assert stored_rows(database) == 0


@pytest.mark.slow_on("sqlite")
def test_a_stored_plan_for_any_runs_where_automap_runs_it(
    client: TestClient, database: Database
) -> None:
    plan = make_plan(JobSpec.model_validate(changed(TINY, "search", {"target": "any"})))
    assert (plan.search.target, plan.runs_with) == ("any", ["automap"])
    request = {"plan_id": str(add_plan(database, plan)), "settings": run_settings()}
    created(client.post("/v1/jobs", json=request))


def test_a_missing_function_is_missed(client: TestClient) -> None:
    body = problem(client.post("/v1/jobs", json=WITHOUT_FUNCTION), 422, "invalid-spec")
    assert body["errors"][0]["field"] == "settings.functions.reward"
    assert "module:function" in body["errors"][0]["remedy"]


def test_all_mistakes_are_told_and_the_meant_name_is_guessed(client: TestClient) -> None:
    bad = changed(BODY, "settings.models", {"actr": "/a", "critic": "/c"})
    body = problem(client.post("/v1/jobs", json=bad), 422, "invalid-spec")
    assert len(body["errors"]) == 2
    assert "actor" in body["errors"][0]["remedy"]
    bad = changed(BODY, "settings.iteration", 3)
    body = problem(client.post("/v1/jobs", json=bad), 422, "invalid-spec")
    assert "did you mean 'iterations'" in body["errors"][0]["remedy"]


def test_settings_are_checked_against_a_stored_plan_too(
    client: TestClient, database: Database
) -> None:
    settings = run_settings(models={"critic": "/c"})
    request = {"plan_id": str(add_plan(database)), "settings": settings}
    body = problem(client.post("/v1/jobs", json=request), 422, "invalid-spec")
    assert body["errors"][0]["field"] == "settings.models.critic"


def test_an_unknown_plan_and_one_that_failed_are_refused(
    client: TestClient, database: Database
) -> None:
    body = {"plan_id": str(uuid4()), "settings": run_settings()}
    answer = problem(client.post("/v1/jobs", json=body), 422, "invalid-spec")
    assert answer["errors"][0]["field"] == "plan_id"
    with database.transaction() as session:
        row = plan_records.new_plan_row(JobSpec.model_validate(TINY), cluster_name=None)
        plan_queue.enqueue(session, row)
        session.flush()
        plan_queue.cancel(session, row.id)
        body["plan_id"] = str(row.id)
    problem(client.post("/v1/jobs", json=body), 409, "conflict")


def test_the_same_key_makes_one_job(client: TestClient, database: Database) -> None:
    body = {"plan_id": str(add_plan(database)), "settings": run_settings()}
    first = created(client.post("/v1/jobs", json=body, headers=KEY))
    assert created(client.post("/v1/jobs", json=body, headers=KEY)).id == first.id
    other = changed(body, "settings.seed", 1)
    problem(client.post("/v1/jobs", json=other, headers=KEY), 422, "idempotency-key-reused")
    problem(client.post("/v1/plans", json=TINY, headers=KEY), 422, "idempotency-key-reused")
    assert len(client.get("/v1/jobs").json()["items"]) == 1


def test_a_refused_request_frees_its_key(client: TestClient, database: Database) -> None:
    body = {"plan_id": str(uuid4()), "settings": run_settings()}
    problem(client.post("/v1/jobs", json=body, headers=KEY), 422, "invalid-spec")
    body["plan_id"] = str(add_plan(database))
    created(client.post("/v1/jobs", json=body, headers=KEY))


@pytest.mark.slow_on("sqlite")
def test_lists_are_paged_and_filtered(client: TestClient, database: Database) -> None:
    ids = [str(add_job(database)) for _ in range(5)]
    held = taken(database)
    assert str(held.job_id) == ids[0]

    def listed(query: str) -> list[str]:
        answer = client.get(f"/v1/jobs{query}")
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    assert listed("") == ids[::-1]
    assert listed("?status=starting") == ids[:1]
    assert listed("?status=queued&limit=2") == ids[:2:-1]
    assert listed("?algorithm=ppo") == []
    assert len(listed("?algorithm=rloo")) == 5
    plan_id = client.get(f"/v1/jobs/{ids[2]}").json()["plan_id"]
    assert listed(f"?plan_id={plan_id}") == [ids[2]]
    moment = client.get(f"/v1/jobs/{ids[2]}").json()["created_at"]
    assert listed(f"?created_after={moment}") == ids[:2:-1]
    assert listed(f"?created_before={moment}") == ids[1::-1]
    seen, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/v1/jobs?limit=2{cursor}").json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    assert seen == ids[::-1]
    assert "settings" not in client.get("/v1/jobs").json()["items"][0]


@pytest.mark.parametrize("query", ["status=done", "limit=0", "cursor=x", "plan_id=7", "spec=a"])
def test_bad_queries_name_the_field(client: TestClient, query: str) -> None:
    body = problem(client.get(f"/v1/jobs?{query}"), 422, "invalid-spec")
    assert body["errors"][0]["field"] == f"query.{query.partition('=')[0]}"


@pytest.mark.parametrize("path", ["", "/events", "/logs"])
def test_unknown_jobs_are_not_found(client: TestClient, path: str) -> None:
    problem(client.get(f"/v1/jobs/{uuid4()}{path}"), 404, "not-found")
    problem(client.get(f"/v1/jobs/seven{path}"), 422, "invalid-spec")


@pytest.mark.slow_on("sqlite")
def test_cancelling(client: TestClient, database: Database) -> None:
    problem(client.post(f"/v1/jobs/{uuid4()}/cancel"), 404, "not-found")
    running, waiting = add_job(database), add_job(database)
    held = taken(database)
    answer = client.post(f"/v1/jobs/{waiting}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert client.post(f"/v1/jobs/{waiting}/cancel").status_code == 200  # once more is no mistake
    answer = client.post(f"/v1/jobs/{running}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "starting")
    assert answer.json()["cancelling"]
    assert answer.headers["retry-after"] == "1"
    finish(database, held)
    problem(client.post(f"/v1/jobs/{running}/cancel"), 409, "conflict")


def test_a_plan_is_not_deleted_under_its_job(client: TestClient, database: Database) -> None:
    job_id = add_job(database)
    plan_id = client.get(f"/v1/jobs/{job_id}").json()["plan_id"]
    problem(client.delete(f"/v1/plans/{plan_id}"), 409, "conflict")
    client.post(f"/v1/jobs/{job_id}/cancel")
    assert client.delete(f"/v1/plans/{plan_id}").status_code == 204
    problem(client.get(f"/v1/jobs/{job_id}"), 404, "not-found")


def test_a_plan_that_a_job_waits_for_is_cancelled_first(client: TestClient) -> None:
    """The job then says why it will not run, and goes when the plan does."""
    job = created(client.post("/v1/jobs", json=BODY))
    plan = f"/v1/plans/{job.plan_id}"
    assert "or the plan" in problem(client.delete(plan), 409, "conflict")["detail"]
    assert client.post(f"{plan}/cancel").status_code == 200
    failed = client.get(f"/v1/jobs/{job.id}").json()
    assert (failed["status"], "cancelled" in failed["problem"]["detail"]) == ("failed", True)
    assert client.delete(plan).status_code == 204


def test_the_report_is_with_the_job_and_its_measurements_with_the_plan(
    client: TestClient, database: Database
) -> None:
    job_id = add_job(database)
    held = taken(database)
    keep(database, held, printed({"type": "call", "call": "actor.train", "seconds": 0.25}))
    finish(database, held)
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["status"], job["report"]) == ("succeeded", {"seconds": 1.0})
    plan = client.get(f"/v1/plans/{job['plan_id']}").json()
    (run,) = plan["jobs"]
    trained = next(call for call in run["calls"] if call["call"] == "actor.train")
    assert trained["measured_seconds"] == 0.25
    assert trained["predicted_seconds"] > 0


def sent(response: Any) -> list[tuple[int, str, Json]]:
    """Id, kind and data of server-sent events."""
    assert response.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in response.text.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.splitlines() if line[:1] not in ("", ":")
        )
        if fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


def over(database: Database) -> UUID:
    job_id = add_job(database)
    held = taken(database)
    for number in range(3):
        keep(database, held, printed({"type": "metrics", "metrics": {"text\r\n": f"é\n{number}"}}))
    finish(database, held)
    return job_id


def test_events_are_streamed_with_their_numbers(client: TestClient, database: Database) -> None:
    job_id = over(database)
    response = client.get(f"/v1/jobs/{job_id}/events")
    assert response.status_code == 200
    found = sent(response)
    assert [number for number, _, _ in found] == list(range(1, 8))
    assert [kind for _, kind, _ in found] == [
        *("status", "status", "metrics", "metrics", "metrics", "finished", "status")
    ]
    assert found[3][2]["metrics"] == {"text\r\n": "é\n1"}
    assert found[-1][2]["status"] == "succeeded"
    assert all(data["time"] for _, _, data in found)


def test_a_stream_goes_on_after_the_last_id(client: TestClient, database: Database) -> None:
    url = f"/v1/jobs/{over(database)}/events"
    everything = sent(client.get(url))
    for last in (0, 1, 6):
        response = client.get(url, headers={"Last-Event-ID": str(last)})
        assert sent(response) == everything[last:]
    # 204 tells a browser that there is nothing to connect to again.
    for last in (7, 1000):
        assert client.get(url, headers={"Last-Event-ID": str(last)}).status_code == 204


@pytest.mark.parametrize("last", ["x", "-1", "1.5", str(2**40)])
def test_a_bad_last_id_names_the_field(client: TestClient, database: Database, last: str) -> None:
    url = f"/v1/jobs/{add_job(database)}/events"
    body = problem(client.get(url, headers={"Last-Event-ID": last}), 422, "invalid-spec")
    assert body["errors"][0]["field"] == "header.Last-Event-ID"


def test_the_end_of_the_log_is_text(client: TestClient, database: Database) -> None:
    job_id = add_job(database)
    url = f"/v1/jobs/{job_id}/logs"
    assert client.get(url).text == ""
    keep(database, taken(database), Printed(text="eins\nzwei é\ndrei\n", end_offset=1))
    response = client.get(url)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text == "eins\nzwei é\ndrei\n"
    assert client.get(f"{url}?tail=2").text == "zwei é\ndrei\n"
    for tail in ("0", "-1", "many", "1000000"):
        problem(client.get(f"{url}?tail={tail}"), 422, "invalid-spec")


def test_jobs_need_a_key_where_plans_do(database: Database, client: TestClient) -> None:
    job_id = add_job(database)
    app = create_app(settings_for(url_of(database), api_keys="secret"))
    locked = TestClient(app)
    for path in ("jobs", f"jobs/{job_id}", f"jobs/{job_id}/events", f"jobs/{job_id}/logs"):
        problem(locked.get(f"/v1/{path}"), 401, "unauthorized")
    problem(locked.post(f"/v1/jobs/{job_id}/cancel"), 401, "unauthorized")
    key = {"Authorization": "Bearer secret"}
    assert locked.get(f"/v1/jobs/{job_id}", headers=key).status_code == 200
    app.state.service.database.dispose()
