from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from automap.service.errors.domain import RunFailedError, RunRefusedError
from automap.service.queues import job_queue
from automap.service.queues.job_queue import JobClaim
from automap.service.schemas.problems import problem_of
from automap.service.storage.database import Database
from automap.service.storage.tables import JobRow, PlanRow
from tests.service.support.job_claims import keep, printed, taken
from tests.service.support.requests import problem
from tests.service.support.samples import Json
from tests.service.support.workers import add_job, record

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def ran(
    database: Database,
    begin: float,
    end: float,
    *,
    owner: str = "ann",
    gpus: int = 8,
    **labels: str,
) -> UUID:
    """A run from so many hours after MIDNIGHT to so many, at 2 an hour and GPU."""
    job_id = add_job(database)
    with database.transaction() as session:
        row = session.get_one(JobRow, job_id)
        row.started_at = MIDNIGHT + timedelta(hours=begin)
        row.finished_at = MIDNIGHT + timedelta(hours=end)
        row.status, row.owner, row.labels = "cancelled", owner, labels
        plan = session.get_one(PlanRow, row.plan_id)
        plan.gpus_used, plan.iteration_seconds = gpus, 36.0
        plan.price_per_iteration = 2 * gpus * 36 / 3600
    return job_id


def test_gpu_time_is_summed_by_what_was_asked(client: TestClient, database: Database) -> None:
    ran(database, -3, 1, team="math")  # over midnight: 24 GPU-hours before, 8 after
    ran(database, 2, 3, owner="bob", gpus=4)
    unpriced = ran(database, 5, 6, owner="bob", gpus=2, team="code")
    add_job(database)  # has not begun
    with database.transaction() as session:
        row = session.get_one(JobRow, unpriced)
        session.get_one(PlanRow, row.plan_id).price_per_iteration = None

    def groups(**query: str) -> dict[str, tuple[int, float, float, float]]:
        found = client.get("/v1/costs", params=query).json()
        total = found["total"]["gpu_hours"]
        assert total == pytest.approx(sum(each["gpu_hours"] for each in found["items"]))
        return {
            each["group"]: (
                each["jobs"],
                *(round(each[name], 9) for name in ("gpu_hours", "price", "unpriced_gpu_hours")),
            )
            for each in found["items"]
        }

    assert groups() == {"2026-03-01": (1, 24, 48, 0), "2026-03-02": (3, 14, 24, 2)}
    assert list(groups(by="owner").items()) == [("ann", (1, 32, 64, 0)), ("bob", (2, 6, 8, 2))]
    assert groups(by="label:team") == {
        "math": (1, 32, 64, 0),
        "code": (1, 2, 0, 2),
        "": (1, 4, 8, 0),
    }
    clipped = {"after": "2026-03-02T00:30Z", "before": "2026-03-02T02:30:00Z", "by": "owner"}
    assert groups(**clipped) == {"ann": (1, 4, 8, 0), "bob": (1, 2, 4, 0)}
    assert sum(each[0] for each in groups(by="model").values()) == 3


def test_plans_of_one_name_cost_apart_also_when_they_are_deleted(
    client: TestClient, database: Database
) -> None:
    jobs = [ran(database, 0, hours) for hours in (2, 1)]
    plans = [record(database, job_id).plan_id for job_id in jobs]
    expected = [(f"tiny ({plan})", 8.0 * hours) for plan, hours in zip(plans, (2, 1), strict=True)]

    def by_plan() -> list[tuple[str, float]]:
        items = client.get("/v1/costs", params={"by": "plan"}).json()["items"]
        return [(each["group"], each["gpu_hours"]) for each in items]

    assert by_plan() == expected
    assert client.delete(f"/v1/plans/{plans[0]}").status_code == 204
    assert by_plan() == expected


def test_what_runs_is_counted_up_to_now(client: TestClient, database: Database) -> None:
    job_id = ran(database, 0, 1)
    with database.transaction() as session:
        row = session.get_one(JobRow, job_id)
        row.started_at, row.finished_at = datetime.now(UTC) - timedelta(hours=2), None
        row.status, row.submission_id, row.output, row.attempts = "running", "s", "o", 3
    found = client.get("/v1/costs").json()["total"]
    assert found["gpu_hours"] == pytest.approx(16, rel=0.02)


def hours_ago(hours: float, **event: object) -> Json:
    """What a run printed so long ago, though a worker reads it only now."""
    return {**event, "time": (datetime.now(UTC) - timedelta(hours=hours)).isoformat()}


def begun(database: Database) -> JobClaim:
    """A run of two GPUs that Ray started ten hours ago."""
    job_id = add_job(database)
    with database.transaction() as session:
        row = session.get_one(JobRow, job_id)
        row.created_at = datetime.now(UTC) - timedelta(hours=10)
        session.get_one(PlanRow, row.plan_id).gpus_used = 2
    held = taken(database)
    with database.transaction() as session:
        assert job_queue.run(session, held)
    states = ("starting Ray", "reserving devices", "waits for others to end. …")
    keep(database, held, printed(*(hours_ago(9, type="state", state=each) for each in states)))
    return held


def gpu_hours(client: TestClient) -> float:
    return float(client.get("/v1/costs").json()["total"]["gpu_hours"])


def test_waiting_for_devices_costs_nothing(client: TestClient, database: Database) -> None:
    held = begun(database)
    assert gpu_hours(client) == 0
    keep(database, held, printed(hours_ago(6, type="state", state="starting workers")))
    assert gpu_hours(client) == pytest.approx(12, rel=0.01)
    refused = begun(database)
    keep(database, refused, printed(hours_ago(8, type="failed", cause="no prompts")))
    with database.transaction() as session:
        assert job_queue.fail(session, refused, problem_of(RunRefusedError("no prompts")))
    assert gpu_hours(client) == pytest.approx(12, rel=0.01)


@pytest.mark.parametrize("how", ["finished", "failed"])
def test_a_run_costs_what_it_took_whenever_a_worker_hears_of_its_end(
    client: TestClient, database: Database, how: str
) -> None:
    held = begun(database)
    last = hours_ago(4, type=how, report={"name": "tiny"}, cause="it burnt")
    keep(database, held, printed(hours_ago(6, type="call", call="actor.train"), last))
    with database.transaction() as session:
        if how == "finished":
            assert job_queue.succeed(session, held)
        else:
            assert job_queue.fail(session, held, problem_of(RunFailedError("it burnt")))
    assert gpu_hours(client) == pytest.approx(4, rel=0.01)


def test_a_run_whose_clock_is_ahead_has_not_ended_in_the_future(database: Database) -> None:
    held = begun(database)
    keep(database, held, printed(hours_ago(-5, type="finished", report={"name": "tiny"})))
    with database.transaction() as session:
        assert job_queue.succeed(session, held)
    ended = record(database, held.job_id)
    assert ended.started_at is not None
    assert ended.finished_at is not None
    assert ended.started_at <= ended.finished_at <= datetime.now(UTC)


def test_a_group_that_is_none_is_refused(client: TestClient) -> None:
    found = problem(client.get("/v1/costs", params={"by": "team"}), 422, "invalid-spec")
    assert "label:KEY" in found["errors"][0]["message"]
