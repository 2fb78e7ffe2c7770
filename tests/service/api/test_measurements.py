"""Measurements that the service starts: posted, queued alone, followed, stored. Without Ray."""

from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from automap.planner.spec import ClusterSpec
from automap.service.errors.domain import ProfileFailedError
from automap.service.queues import job_queue
from automap.service.schemas.measurements import ProfileJobRecord
from automap.service.schemas.problems import problem_of
from automap.service.storage.database import Database
from tests.service.support.job_claims import claim, finish, keep, printed, taken
from tests.service.support.measured_jobs import (
    add_measurement,
    finished_measurement,
    measured_kind,
    progress,
)
from tests.service.support.profiles import profile, stored
from tests.service.support.requests import problem
from tests.service.support.samples import Json
from tests.service.support.workers import add_job, events


def posted(client: TestClient, headers: dict[str, str] | None = None, **measure: object) -> str:
    response = client.post("/v1/profiles", json={"measure": measure}, headers=headers or {})
    assert response.status_code == 202, response.text
    job_id: str = response.json()["id"]
    assert response.headers["location"] == f"/v1/jobs/{job_id}"
    assert response.headers["retry-after"] == "1"
    return job_id


def job(client: TestClient, job_id: object) -> ProfileJobRecord:
    return ProfileJobRecord.model_validate_json(client.get(f"/v1/jobs/{job_id}").content)


def test_a_measurement_is_queued_with_its_models_resolved(client: TestClient) -> None:
    first = posted(client, models=["tiny-llama"], budget_seconds=60, device="cpu", strict=True)
    record = job(client, first)
    assert (record.kind, record.status, record.budget_seconds) == ("profile", "queued", 60)
    assert record.settings.models["tiny-llama"].num_layers == 2
    assert (record.settings.device, record.settings.strict) == ("cpu", True)
    again = posted(client, {"Idempotency-Key": "m-1"})
    assert posted(client, {"Idempotency-Key": "m-1"}) == again
    found = client.get("/v1/jobs", params={"kind": "profile"}).json()["items"]
    assert [each["id"] for each in found] == [again, first]
    assert client.get("/v1/jobs", params={"kind": "run"}).json()["items"] == []
    response = client.post(f"/v1/jobs/{first}/cancel")
    assert (response.status_code, response.json()["status"]) == (200, "cancelled")


def test_a_measurement_that_cannot_be_stored_frees_its_key(
    client: TestClient, database: Database
) -> None:
    key = {"Idempotency-Key": "m-2"}
    with database.transaction() as session:
        session.execute(text("ALTER TABLE job_events RENAME TO away"))
    try:
        failed = client.post("/v1/profiles", json={"measure": {}}, headers=key)
    finally:
        with database.transaction() as session:
            session.execute(text("ALTER TABLE away RENAME TO job_events"))
    assert failed.status_code >= 500
    assert posted(client, key) == posted(client, key)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"measure": {"models": ["llama-9"]}}, "measure.models.0", "no model 'llama-9'"),
        ({"measure": {"budget_seconds": 0}}, "measure.budget_seconds", "greater than 0"),
        ({"measure": {"device": "tpu"}}, "measure.device", "'cpu' or 'cuda'"),
        ({"measure": {"ranks": 0}}, "measure.ranks", "greater than or equal to 1"),
        ({"measure": {"budget": 1}}, "measure.budget", "Extra inputs"),
        ({"measure": {}, "fingerprint": {}}, "fingerprint", "Extra inputs"),
        ({"measure": None}, "measure", "mapping"),
    ],
)
def test_bad_requests_name_the_field(
    client: TestClient, body: Json, field: str, message: str
) -> None:
    found = problem(client.post("/v1/profiles", json=body), 422, "invalid-spec")
    (error,) = found["errors"]
    assert error["field"] == field
    assert message in error["message"], error
    assert client.get("/v1/jobs").json()["items"] == []


def test_what_is_measured_becomes_a_version_the_default_and_a_cluster(
    client: TestClient, database: Database
) -> None:
    before = stored(client, {**profile(factor=3.0), "make_default": True})
    job_id = add_measurement(database, make_default=True)
    held = taken(database)
    assert (held.kind, held.plan, held.output) == ("profile", None, f"/runs/{job_id}")
    keep(database, held, printed(progress(), text="hello\n"))
    record = job(client, job_id)
    assert [table.model_dump() for table in record.tables] == [
        {"table": "cpu: gemm", "done": 3, "wanted": 8}
    ]
    assert (record.seconds, record.profiles, record.cluster) == (2.5, [], None)
    keep(database, held, printed(measured_kind(), end_offset=2))
    (kind,) = job(client, job_id).profiles  # already while others are measured
    keep(database, held, printed(finished_measurement("cpu"), end_offset=3))
    with database.transaction() as session:
        assert job_queue.succeed(session, held)
    record = job(client, job_id)
    assert record.status == "succeeded"
    assert record.cluster is not None
    assert [pool.profile for pool in record.cluster.pools] == [kind.version]
    read = client.get(f"/v1/profiles/{kind.version}").json()
    assert (read["job_id"], read["is_default"]) == (str(job_id), True)
    assert ClusterSpec.model_validate(read["cluster"]) == record.cluster
    assert not client.get(f"/v1/profiles/{before}").json()["is_default"]
    # Followers learn of the version; the measurements are in the profile.
    (told,) = (each for each in events(database, job_id) if each["type"] == "profile")
    assert told["version"] == kind.version
    assert not {"measurements", "fingerprint"} & set(told)
    assert client.get(f"/v1/jobs/{job_id}/logs").text == "hello\n"
    (summary,) = client.get("/v1/jobs").json()["items"]
    assert summary["profiles"] == [kind.model_dump()]


