"""Whose job is next: a property of the rule itself, and the queue that follows it."""

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from automap.service.queues import job_queue, waiting
from automap.service.queues.claims import places
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobRow, PlanRow
from automap.service.worker.main import Worker
from automap.service.worker.ray_jobs import RayUnavailableError
from tests.service.support.databases import settings_for, url_of
from tests.service.support.job_claims import keep, printed, taken
from tests.service.support.measured_jobs import add_measurement
from tests.service.support.requests import problem
from tests.service.support.workers import add_job, events

OWNERS = ("ann", "bob", "cid", "dee")
HOURS = st.dictionaries(st.sampled_from(OWNERS), st.floats(0, 1000, allow_nan=False))


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


@given(hours=HOURS, owners=st.permutations(OWNERS))
def test_places_depend_on_gpu_time_alone(hours: dict[str, float], owners: list[str]) -> None:
    seconds = {owner: 3600 * value for owner, value in hours.items()}
    found = places(seconds, owners)
    assert found == places(seconds, OWNERS)
    assert set(found.values()) == set(range(len(set(found.values()))))
    for one in OWNERS:
        for other in OWNERS:
            # Equal to the minute is equal.
            if seconds.get(one, 0.0) + 60 < seconds.get(other, 0.0):
                assert found[one] < found[other]
            if seconds.get(one, 0.0) == seconds.get(other, 0.0):
                assert found[one] == found[other]


@given(
    lengths=st.lists(st.floats(0.1, 50), min_size=4, max_size=4),
    hours=HOURS,
    taken=st.integers(1, 60),
)
def test_nobody_is_passed_over_for_ever(
    lengths: list[float], hours: dict[str, float], taken: int
) -> None:
    """Everybody always has a job waiting, each as long as all of theirs."""
    used = {owner: 3600 * hours.get(owner, 0.0) for owner in OWNERS}
    begun = dict(used)
    length = dict(zip(OWNERS, lengths, strict=True))
    for _ in range(taken):
        place = places(used, OWNERS)
        # The jobs of one who has just been served are younger.
        owner = min(OWNERS, key=lambda each: (place[each], used[each] - begun[each], each))
        assert used[owner] <= min(used.values()) + 60
        used[owner] += 3600 * length[owner]
    # Who has got something has got no further than one job beyond who has least.
    least = min(used.values())
    for owner in OWNERS:
        if used[owner] > begun[owner]:
            assert used[owner] <= least + 3600 * length[owner] + 60


@pytest.mark.parametrize("seed", range(3))
def test_the_queue_follows_priority_then_turns_then_age(database: Database, seed: int) -> None:
    drawn = Random(seed)
    past = {owner: drawn.randrange(3) for owner in OWNERS}
    for owner, hours in past.items():
        job_id = queued(database, owner)
        assert claimed(database) == job_id
        used(database, job_id, hours)
    jobs = [(drawn.choice(OWNERS), drawn.randrange(2)) for _ in range(8)]
    ids = [queued(database, owner, priority=priority) for owner, priority in jobs]
    # None of those that follow has used anything yet: places stay as they are.
    expected = sorted(range(8), key=lambda each: (-jobs[each][1], past[jobs[each][0]], each))
    assert [claimed(database) for _ in ids] == [ids[each] for each in expected]
    assert claimed(database) is None


def test_a_queued_job_says_what_it_waits_for(client: TestClient, database: Database) -> None:
    def told(job_id: UUID) -> str:
        found = client.get(f"/v1/jobs/{job_id}").json()["waits_for"]
        return str(found)

    ann, other = queued(database, "ann"), queued(database, "ann")
    bob = queued(database, "bob")
    assert told(ann).startswith("a worker: none has taken it yet")
    assert told(other) == f"its turn, after job {ann} (tiny, of ann): it is older"
    urgent = queued(database, "ann", priority=1)
    assert told(bob).endswith(f"{urgent} (tiny, of ann): it has priority 1, this job 0")
    assert claimed(database) == urgent
    used(database, urgent, hours=1)
    assert told(urgent) == "None"
    assert told(ann).endswith("bob has used less GPU time of late, or as much and it is older")
    assert told(bob) == (
        f"a worker with room for it: it is the next, after job {urgent} (tiny, of ann) on 8 GPUs"
    )
    measurement = add_measurement(database)
    assert "this job measures, and has the cluster to itself" in told(measurement)
    late = queued(database, "cid")
    assert told(late).startswith(f"job {measurement} (")
    assert told(late).endswith(": it measures, and has the cluster to itself")
    with database.transaction() as session:
        row = session.get_one(JobRow, bob)
        plan = session.get_one(PlanRow, row.plan_id)
        plan.status, plan.plan, plan.finished_at = "queued", None, None
    assert told(bob) == "its plan, which is queued"


