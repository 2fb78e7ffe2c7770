"""Measurements run by real workers on a real Ray; a stand-in plays the profiler."""

import sys
from pathlib import Path

import pytest

from automap.service.queues import job_queue
from automap.service.storage import profiles
from automap.service.storage.database import Database
from tests.service.support.databases import url_of
from tests.service.support.measured_jobs import add_measurement
from tests.service.support.workers import (
    Ray,
    add_job,
    eventually,
    only,
    record,
    starts,
    wait_for,
    working,
)

pytestmark = pytest.mark.many_processes


@pytest.mark.slow
def test_measurements_run_one_after_another_and_go_on_after_a_kill(
    database: Database, ray: Ray, tmp_path: Path
) -> None:
    killed = add_measurement(database, ranks=2)
    waited = add_measurement(database, ranks=1, make_default=True)
    refused = add_measurement(database, ranks=4)
    run = add_job(database)
    with working(url_of(database), tmp_path, ray):
        wait_for(database, killed, "succeeded")
        wait_for(database, waited, "succeeded")
        problem = wait_for(database, refused, "failed").problem
        assert wait_for(database, run, "succeeded").started_at is not None
    first, second, last = (record(database, each) for each in (killed, waited, run))
    assert (first.attempts, starts(first)) == (2, 2)
    assert [table.done for table in first.tables] == [5]  # it went on where it was
    assert starts(second) == 1
    # Though there were four places, nothing ran beside a measurement.
    assert first.finished_at <= second.started_at
    assert second.finished_at <= last.started_at
    assert problem is not None
    assert (problem.type, problem.detail) == (
        "/problems/profile-refused",
        "no node has a cuda device to measure",
    )
    assert first.profiles[0].version != second.profiles[0].version


@pytest.mark.slow
def test_a_measurement_is_cancelled(database: Database, ray: Ray, tmp_path: Path) -> None:
    job_id = add_measurement(database, ranks=3)
    with working(url_of(database), tmp_path, ray):
        wait_for(database, job_id, "running")
        eventually(lambda: record(database, job_id).tables)
        with database.transaction() as session:
            job_queue.cancel(session, job_id)
        wait_for(database, job_id, "cancelled")
    assert ray.statuses(job_id) == ["STOPPED"]


@pytest.mark.slow
def test_the_profiler_itself_runs_as_a_job(database: Database, ray: Ray, tmp_path: Path) -> None:
    only("sqlite", database)
    job_id = add_measurement(database, ranks=1, budget_seconds=4.0)
    command = f"{sys.executable} -m automap.profiler.job"
    with working(url_of(database), tmp_path, ray, profile_command=command):
        job = wait_for(database, job_id, "succeeded", seconds=400)
    assert {table.table.partition(": ")[0] for table in job.tables} == {"cpu"}
    with database.reading() as session:
        profile = profiles.find(session, job.profiles[0].version)
    assert profile.job_id == job_id
    assert len(profile.measurements) == sum(profile.shapes.values()) > 0
    assert profile.cluster == job.cluster is not None
    assert [pool.profile for pool in job.cluster.pools] == [profile.version]
