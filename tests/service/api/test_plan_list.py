from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from automap.planner.spec import JobSpec
from automap.service.queues import plan_queue
from automap.service.schemas.problems import problem_of
from automap.service.storage import plan_records
from automap.service.storage.database import Database
from tests.service.support.requests import problem
from tests.service.support.samples import Json, small_spec
from tests.service.support.workers import add_plan

START = datetime(2026, 1, 1, tzinfo=UTC)


def add(database: Database, minute: int, *, failed: bool = False, **changes: object) -> str:
    """A job that was queued that many minutes after START; `changes` are of its spec."""
    cluster = changes.pop("cluster_name", None)
    spec = JobSpec.model_validate(small_spec(**changes))
    with database.transaction() as session:
        row = plan_records.new_plan_row(
            spec, cluster_name=cluster if isinstance(cluster, str) else None
        )
        row.created_at = START + timedelta(minutes=minute)
        plan_queue.enqueue(session, row)
        session.flush()
        plan_id = str(row.id)
    if failed:
        with database.transaction() as session:
            held = plan_queue.claim(session, lease_seconds=60, max_attempts=3)
            assert held is not None
            assert plan_queue.fail(session, held, problem_of(RuntimeError()))
    return plan_id


def pages(client: TestClient, **query: object) -> list[Json]:
    found: list[Json] = []
    cursor: dict[str, str] = {}
    while True:
        response = client.get("/v1/plans", params={**query, **cursor})  # type: ignore[dict-item]
        assert response.status_code == 200, response.text
        page = response.json()
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def ids(items: list[Json]) -> list[str]:
    return [item["id"] for item in items]


@pytest.mark.slow_on("sqlite")
def test_plans_come_newest_first_and_once(client: TestClient, database: Database) -> None:
    added = [add(database, minute) for minute in (0, 1, 2, 3, 4)]
    for limit in (1, 2, 5, 200):
        assert ids(pages(client, limit=limit)) == added[::-1]


def test_plans_of_one_moment_keep_an_order(client: TestClient, database: Database) -> None:
    added = {add(database, 0) for _ in range(5)}
    listed = ids(pages(client, limit=2))
    assert len(listed) == 5
    assert set(listed) == added


def test_pages_stay_when_plans_are_added_and_deleted(
    client: TestClient, database: Database
) -> None:
    added = [add(database, minute) for minute in range(6)]
    first = client.get("/v1/plans", params={"limit": 2}).json()
    assert ids(first["items"]) == [added[5], added[4]]
    add(database, 10)
    client.delete(f"/v1/plans/{added[4]}")  # the cursor's own row is gone
    second = client.get("/v1/plans", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert ids(second["items"]) == [added[3], added[2]]


def test_filters(client: TestClient, database: Database) -> None:
    models = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reference")}
    grpo_models = {
        "actor": {"architecture": "Qwen/Qwen2.5-7B"},
        "reference": {"architecture": "qwen2.5-7b"},
        "reward": {"function": True},
    }
    ppo = add(database, 0, failed=True)
    grpo = add(database, 1, algorithm="grpo", models=grpo_models, cluster_name="berlin")
    own = add(
        database,
        2,
        algorithm=None,
        models=models,
        dataflow={"calls": [{"id": "g", "role": "actor", "kind": "generate"}]},
    )
    assert ids(pages(client, algorithm="ppo")) == [ppo]
    assert ids(pages(client, algorithm="dapo")) == []
    assert ids(pages(client, status="failed")) == [ppo]
    assert ids(pages(client, status="queued")) == [own, grpo]
    assert ids(pages(client, cluster="berlin")) == [grpo]
    assert ids(pages(client, model="llama-2-7b")) == [own, ppo]
    assert ids(pages(client, model="qwen2.5-7b")) == [grpo]
    assert ids(pages(client, model="Qwen/Qwen2.5-7B")) == [grpo]  # any of its names
    assert ids(pages(client, model="unheard-of")) == []
    at = (START + timedelta(minutes=1)).isoformat()
    assert ids(pages(client, created_after=at)) == [own]
    assert ids(pages(client, created_before=at)) == [ppo]
    elsewhere = (START + timedelta(minutes=1)).astimezone().isoformat()
    assert ids(pages(client, created_after=elsewhere)) == [own]
    assert ids(pages(client, model="llama-2-7b", status="failed", algorithm="ppo")) == [ppo]


def test_a_list_shows_no_documents(client: TestClient, database: Database) -> None:
    add(database, 0, failed=True)
    (item,) = pages(client)
    assert not {"spec", "plan", "problem"} & set(item)
    assert item["models"] == dict.fromkeys(("actor", "critic", "reference", "reward"), "llama-2-7b")
    assert item["created_at"] == "2026-01-01T00:00:00Z"


def test_a_failed_plan_shows_its_problem(client: TestClient, database: Database) -> None:
    record = client.get(f"/v1/plans/{add(database, 0, failed=True)}").json()
    assert record["status"] == "failed"
    assert record["plan"] is None
    assert record["problem"]["type"] == "/problems/internal-error"
    assert record["spec"]["name"] == small_spec()["name"]


def test_an_unfinished_plan_says_when_to_ask_again(client: TestClient, database: Database) -> None:
    response = client.get(f"/v1/plans/{add(database, 0)}")
    assert response.json()["status"] == "queued"
    assert response.headers["retry-after"] == "1"


def test_a_cancelled_plan_stays(client: TestClient, database: Database) -> None:
    url = f"/v1/plans/{add(database, 0)}"
    for _ in range(2):  # what is sent again does no more
        cancelled = client.post(f"{url}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert client.get(url).json()["status"] == "cancelled"


def test_a_plan_that_has_ended_is_not_cancelled(client: TestClient, database: Database) -> None:
    """Nor deleted: it may have ended while somebody made up their mind to cancel it."""
    url = f"/v1/plans/{add_plan(database)}"
    assert "succeeded" in problem(client.post(f"{url}/cancel"), 409, "conflict")["detail"]
    assert client.get(url).json()["status"] == "succeeded"
    problem(client.post(f"/v1/plans/{uuid4()}/cancel"), 404, "not-found")


def test_a_plan_is_deleted_at_once(client: TestClient, database: Database) -> None:
    url = f"/v1/plans/{add(database, 0)}"
    deleted = client.delete(url)
    assert deleted.status_code == 204
    assert deleted.content == b""
    assert client.get(url).status_code == 404
    assert client.delete(url).status_code == 404


@pytest.mark.parametrize(
    ("route", "body"), [("compare", {"strategies": ["split"]}), ("simulate", {"iterations": 2})]
)
def test_a_plan_that_did_not_succeed_cannot_be_compared_or_simulated(
    client: TestClient, database: Database, route: str, body: dict[str, object]
) -> None:
    url = f"/v1/plans/{add(database, 0)}/{route}"
    response = client.post(url, json=body)
    assert response.status_code == 409
    assert response.json()["type"] == "/problems/conflict"