def test_a_queued_job_is_given_another_turn(client: TestClient, database: Database) -> None:
    def changed(job_id: UUID, **patch: object) -> Any:
        return client.patch(f"/v1/jobs/{job_id}", json=patch)

    first, second = queued(database, "ann"), queued(database, "ann")
    answer = changed(second, priority=7, labels={"team": "math"})
    assert (answer.status_code, answer.json()["priority"]) == (200, 7)
    assert client.get(f"/v1/jobs/{first}").json()["waits_for"].startswith("its turn, after job")
    assert "priority: 0 -> 7" in [
        each["change"] for each in client.get("/v1/audit").json()["items"]
    ]
    assert claimed(database) == second
    refused = changed(second, priority=3, name="late")
    assert refused.status_code == 409
    assert "only a queued job can be given another priority" in refused.json()["detail"]
    assert client.get(f"/v1/jobs/{second}").json()["name"] != "late"
    assert changed(second, priority=7, name="as it was").status_code == 200
    for wrong in (None, 1001, "high"):
        problem = changed(first, priority=wrong)
        assert (problem.status_code, problem.json()["errors"][0]["field"]) == (422, "priority")
    plan = client.get(f"/v1/jobs/{first}").json()["plan_id"]
    assert client.patch(f"/v1/plans/{plan}", json={"priority": 1}).status_code == 422


def test_what_it_waits_for_is_what_workers_take(database: Database) -> None:
    drawn = Random(7)
    for _ in range(6):
        queued(database, drawn.choice(OWNERS), priority=drawn.randrange(2))
    while True:
        with database.reading() as session:
            ids = session.scalars(select(JobRow.id).where(JobRow.status == "queued")).all()
            told = {job_id: waiting.waits_for(session, job_id) or "" for job_id in ids}
        following = claimed(database)
        if following is None:
            break
        assert [job_id for job_id in ids if told[job_id].startswith("a worker")] == [following]
        assert all(str(following) in told[job_id] for job_id in ids if job_id != following)


def test_a_job_says_why_the_worker_that_has_room_does_not_take_it(
    client: TestClient, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in its events, however often the worker tries; and no more once it is taken."""
    monkeypatch.setenv("RAY_ADDRESS", "")  # put back afterwards: a worker sets it for its process
    job_id = queued(database, "ann")
    nowhere = {"ray_address": "http://127.0.0.1:9", "runs_folder": tmp_path}
    settings = settings_for(url_of(database), **nowhere)
    worker = Worker(database, settings)
    for _ in range(3):
        with pytest.raises(RayUnavailableError) as error:
            worker.claim()
    reason = str(error.value)
    assert client.get(f"/v1/jobs/{job_id}").json()["waits_for"] == (
        f"a worker that can take it: {reason}"
    )
    reasons = [event.get("reason") for event in events(database, job_id)]
    assert reasons == [None, reason]
    assert claimed(database) == job_id
    assert client.get(f"/v1/jobs/{job_id}").json()["waits_for"] is None


def test_runs_of_a_local_ray_get_a_private_folder(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = queued(database, "ann")
    settings = settings_for(
        url_of(database),
        ray_address=None,
        ray_folder=tmp_path / "ray",
        runs_folder=tmp_path / "runs",
    )
    worker = Worker(database, settings)
    monkeypatch.setattr(worker, "_connect", lambda: None)
    held = worker.claim()
    assert held is not None
    assert (held.job_id, held.output) == (job_id, f"{tmp_path}/runs/{job_id}")
    assert (tmp_path / "runs").stat().st_mode & 0o777 == 0o700


def test_a_run_without_devices_says_what_it_waits_for(
    client: TestClient, database: Database
) -> None:
    job_id = add_job(database)
    held = taken(database)
    with database.transaction() as session:
        assert job_queue.run(session, held)

    def after(state: str) -> str | None:
        keep(database, held, printed({"type": "state", "state": state}))
        record = client.get(f"/v1/jobs/{job_id}").json()
        return None if record["waits_for"] is None else str(record["waits_for"])

    assert after("reserving devices") is None
    assert after("waits for others to end. 1 × 8 GPU are asked for") == (
        "others to end. 1 × 8 GPU are asked for"
    )
    assert after("starting workers") is None
