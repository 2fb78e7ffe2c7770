"""One trace from the request for a job to what Ray runs for it."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.helpers.otlp import receiving
from tests.service.support.databases import Databases, migrated
from tests.service.support.logs import log_lines
from tests.service.support.servers import serving
from tests.service.support.workers import TINY, Ray, run_settings, wait_for, working

pytestmark = [pytest.mark.many_processes, pytest.mark.slow]


def test_a_request_is_traced_to_its_ray_job(databases: Databases, ray: Ray, tmp_path: Path) -> None:
    if databases.backend != "sqlite":
        pytest.skip("tried with sqlite")
    url = databases.create("traced")
    log = tmp_path / "worker.log"
    with (
        receiving() as receiver,
        serving(url, environment=receiver.environment) as server,
        working(url, tmp_path, ray, environment=receiver.environment, log=log),
    ):
        body = {"spec": TINY, "settings": run_settings()}
        headers = {"X-Request-ID": "traced-1"}
        posted = server.client.post("/v1/jobs", json=body, headers=headers).json()
        database = migrated(url)
        job = wait_for(database, UUID(posted["id"]), "succeeded")
        database.dispose()
        trace_id = receiver.wait_for("job")["job"].trace_id
        names = ("POST /v1/jobs", "plan", "planner.plan", "job", "submit")
        found = receiver.wait_for(*names, trace_id=trace_id)
    assert found["job"].parent_id == found["POST /v1/jobs"].span_id
    assert found["submit"].parent_id == found["job"].span_id
    assert found["submit"].service == "automap-worker"
    assert job.output is not None
    given = (Path(job.output) / "traceparent").read_text()
    assert given.split("-")[1:3] == [trace_id, found["submit"].span_id]
    of_job = [line for line in log_lines(log) if line.get("job_id") == str(job.id)]
    assert {line.get("request_id") for line in of_job} == {"traced-1"}
    submitted = [line for line in of_job if "submission_id" in line]
    assert {line["submission_id"] for line in submitted} == {job.submission_id}
