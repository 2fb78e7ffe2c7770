from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from automap.service.storage.database import Database
from automap.service.storage.tables import JobRow, PlanRow
from tests.service.support.requests import problem
from tests.service.support.workers import add_job

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


def test_what_runs_is_counted_up_to_now(client: TestClient, database: Database) -> None:
    job_id = ran(database, 0, 1)
    with database.transaction() as session:
        row = session.get_one(JobRow, job_id)
        row.started_at, row.finished_at = datetime.now(UTC) - timedelta(hours=2), None
        row.status, row.submission_id, row.output, row.attempts = "running", "s", "o", 3
    found = client.get("/v1/costs").json()["total"]
    assert found["gpu_hours"] == pytest.approx(16, rel=0.02)


def test_a_group_that_is_none_is_refused(client: TestClient) -> None:
    found = problem(client.get("/v1/costs", params={"by": "team"}), 422, "invalid-spec")
    assert "label:KEY" in found["errors"][0]["message"]
