"""A worker without a cluster: it starts a Ray on this machine when a job needs one."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from automap.service.storage.database import Database
from automap.service.worker import local_ray
from automap.service.worker.local_ray import LocalRay
from automap.service.worker.ray_jobs import RayUnavailableError
from tests.service.support.databases import migrated
from tests.service.support.processes import running
from tests.service.support.workers import (
    add_job,
    eventually,
    iterations,
    let_go,
    process_of,
    record,
    starts,
    wait_for,
    worker_environment,
)

pytestmark = pytest.mark.many_processes


@contextmanager
def working_alone(url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = worker_environment(url, folder / "runs", ray_folder=folder / "ray")
    for name in ("RAY_ADDRESS", "AUTOMAP_RAY_ADDRESS"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "automap.service.cli.main", "worker"], env=environment, cwd=folder
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stopped(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=120) == 0


def processes_of(ray_folder: str) -> list[int]:
    """All that were started with Ray's temporary folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(ray_folder) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_a_ray_that_is_too_busy_to_answer_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # put back afterwards: it sets them for its process
    busy = subprocess.Popen(["sleep", "60"])
    ticks = Path(f"/proc/{busy.pid}/stat").read_text().rpartition(")")[2].split()[19]
    known = {
        "url": "http://127.0.0.1:9",
        "pid": busy.pid,
        "start_ticks": int(ticks),
        "folder": str(tmp_path / "temporary"),
    }
    (tmp_path / "address.json").write_text(json.dumps(known))
    assert LocalRay(tmp_path).ensure() == known["url"]  # whoever connects there tries again
    assert busy.poll() is None
    LocalRay(tmp_path).stop()
    busy.wait(timeout=5)  # who reaped it, stop or we, is left open
    assert not (tmp_path / "address.json").exists()


def test_the_folders_of_a_local_ray_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray opens its folder to everyone, as the program in its place does here."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # put back afterwards: it sets them for its process
    modes: list[int] = []
    command = local_ray._command

    def fake(ports: list[int], temporary: Path) -> list[str]:
        asked = command(ports, temporary)
        assert "--node-ip-address=127.0.0.1" in asked
        (given,) = (Path(each[11:]) for each in asked if each.startswith("--temp-dir="))
        given.mkdir(parents=True)
        given.chmod(0o777)
        modes.extend(each.stat().st_mode & 0o077 for each in given.parents if each != given)
        return ["false"]

    monkeypatch.setattr(local_ray, "_command", fake)
    with pytest.raises(RayUnavailableError):
        LocalRay(tmp_path / "ray").ensure()
    assert modes[0] == 0  # none but us gets into the folder around it
    assert (tmp_path / "ray").stat().st_mode & 0o077 == 0


def held_with_three_iterations(database: Database, job_id: UUID) -> bool:
    return iterations(database, job_id) == [1, 2, 3]


@pytest.mark.slow
def test_a_local_ray_outlives_its_worker_and_a_run_outlives_its_ray(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/automap.db"
    database = migrated(url)
    address = tmp_path / "ray" / "address.json"
    with working_alone(url, tmp_path) as worker:
        assert not address.exists()  # none is started for nothing
        job_id = add_job(database, "held", iterations=5)
        wait_for(database, job_id, "running")
        eventually(lambda: held_with_three_iterations(database, job_id))
        run = process_of(database, job_id)
        stopped(worker)
    assert running(run)
    first = json.loads(address.read_text())
    assert running(first["pid"])  # the job needs it
    assert Path(first["folder"]).stat().st_mode & 0o077 == 0
    environment = Path(f"/proc/{run}/environ").read_bytes().split(b"\0")
    assert f"TMPDIR={first['folder']}".encode() in environment  # so its files go with it
    assert f"AUTOMAP_LOCK_FOLDER={tempfile.gettempdir()}".encode() in environment
    token = tmp_path / "ray" / "token"
    assert token.stat().st_mode & 0o077 == 0
    with working_alone(url, tmp_path) as worker:
        # The run dies with its Ray; the worker starts another and the run there resumes.
        os.kill(first["pid"], signal.SIGKILL)
        eventually(lambda: not running(run))
        let_go(database, job_id)
        job = wait_for(database, job_id, "succeeded", seconds=240)
        second = json.loads(address.read_text())
        assert second["pid"] != first["pid"]
        assert processes_of(first["folder"]) == []
        stopped(worker)
    assert (job.attempts, starts(job)) == (2, 2)
    assert iterations(database, job_id) == [1, 2, 3, 4, 5]
    assert record(database, job_id).problem is None
    # Nobody needs it now: nothing is left of it.
    assert processes_of(second["folder"]) == []
    assert not Path(second["folder"]).exists()
    assert not address.exists()
    database.dispose()
