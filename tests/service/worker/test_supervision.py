"""Jobs in a worker's hands when something that they need goes away for a moment."""

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from automap.service.storage.database import Database
from automap.service.worker.log_follower import LogFollower
from automap.service.worker.ray_jobs import RayJobs, RayUnavailableError, Submission
from automap.service.worker.supervision import Supervision
from benchmarks.chaos import ray_stand_in
from tests.service.support.databases import settings_for, url_of
from tests.service.support.job_claims import taken
from tests.service.support.servers import free_port
from tests.service.support.workers import STAND_IN, add_job, eventually, only, wait_for


class Head:
    """A stand-in for the job server of a Ray head."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        command = [sys.executable, ray_stand_in.__file__, "--port", str(port)]
        self.process = subprocess.Popen([*command, "--folder", str(folder)])
        eventually(self._answers)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.address}/api/version", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    head = Head(tmp_path / "ray")
    yield head
    head.process.kill()
    head.process.wait()


def test_a_log_that_was_lost_can_be_closed(head: Head) -> None:
    ray = RayJobs(head.address)
    ray.submit(Submission("long", "echo begun; exec sleep 60", {"a": b""}, stop_seconds=1))
    job = ray.find("long")
    assert job is not None
    follower = LogFollower(ray, "long", job, skip=0)
    assert follower.take(seconds=10) == b"begun\n"
    head.process.kill()
    with pytest.raises(RayUnavailableError):
        follower.take(seconds=10)
    follower._thread.join(timeout=10)
    follower.close()


@pytest.mark.slow_on("sqlite")
def test_a_disk_that_is_full_for_a_moment_costs_no_more_than_that(
    database: Database, head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only("sqlite", database)
    job_id = add_job(database)
    settings = settings_for(
        url_of(database), run_command=f"{sys.executable} {STAND_IN}", runs_folder=tmp_path / "runs"
    )
    held = taken(database)
    has_room = threading.Event()

    def connect() -> RayJobs:
        """As a Ray of our own does, which writes down where it is."""
        if not has_room.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return RayJobs(head.address)

    supervision = Supervision(database, settings, held, connect=connect, stopping=threading.Event())
    # And nothing is written to put a submission together.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    thread = threading.Thread(target=supervision.run)
    thread.start()
    time.sleep(1)
    assert thread.is_alive()
    has_room.set()
    job = wait_for(database, job_id, "succeeded")
    thread.join(timeout=10)
    assert job.attempts == 1
