"""Real workers, a real Ray, and a program that stands in for the executor at its process boundary.

Jobs that can run together do: Ray takes seconds to start one.
"""

import signal
import time
from pathlib import Path
from uuid import UUID

import pytest

from automap.service.queues import job_queue
from automap.service.storage import job_records
from automap.service.storage.database import Database
from tests.service.support.databases import url_of
from tests.service.support.processes import running
from tests.service.support.samples import Json
from tests.service.support.workers import (
    Ray,
    add_job,
    events,
    eventually,
    iterations,
    let_go,
    only,
    process_of,
    record,
    starts,
    wait_for,
    working,
)

pytestmark = pytest.mark.many_processes


def cancel(database: Database, job_id: UUID) -> None:
    with database.transaction() as session:
        assert job_queue.cancel(session, job_id)


@pytest.mark.slow_on("sqlite")
def test_jobs_end_as_their_runs_do(database: Database, ray: Ray, tmp_path: Path) -> None:
    only("postgresql", database)
    modes = ("ok", "fail", "refuse", "mute", "noisy", "die")
    ids = {mode: add_job(database, mode) for mode in modes}
    with working(url_of(database), tmp_path, ray, running_jobs=6):
        jobs = {
            mode: wait_for(database, job_id, "succeeded", "failed", seconds=120)
            for mode, job_id in ids.items()
        }
    problems = {mode: job.problem for mode, job in jobs.items() if job.problem is not None}
    assert {mode: problem.type for mode, problem in problems.items()} == {
        "fail": "/problems/run-failed",
        "refuse": "/problems/run-refused",
        "mute": "/problems/run-failed",
    }
    assert problems["fail"].detail == "actor.train: the loss is not finite"
    assert problems["refuse"].detail == "data.path: there is no such file"
    assert {mode: job.attempts for mode, job in jobs.items()} == dict.fromkeys(modes, 1) | {
        "die": 2
    }
    check_what_is_stored(database, ids, jobs["ok"].model_dump())
    check_the_noise(database, ids["noisy"])


def check_what_is_stored(database: Database, ids: dict[str, UUID], ok: Json) -> None:
    assert ok["report"] == {"iterations": 4, "name": "tiny"}
    assert ok["created_at"] < ok["started_at"] < ok["finished_at"]
    measured = {call["call"]: (call["count"], call["measured_seconds"]) for call in ok["calls"]}
    assert measured == {
        "actor.generate": (4, 0.01),
        "reward.forward": (4, 0.02),
        "actor.train": (4, 0.03),
    }
    assert iterations(database, ids["ok"]) == [1, 2, 3, 4]
    told = [e["status"] for e in events(database, ids["ok"]) if e["type"] == "status"]
    assert told == ["queued", "starting", "running", "succeeded"]
    # The second attempt goes on where the first was killed, in the same folder.
    assert iterations(database, ids["die"]) == [1, 2, 3, 4]
    reasons = [e["reason"] for e in events(database, ids["die"]) if "reason" in e]
    assert reasons == ["it was ended from outside (exit code -9)"]


def check_the_noise(database: Database, job_id: UUID) -> None:
    (metrics,) = (e for e in events(database, job_id) if "loss" in e.get("metrics", {}))
    assert metrics["metrics"] == {"loss": None, "text": "�?"}
    assert any(e.get("message") == "after half a line" for e in events(database, job_id))
    with database.reading() as session:
        log = job_records.log_tail(session, job_id, lines=10_000)
    for shown in ("the stand-in runs tiny\n", "�� no text �\n", "90%|█████\n", "half a line \n"):
        assert shown in log
    assert "AUTOMAP-EVENT {broken\n" in log
    assert log.count("no end") == 20_000
    assert '"type": "call"' not in log


