"""What Prometheus is told, and who may ask."""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from automap.service.api import scrape
from automap.service.app import create_app
from automap.service.queues import job_queue, plan_queue
from automap.service.settings import Settings
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobRow, PlanRow
from automap.service.telemetry.metrics import Metrics, gpus_class
from tests.service.support.databases import settings_for, url_of
from tests.service.support.samples import infeasible_spec, tiny_spec
from tests.service.support.workers import add_job, add_plan

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(client: TestClient) -> Samples:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(response.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, tuple(sorted(labels.items()))), 0.0)


@pytest.fixture(autouse=True)
def _always_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "KEPT_SECONDS", -1.0)


def test_requests_are_counted_by_route_method_and_status(client: TestClient) -> None:
    client.get("/v1/clusters/first")
    client.get("/v1/clusters/second")
    client.get("/v1/made-up-by-a-client")
    client.request("BREW", "/v1/plans")
    samples = scraped(client)
    name = "automap_http_requests_total"
    assert value(samples, name, method="GET", route="/v1/clusters/{name}", status="404") == 2
    assert value(samples, name, method="GET", route="none", status="404") == 1
    assert value(samples, name, method="other", route="/v1/plans", status="405") == 1
    seconds = "automap_http_request_seconds_count"
    assert value(samples, seconds, method="GET", route="/v1/clusters/{name}") == 2
    assert value(samples, "automap_http_requests_in_flight") == 1
    assert "made-up" not in str(samples)


def test_queues_states_and_leases_are_those_of_the_database(
    client: TestClient, database: Database
) -> None:
    made = add_plan(database)
    add_job(database)
    add_job(database)
    expired = add_job(database)
    with database.transaction() as session:
        for _ in range(2):
            assert job_queue.claim(session, lease_seconds=60, runs_folder="/runs", new=True)
        lost = job_queue.claim(session, lease_seconds=60, runs_folder="/runs", new=True)
        assert lost is not None
        assert lost.job_id == expired
        ago = utc_now() - timedelta(hours=1)
        session.execute(
            update(JobRow).where(JobRow.id == expired).values(lease_expires_at=ago, attempts=2)
        )
        waiting = session.get_one(PlanRow, made)
        again = PlanRow(
            spec_name="waits", objective="throughput", spec=waiting.spec, created_at=ago, attempts=0
        )
        plan_queue.enqueue(session, again)
    samples = scraped(client)
    assert value(samples, "automap_database_up") == 1
    assert value(samples, "automap_plans", status="succeeded") == 4
    assert value(samples, "automap_plans", status="queued") == 1
    assert value(samples, "automap_jobs", status="starting") == 3
    assert value(samples, "automap_queue_depth", queue="plans") == 1
    assert value(samples, "automap_queue_depth", queue="jobs") == 0
    assert 3600 <= value(samples, "automap_queue_oldest_seconds", queue="plans") < 3700
    assert value(samples, "automap_leases", queue="jobs", state="held") == 2
    assert value(samples, "automap_leases", queue="jobs", state="expired") == 1
    assert value(samples, "automap_retried", queue="jobs") == 1
    assert value(samples, "automap_retried", queue="plans") == 0


def test_drifting_jobs_are_counted(client: TestClient, database: Database) -> None:
    job_id = add_job(database)
    assert value(scraped(client), "automap_jobs_drifting") == 0
    with database.transaction() as session:
        assert job_queue.claim(session, lease_seconds=60, runs_folder="/runs", new=True)
        _note_drift(session.get_one(JobRow, job_id))
    assert value(scraped(client), "automap_jobs_drifting") == 1


def _note_drift(row: JobRow) -> None:
    row.measured = {**row.measured, "suggestions": [{"event": 3, "seconds": 1.5}]}


def test_without_the_database_what_the_process_knows_is_told(
    client: TestClient, settings: Settings, tmp_path: object
) -> None:
    # A key of the environment: one of the database could not be looked up.
    nowhere = create_app(settings_for(f"sqlite:///{tmp_path}/empty.db", api_keys=("key",)))
    sent = {"Authorization": "Bearer key"}
    with_nothing = TestClient(nowhere, raise_server_exceptions=False, headers=sent)
    samples = scraped(with_nothing)
    assert value(samples, "automap_database_up") == 0
    assert ("automap_queue_depth", (("queue", "plans"),)) not in samples
    assert value(samples, "automap_planner_processes", serves="requests") == 1


def test_one_look_at_the_database_serves_several_scrapes(
    client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "KEPT_SECONDS", 60.0)
    assert value(scraped(client), "automap_plans", status="succeeded") == 0
    add_plan(database)
    assert value(scraped(client), "automap_plans", status="succeeded") == 0


@pytest.mark.slow_on("sqlite")
def test_planning_is_timed_by_size_and_objective_and_proofs_are_counted(live: TestClient) -> None:
    before = scraped(live)
    assert live.post("/v1/plans", json=tiny_spec()).status_code == 201
    refused = live.post("/v1/plans", json=infeasible_spec())
    assert refused.json()["type"] == "/problems/infeasible"
    after = scraped(live)

    def more(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    labels = {"task": "plan", "objective": "throughput", "gpus": "1-8"}
    assert more("automap_planning_seconds_count", **labels) == 2  # both clusters are small
    proved = [more("automap_plans_made_total", proof=proof) for proof in ("optimal", "gap")]
    assert sum(proved) == 1
    assert more("automap_plan_relative_gap_count") == proved[1]
    assert more("automap_plans_made_total", proof="infeasible") == 1
    assert value(after, "automap_planner_processes_busy", serves="requests") == 0
    assert value(after, "automap_planner_starts_total", serves="requests") >= 1


@pytest.mark.parametrize(("gpus", "name"), [(1, "1-8"), (8, "1-8"), (9, "9-64"), (513, "513+")])
def test_sizes_of_clusters_have_few_classes(gpus: int, name: str) -> None:
    assert gpus_class(gpus) == name


def test_with_keys_prometheus_needs_one(database: Database) -> None:
    app = create_app(settings_for(url_of(database), api_keys="first,second"))
    client = TestClient(app)
    assert client.get("/metrics").status_code == 401
    bearer = {"Authorization": "Bearer second"}
    assert client.get("/metrics", headers=bearer).status_code == 200


def test_two_services_in_one_process_count_for_themselves(database: Database) -> None:
    first, second = Metrics(), Metrics()
    first.attempts.labels("plans").inc()
    assert first.registry.get_sample_value("automap_attempts_total", {"queue": "plans"}) == 1
    assert second.registry.get_sample_value("automap_attempts_total", {"queue": "plans"}) is None


def test_openmetrics_is_spoken_if_asked_for(client: TestClient) -> None:
    response = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
