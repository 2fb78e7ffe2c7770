"""Plans that earlier versions stored: one of every shape that documents have had, each as it was.

`older_plans.json.gz` maps the commit that first wrote a shape to what it stored for the same two
jobs. A change of the types in `planner.spec` or `planner.plan` adds one; none is ever removed.
"""

import gzip
import json
from pathlib import Path
from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from automap.planner import Plan
from automap.planner.spec import JobSpec
from automap.service.queues import plan_queue
from automap.service.storage import plan_records
from automap.service.storage.database import Database, utc_now
from automap.service.storage.stored_documents import readable
from automap.service.storage.tables import JobRow, PlanRow, PlanTextRow
from tests.service.support.requests import finished, problem
from tests.service.support.samples import Json, small_spec
from tests.service.support.workers import run_settings

pytestmark = pytest.mark.slow_on("postgresql")

PLANS: dict[str, Json] = json.loads(
    gzip.decompress((Path(__file__).parent / "older_plans.json.gz").read_bytes())
)
UNREADABLE = {
    "name": "from long ago",
    "iteration_seconds": 12.5,
    "spec": {"models": {"actor": {"size": "7b"}}},
}
"""What no version that is kept has written: documents of the future and of the past alike."""


def store(database: Database, plan: Json) -> UUID:
    with database.transaction() as session:
        now = utc_now()
        row = PlanRow(
            status="succeeded",
            created_at=now,
            started_at=now,
            finished_at=now,
            spec_name=plan["name"],
            algorithm="rloo",
            objective="time",
            iteration_seconds=plan["iteration_seconds"],
            spec=plan["spec"],
            plan=plan,
            attempts=1,
            text=PlanTextRow(text=""),
        )
        session.add(row)
        session.flush()
        session.add(
            JobRow(
                kind="run",
                status="succeeded",
                plan=row,
                created_at=now,
                finished_at=now,
                settings={**run_settings(), "long_gone": True},
                iteration=4,
                iterations=4,
                measured={
                    "iteration": {"count": 4, "seconds": [13.0]},
                    "calls": {},
                    "report": None,
                },
                report={"iterations": 4},
                attempts=1,
                submission_id=f"automap-{row.id}-1",
                output="/runs/1",
                log_offset=0,
            )
        )
        return row.id


@pytest.mark.parametrize("commit", PLANS)
def test_every_shape_is_read(commit: str) -> None:
    plan = PLANS[commit]
    read = readable(Plan, plan)
    assert read is not None
    assert readable(JobSpec, plan["spec"]) is not None
    assert read.iteration_seconds == plan["iteration_seconds"]
    assert [call.id for call in read.calls] == [call["id"] for call in plan["calls"]]


@pytest.mark.parametrize("plan", [*PLANS.values(), UNREADABLE], ids=[*PLANS, "unreadable"])
def test_every_stored_plan_is_answered(client: TestClient, database: Database, plan: Json) -> None:
    plan_id = store(database, plan)
    url = f"/v1/plans/{plan_id}"
    shown = client.get(url)
    assert shown.status_code == 200, shown.text
    document = shown.json()
    assert document["plan"]["iteration_seconds"] == plan["iteration_seconds"]
    assert list(document["spec"]["models"]) == list(plan["spec"]["models"])
    (job,) = document["jobs"]
    for path in ("/v1/plans", "/v1/plans/history", f"{url}/history", "/v1/jobs"):
        assert client.get(path).status_code == 200, client.get(path).text
    assert client.get(f"/v1/jobs/{job['id']}").json()["settings"]["long_gone"]
    assert client.delete(url).status_code == 204


def test_what_cannot_be_read_is_shown_as_it_was(client: TestClient, database: Database) -> None:
    plan_id = store(database, UNREADABLE)
    document = client.get(f"/v1/plans/{plan_id}").json()
    assert (document["plan"], document["spec"]) == (UNREADABLE, UNREADABLE["spec"])
    (job,) = client.get(f"/v1/plans/{plan_id}/history").json()["jobs"]
    assert job["iteration"]["predicted_seconds"] == 12.5
    asked: list[tuple[str, str, Json]] = [
        ("POST", f"/v1/plans/{plan_id}/{question}", {}) for question in ("simulate", "explain")
    ]
    asked.append(("POST", f"/v1/plans/{plan_id}/replan", {}))
    asked.append(("POST", f"/v1/plans/{plan_id}/compare", {"strategies": ["fully_colocated"]}))
    asked.append(("POST", "/v1/jobs", {"plan_id": str(plan_id), "settings": run_settings()}))
    for method, path, body in asked:
        problem(client.request(method, path, json=body), 409, "older-version")
    exported = client.get(f"/v1/plans/{plan_id}/export", params={"target": "verl@0.9.1"})
    problem(exported, 409, "older-version")
    problem(client.get(f"/v1/plans/{plan_id}/costs"), 409, "older-version")


@pytest.mark.slow
def test_what_is_asked_about_older_plans_is_answered_or_refused(
    live: TestClient,
) -> None:
    database: Database = live.app.state.service.database  # type: ignore[attr-defined]
    for plan in PLANS.values():
        url = f"/v1/plans/{store(database, plan)}"
        for path, body in (
            ("simulate", {"iterations": 2}),
            ("compare", {"strategies": ["fully_colocated"]}),
            ("replan", {"search_seconds": 1}),
        ):
            response = live.post(f"{url}/{path}", json=body)
            assert response.status_code in (200, 422), (url, path, response.text)
        costs = live.get(f"{url}/costs").json()
        assert costs["total"]["price_per_iteration"] == plan["price_per_iteration"]
        assert costs["total"]["gpus"] == plan["gpus_used"]


def test_a_queued_spec_that_cannot_be_read_fails_with_the_reason(live: TestClient) -> None:
    database: Database = live.app.state.service.database  # type: ignore[attr-defined]
    with database.transaction() as session:
        row = plan_records.new_plan_row(JobSpec.model_validate(small_spec()), cluster_name=None)
        row.spec = {"from": "long ago"}
        plan_queue.enqueue(session, row)
        session.flush()
        plan_id = row.id
    live.app.state.service.dispatcher.wake()  # type: ignore[attr-defined]
    record = finished(live, f"/v1/plans/{plan_id}")
    assert record.status == "failed"
    assert record.problem is not None
    assert record.problem.type == "/problems/older-version"
    assert str(plan_id) in record.problem.detail
