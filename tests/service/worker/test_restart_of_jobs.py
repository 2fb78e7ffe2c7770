"""API and worker as `automap serve --with-worker` starts them, killed without warning."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.support.databases import Databases
from tests.service.support.processes import running
from tests.service.support.services import Service
from tests.service.support.workers import (
    TINY,
    Ray,
    eventually,
    run_settings,
    starts,
    worker_environment,
)

pytestmark = pytest.mark.many_processes


@pytest.mark.slow
def test_a_job_survives_the_service_that_took_it(
    databases: Databases, ray: Ray, tmp_path: Path
) -> None:
    if databases.backend != "sqlite":
        pytest.skip("tried with sqlite")
    environment = {
        **worker_environment(databases.create("survived"), tmp_path),
        **ray.environment,
    }
    first = Service(environment)
    worker = first.worker()
    body = {"spec": TINY, "settings": run_settings("held", iterations=6)}
    answer = first.client.post("/jobs", json=body)
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["id"]
    heard = []
    for number, event in first.events(job_id, after=0):
        heard.append((number, event))
        if event["type"] == "iteration" and event["iteration"] == 2:
            break
    first.kill()
    # Its worker sees that it is gone, lets go of the job, and ends; the run goes on.
    eventually(lambda: not running(worker))
    assert ray.statuses(job_id) == ["RUNNING"]  # type: ignore[arg-type]
    second = Service(environment)
    # One that dies alone is replaced.
    worker = second.worker()
    os.kill(worker, signal.SIGKILL)
    assert eventually(lambda: second.worker() != worker)
    (tmp_path / job_id / "go").touch()
    heard += list(second.events(job_id, after=heard[-1][0]))
    assert [number for number, _ in heard] == list(range(1, len(heard) + 1))
    assert [e["iteration"] for _, e in heard if e["type"] == "iteration"] == list(range(1, 7))
    assert heard[-1][1] == {**heard[-1][1], "type": "status", "status": "succeeded"}
    job = second.job(job_id)
    assert (job.status, job.attempts, starts(job)) == ("succeeded", 1, 1)
    plan = second.client.get(f"/plans/{job.plan_id}").json()
    assert [run["id"] for run in plan["jobs"]] == [job_id]
    log = second.client.get(f"/jobs/{job_id}/logs?tail=3").text
    assert "the stand-in runs tiny" in log
    # A stream that is open does not hold up the end of the service.
    worker = second.worker()
    second.kill(signal.SIGTERM)
    assert second.process.returncode == 0
    assert not running(worker)


def test_a_worker_without_ray_says_what_is_missing(tmp_path: Path) -> None:
    code = (
        "import importlib.util as util; found = util.find_spec; "
        "util.find_spec = lambda name, *a: None if name == 'ray' else found(name, *a); "
        "from automap.service.cli.main import main; main(['worker'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AUTOMAP_DATABASE_URL": f"sqlite:///{tmp_path}/a.db"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert "executor-cpu" in done.stderr
