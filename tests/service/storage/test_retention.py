"""What is kept for so long and no longer, and what stays of it."""

import time
from datetime import timedelta
from uuid import UUID

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from automap.service.queues import job_queue
from automap.service.queues.dispatcher import Dispatcher
from automap.service.storage import retention
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobEventRow, JobRow, PlanRow
from tests.service.support.databases import settings_for, url_of
from tests.service.support.workers import add_job, add_plan


def ended(database: Database, job_id: UUID, *, days: float) -> None:
    """The job has run for an hour, on a plan for 8 GPUs, and ended so long ago; the plan before."""
    with database.transaction() as session:
        assert job_queue.cancel(session, job_id)
        row = session.get_one(JobRow, job_id)
        row.finished_at = utc_now() - timedelta(days=days)
        row.started_at = row.finished_at - timedelta(hours=1)
        plan = session.get_one(PlanRow, row.plan_id)
        plan.finished_at = utc_now() - timedelta(days=90)
        plan.gpus_used, plan.iteration_seconds, plan.price_per_iteration = 8, 10.0, 1.0


def forgotten(database: Database) -> tuple[int, int]:
    with database.transaction() as session:
        return retention.forget(session, days=30)


def test_what_ended_long_ago_goes_and_its_cost_stays(
    client: TestClient, database: Database
) -> None:
    old, young, waiting = (add_job(database, owner=owner) for owner in ("ann", "bob", "cid"))
    ended(database, old, days=31)
    ended(database, young, days=29)
    unused = add_plan(database)
    with database.transaction() as session:
        for plan in session.scalars(select(PlanRow)):
            plan.finished_at = utc_now() - timedelta(days=90)

    def costs() -> dict[str, tuple[int, float, float]]:
        items = client.get("/v1/costs", params={"by": "owner"}).json()["items"]
        names = ("jobs", "gpu_hours", "price")
        return {each["group"]: tuple(round(each[name], 6) for name in names) for each in items}

    before = costs()
    assert before["ann"] == before["bob"] == (1, 8.0, 360.0)
    assert forgotten(database) == (1, 2)  # the old job and its plan, and the plan nobody ran
    assert forgotten(database) == (0, 0)
    assert costs() == before
    with database.reading() as session:
        assert set(session.scalars(select(JobRow.id))) == {young, waiting}
        assert old not in set(session.scalars(select(JobEventRow.job_id)))
        kept = {row.plan_id for row in session.scalars(select(JobRow))}
        assert set(session.scalars(select(PlanRow.id))) == kept
        assert unused not in kept
    days = client.get("/v1/costs", params={"before": "2020-01-01T00:00Z"}).json()
    assert days["total"]["jobs"] == 0


def test_a_plan_that_is_deleted_leaves_its_cost(client: TestClient, database: Database) -> None:
    job_id = add_job(database)
    ended(database, job_id, days=1)
    before = client.get("/v1/costs").json()
    plan_id = client.get(f"/v1/jobs/{job_id}").json()["plan_id"]
    assert client.delete(f"/v1/plans/{plan_id}").status_code == 204
    assert client.get(f"/v1/jobs/{job_id}").status_code == 404
    assert client.get("/v1/costs").json() == before
    assert before["total"]["gpu_hours"] == pytest.approx(8)


@pytest.mark.parametrize("days", [30, None])
def test_a_server_forgets_while_no_plan_waits(database: Database, days: float | None) -> None:
    job_id = add_job(database)
    ended(database, job_id, days=31)
    dispatcher = Dispatcher(database, settings_for(url_of(database), retention_days=days))
    dispatcher.start()
    deadline = time.monotonic() + (10 if days else 1)
    try:
        while time.monotonic() < deadline and _is_there(database, job_id):
            time.sleep(0.05)
    finally:
        dispatcher.stop()
    assert _is_there(database, job_id) is (days is None)


def _is_there(database: Database, job_id: UUID) -> bool:
    with database.reading() as session:
        return session.get(JobRow, job_id) is not None