def test_of_one_device_type_the_kind_with_most_nodes_becomes_the_default(
    client: TestClient, database: Database
) -> None:
    job_id = add_measurement(database, make_default=True)
    held = taken(database)
    kinds = {"cpu_2": (1, 1.1), "cpu": (3, 1.2), "cpu_3": (2, 1.3)}
    told = [measured_kind(pool, nodes, factor=by) for pool, (nodes, by) in kinds.items()]
    keep(database, held, printed(*told))
    versions = {each.pool: each.version for each in job(client, job_id).profiles}
    items = client.get("/v1/profiles").json()["items"]
    assert [each["version"] for each in items if each["is_default"]] == [versions["cpu"]]


def test_a_part_that_failed_leaves_what_was_measured(
    client: TestClient, database: Database
) -> None:
    job_id = add_measurement(database)
    held = taken(database)
    lost = "node-7: was lost"
    report = finished_measurement("cpu", failures=(lost,))
    failed = {"type": "failed", "cause": lost, "kind": "lost"}
    keep(database, held, printed(measured_kind(), report, failed))
    with database.transaction() as session:
        told = job_queue.last_failure(session, held)
        assert told is not None
        assert job_queue.fail(session, held, problem_of(ProfileFailedError(str(told["cause"]))))
    record = job(client, job_id)
    assert record.status == "failed"
    assert record.problem is not None
    assert (record.problem.type, record.problem.detail) == ("/problems/profile-failed", lost)
    assert record.cluster is not None
    assert client.get(f"/v1/profiles/{record.profiles[0].version}").status_code == 200


def test_a_profile_that_cannot_be_stored_fails_the_job(
    client: TestClient, database: Database
) -> None:
    job_id = add_measurement(database)
    held = taken(database)
    bad = measured_kind()
    bad["measurements"][0]["table"] = "gemmm"
    keep(database, held, printed(bad, finished_measurement("cpu")))
    with database.transaction() as session:
        assert not job_queue.succeed(session, held)
        told = job_queue.last_failure(session, held)
    assert told is not None
    assert "the profile of cpu cannot be stored: measurements.0: " in str(told["cause"])
    assert "no table 'gemmm'" in str(told["cause"])
    assert job(client, job_id).profiles == []
    assert client.get("/v1/profiles").json()["items"] == []


@pytest.mark.parametrize("event", [{"type": "progress"}, {"type": "progress", "table": 3}])
def test_progress_of_another_version_is_passed_on(
    client: TestClient, database: Database, event: Json
) -> None:
    job_id = add_measurement(database)
    keep(database, taken(database), printed(event))
    assert job(client, job_id).tables == []
    assert events(database, job_id)[-1]["type"] == "progress"


def ended(database: Database, held: job_queue.JobClaim) -> None:
    with database.transaction() as session:
        assert job_queue.cancelled(session, held)


def next_id(database: Database) -> UUID | None:
    held = claim(database)
    return None if held is None else held.job_id


def test_a_profile_has_the_cluster_to_itself(database: Database) -> None:
    add_job(database)
    running = taken(database)
    first, second = add_measurement(database), add_measurement(database)
    later = add_job(database)
    with database.reading() as session:
        assert not job_queue.is_waiting(session, new=True)
    assert claim(database) is None  # the profile waits for the run, and the later run for it
    finish(database, running)
    held = taken(database)
    assert held.job_id == first
    assert claim(database) is None  # nothing beside it, not even another profile
    ended(database, held)
    held = taken(database)
    assert held.job_id == second
    ended(database, held)
    assert next_id(database) == later


def test_a_cancelled_profile_holds_nobody_up(database: Database) -> None:
    add_job(database)
    taken(database)
    waiting = add_measurement(database)
    later = add_job(database)
    assert claim(database) is None
    with database.transaction() as session:
        job_queue.cancel(session, waiting)
    assert next_id(database) == later


def test_a_profile_that_nobody_holds_is_taken_over(database: Database) -> None:
    job_id = add_measurement(database)
    held = taken(database)
    with database.transaction() as session:
        job_queue.release(session, held)
    again = claim(database, new=False)
    assert again is not None
    assert (again.job_id, again.submission_id) == (job_id, held.submission_id)
