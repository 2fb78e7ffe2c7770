"""Budgets: what they count, when they warn, and where that is read."""

from calendar import monthrange
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from automap.service.storage import budgets
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobRow, PlanRow
from tests.service.support.job_claims import taken
from tests.service.support.requests import problem
from tests.service.support.samples import Json
from tests.service.support.workers import add_job, add_plan, run_settings

MIDDLE = utc_now().replace(day=16, hour=0, minute=0, second=0, microsecond=0)
DAYS_LEFT = monthrange(MIDDLE.year, MIDDLE.month)[1] - 15
"""Of the month, at MIDDLE."""


@pytest.fixture(autouse=True)
def in_the_middle_of_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "utc_now", lambda: MIDDLE)


def ran(database: Database, *, days_ago: float, hours: float, owner: str, **labels: str) -> None:
    """A run on 8 GPUs that took so long, at 2 an hour and GPU."""
    job_id = add_job(database, owner=owner)
    with database.transaction() as session:
        row = session.get_one(JobRow, job_id)
        row.started_at = MIDDLE - timedelta(days=days_ago)
        row.finished_at = row.started_at + timedelta(hours=hours)
        row.status, row.labels = "cancelled", labels
        plan = session.get_one(PlanRow, row.plan_id)
        plan.gpus_used, plan.iteration_seconds, plan.price_per_iteration = 8, 3600.0, 16.0


def made(client: TestClient, **budget: object) -> Json:
    response = client.post("/v1/budgets", json=budget)
    assert response.status_code == 201, response.text
    found: Json = response.json()
    assert response.headers["location"] == f"/v1/budgets/{found['id']}"
    return found


def test_a_month_is_summed_and_expected_to_end_as_the_last_week_went(
    client: TestClient, database: Database
) -> None:
    ran(database, days_ago=20, hours=48, owner="ann")  # last month
    ran(database, days_ago=10, hours=5, owner="ann", team="math")
    ran(database, days_ago=3, hours=7, owner="ann")
    ran(database, days_ago=1, hours=1, owner="bob", team="math")
    ann = made(client, of="owner:ann", amount=1000)
    assert ann["spent"] == pytest.approx(12 * 16)
    assert ann["forecast"] == pytest.approx(12 * 16 + DAYS_LEFT * 16)  # an hour a day of late
    assert ann["warning"] is None
    math = made(client, of="label:team:math", unit="gpu_hours", amount=40)
    assert math["spent"] == pytest.approx(48)
    assert math["warning"] == (
        f"The budget of 40.00 GPU hours of label:team:math for {MIDDLE:%Y-%m} is used up: "
        "48.00 so far"
    )
    tight = made(client, of="owner:ann", unit="gpu_hours", amount=97)
    assert "will not last: 96.00 so far" in tight["warning"]
    tiny = made(client, of="owner:bob", unit="gpu_hours", amount=0.004)
    assert tiny["warning"].startswith("The budget of 0.004 GPU hours of owner:bob")
    assert client.delete(f"/v1/budgets/{tiny['id']}").status_code == 204
    assert client.get("/v1/budgets").json()["items"] == [tight, math, ann]
    assert client.get("/v1/costs").json()["budgets"] == [ann, math, tight]
    shown = client.get("/metrics").text
    assert 'automap_budget_spent_share{of="label:team:math",unit="gpu_hours"} 1.2' in shown
    assert 'automap_budget_forecast_share{of="owner:ann",unit="price"} 0.' in shown


def test_who_runs_a_job_is_told_of_their_budgets_alone(
    client: TestClient, database: Database
) -> None:
    ran(database, days_ago=1, hours=10, owner="local", team="math")
    for of in ("owner:local", "owner:ann", "label:team:math", "label:team:code"):
        made(client, of=of, amount=0.5)

    def told(**changes: object) -> list[str]:
        body = {"plan_id": str(add_plan(database)), "settings": run_settings(), **changes}
        response = client.post("/v1/jobs", json=body)
        assert response.status_code == 202, response.text
        job = response.json()
        assert client.get(f"/v1/jobs/{job['id']}").json()["warnings"] == job["warnings"]
        return [warning.split(" of ")[2].split(" for ")[0] for warning in job["warnings"]]

    assert told() == ["owner:local"]
    assert sorted(told(labels={"team": "math"})) == ["label:team:math", "owner:local"]
    assert told(labels={"team": "code"}) == ["owner:local"]  # nobody has used any of it
    begun = taken(database).job_id
    assert client.get(f"/v1/jobs/{begun}").json()["warnings"] == []


def test_a_budget_is_one_of_its_kind_and_goes(client: TestClient) -> None:
    budget = made(client, of="owner:ann", amount=1)
    problem(client.post("/v1/budgets", json={"of": "owner:ann", "amount": 2}), 409, "conflict")
    assert client.delete(f"/v1/budgets/{budget['id']}").status_code == 204
    problem(client.delete(f"/v1/budgets/{budget['id']}"), 404, "not-found")
    made(client, of="owner:ann", amount=2)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"of": "ann", "amount": 1}, "of"),
        ({"of": "owner:two words", "amount": 1}, "of"),
        ({"of": "label:team", "amount": 1}, "of"),
        ({"of": "owner:ann", "amount": 0}, "amount"),
        ({"of": "owner:ann", "amount": 1, "unit": "dollars"}, "unit"),
    ],
)
def test_a_budget_that_is_none_is_refused(client: TestClient, wrong: Json, field: str) -> None:
    found = problem(client.post("/v1/budgets", json=wrong), 422, "invalid-spec")
    assert found["errors"][0]["field"] == field