@pytest.mark.slow_on("sqlite")
def test_a_killed_workers_run_goes_on_and_is_found_again(
    database: Database, ray: Ray, tmp_path: Path
) -> None:
    url = url_of(database)
    job_id = add_job(database, "held", iterations=8)
    drift = {"drift_window_iterations": 2, "drift_pause_iterations": 1}
    with (
        working(url, tmp_path, ray, **drift) as one,
        working(url, tmp_path, ray, **drift) as other,  # they race
    ):
        wait_for(database, job_id, "running")
        eventually(lambda: len(iterations(database, job_id)) == 3)
        eventually(lambda: record(database, job_id).suggestions)
        for worker in (one, other):
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    assert ray.statuses(job_id) == ["RUNNING"]
    let_go(database, job_id)
    with working(url, tmp_path, ray, **drift):
        job = wait_for(database, job_id, "succeeded")
    assert (job.attempts, starts(job), ray.statuses(job_id)) == (1, 1, ["SUCCEEDED"])
    # The stand-in takes half a second; the plan's iteration a tenth of that.
    (raised,) = job.suggestions
    assert raised.suggestion.replan is not None, raised.suggestion.problem
    assert raised.suggestion.drift.iteration_seconds.measured == 0.5
    assert [e["state"] for e in events(database, job_id) if e["type"] == "drift"] == ["raised"]
    # Nothing is lost, and nothing is told twice.
    assert iterations(database, job_id) == list(range(1, 9))
    assert all(call.count == 8 for call in job.calls)


@pytest.mark.slow_on("sqlite")
def test_a_stopped_worker_lets_go_and_a_lost_run_is_started_anew(
    database: Database, ray: Ray, tmp_path: Path
) -> None:
    only("postgresql", database)
    url = url_of(database)
    job_id = add_job(database, "held", iterations=8)
    with working(url, tmp_path, ray) as worker:
        wait_for(database, job_id, "running")
        eventually(lambda: len(iterations(database, job_id)) == 3)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=20) == 0
    assert ray.statuses(job_id) == ["RUNNING"]
    with database.reading() as session:  # at once, not after the lease
        assert job_queue.is_waiting(session, new=False)
    submission_id = record(database, job_id).submission_id
    assert submission_id is not None
    ray.forget(submission_id)  # as Ray does when it is restarted
    let_go(database, job_id)
    with working(url, tmp_path, ray):
        job = wait_for(database, job_id, "succeeded")
    assert (job.attempts, starts(job)) == (2, 2)
    assert job.submission_id == submission_id.removesuffix("1") + "2"
    # It resumed where the first attempt had stopped.
    assert iterations(database, job_id) == list(range(1, 9))


@pytest.mark.slow_on("sqlite")
def test_cancelled_runs_end_within_seconds(database: Database, ray: Ray, tmp_path: Path) -> None:
    only("sqlite", database)
    url = url_of(database)
    willing = add_job(database, "held")
    stubborn = add_job(database, "stubborn")
    waiting = add_job(database)
    with working(url, tmp_path, ray, running_jobs=2):
        for job_id in (willing, stubborn):
            wait_for(database, job_id, "running")
        processes = [process_of(database, job_id) for job_id in (willing, stubborn)]
        cancelled_at = time.monotonic()
        for job_id in (willing, stubborn, waiting):
            cancel(database, job_id)
        assert wait_for(database, waiting, "cancelled").attempts == 0
        wait_for(database, willing, "cancelled")
        wait_for(database, stubborn, "cancelled")
        # Two of them are what the deaf one was given to end by itself.
        assert time.monotonic() - cancelled_at < 15
        eventually(lambda: not any(map(running, processes)), seconds=2)
        assert ray.statuses(willing) == ray.statuses(stubborn) == ["STOPPED"]


@pytest.mark.slow_on("sqlite")
def test_a_job_is_cancelled_although_its_worker_died(
    database: Database, ray: Ray, tmp_path: Path
) -> None:
    only("sqlite", database)
    url = url_of(database)
    job_id = add_job(database, "held")
    with working(url, tmp_path, ray):
        wait_for(database, job_id, "running")
    cancel(database, job_id)
    assert record(database, job_id).cancelling
    # It is taken over even by a full house: a place for a new job is not needed for this one.
    other = add_job(database, "held")
    with working(url, tmp_path, ray, running_jobs=1):
        wait_for(database, job_id, "cancelled")
        cancel(database, other)
        wait_for(database, other, "cancelled")
    assert ray.statuses(job_id) == ["STOPPED"]
