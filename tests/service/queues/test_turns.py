from datetime import timedelta
from uuid import UUID

from fastapi.testclient import TestClient

from automap.service.queues import job_queue
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobRow, PlanRow
from tests.service.support.requests import problem
from tests.service.support.workers import add_job


def queued(database: Database, owner: str, *, priority: int = 0) -> UUID:
    job_id = add_job(database)
    with database.transaction() as session:
        row = session.get_one(JobRow, job_id)
        row.owner, row.priority = owner, priority
    return job_id


def claimed(database: Database) -> UUID | None:
    with database.transaction() as session:
        held = job_queue.claim(session, lease_seconds=60, runs_folder="/runs", new=True)
        return None if held is None else held.job_id


def used(database: Database, job_id: UUID, hours: float) -> None:
    """The job has run so long, until now."""
    with database.transaction() as session:
        row = session.get_one(JobRow, job_id)
        row.started_at = utc_now() - timedelta(hours=hours)
        session.get_one(PlanRow, row.plan_id).gpus_used = 8


def test_priority_comes_before_age_and_owners_take_turns(database: Database) -> None:
    ann = [queued(database, "ann") for _ in range(3)]
    bob = [queued(database, "bob") for _ in range(2)]
    urgent = queued(database, "ann", priority=5)
    last = queued(database, "cid", priority=-1)
    order = []
    while (job_id := claimed(database)) is not None:
        order.append(job_id)
        used(database, job_id, hours=1)
    assert order == [urgent, bob[0], ann[0], bob[1], ann[1], ann[2], last]


def test_gpu_time_of_long_ago_does_not_count(database: Database) -> None:
    old = queued(database, "ann")
    assert claimed(database) == old
    with database.transaction() as session:
        row = session.get_one(JobRow, old)
        row.started_at = utc_now() - timedelta(days=30)
        assert job_queue.cancel(session, old)
        row.finished_at, row.status = utc_now() - timedelta(days=29), "cancelled"
        row.lease_token = row.lease_expires_at = None
    ann, _bob = queued(database, "ann"), queued(database, "bob")
    assert claimed(database) == ann


def test_a_job_that_is_over_is_run_again(client: TestClient, database: Database) -> None:
    job_id = queued(database, "ann", priority=3)
    problem(client.post(f"/v1/jobs/{job_id}/retry"), 409, "conflict")
    client.patch(f"/v1/jobs/{job_id}", json={"name": "night", "labels": {"a": "b"}})
    client.post(f"/v1/jobs/{job_id}/cancel")
    response = client.post(f"/v1/jobs/{job_id}/retry")
    assert response.status_code == 202, response.text
    again = response.json()
    assert response.headers["location"] == f"/v1/jobs/{again['id']}"
    old = client.get(f"/v1/jobs/{job_id}").json()
    for name in ("name", "labels", "plan_id", "settings", "priority", "iterations"):
        assert again[name] == old[name]
    assert (again["retry_of"], again["status"], again["owner"]) == (str(job_id), "queued", "local")
    found = client.get("/v1/jobs", params={"q": "night"}).json()["items"]
    assert [each["id"] for each in found] == [again["id"], str(job_id)]
    key = {"Idempotency-Key": "again"}
    twice = [client.post(f"/v1/jobs/{job_id}/retry", headers=key).json()["id"] for _ in "ab"]
    assert twice[0] == twice[1] != again["id"]
    missing = "/v1/jobs/11111111-2222-3333-4444-555555555555/retry"
    problem(client.post(missing), 404, "not-found")
