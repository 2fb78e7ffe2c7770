"""Real worker processes and a real Ray for tests."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
import pytest

from automap.executor.settings import RunSettings
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.service.queues import job_queue, plan_queue
from automap.service.schemas.jobs import JobRecord
from automap.service.schemas.measurements import ProfileJobRecord
from automap.service.storage import job_records, plan_records
from automap.service.storage.database import Database
from automap.service.storage.tables import PlanRow
from benchmarks.chaos import run_stand_in
from tests.service.support.samples import Json

LEASE_SECONDS = 4.0
STAND_IN = Path(run_stand_in.__file__)
PROFILE_STAND_IN = Path(__file__).parent / "profile_stand_in.py"
TINY: Json = {
    "name": "tiny",
    "algorithm": "rloo",
    "models": {"actor": {"architecture": "tiny-llama"}, "reward": {"function": True}},
    "workload": {
        "prompts_per_iteration": 16,
        "responses_per_prompt": 2,
        "prompt_length": {"mean": 16, "max": 16},
        "response_length": {"mean": 16, "max": 32},
        "precision": "fp32",
        "kl": "none",
        "iterations": 4,
    },
    "cluster": {"pools": [{"name": "cpu", "gpu": "cpu", "num_nodes": 1, "gpus_per_node": 2}]},
}


def run_settings(mode: str = "ok", **changes: Any) -> Json:
    """Settings with which the stand-in behaves like this."""
    return {
        "data": {"path": f"/stand-in/{mode}.jsonl"},
        "functions": {"reward": {"path": "automap.executor.tiny.tasks:count_token"}},
        **changes,
    }


@dataclass(frozen=True, slots=True)
class Ray:
    """A Ray cluster's dashboard, and what lets others use it."""

    address: str
    token_file: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AUTOMAP_RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
        }

    def request(self, method: str, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token_file.read_text()}"}
        return httpx.request(method, f"{self.address}/api/{path}", headers=headers, trust_env=False)

    def statuses(self, job_id: UUID) -> list[str]:
        """Of all that was ever submitted for a job."""
        jobs = self.request("GET", "jobs/").json()
        return [job["status"] for job in jobs if str(job_id) in (job["submission_id"] or "")]

    def forget(self, submission_id: str) -> None:
        """As if it had never known this job, which it stops first."""
        self.request("POST", f"jobs/{submission_id}/stop")
        eventually(lambda: self.request("DELETE", f"jobs/{submission_id}").status_code == 200)


def start_ray(folder: Path) -> Ray:
    """In a process of its own: it marks its environment, which then is not ours."""
    code = "import sys; from pathlib import Path; "
    code += "from automap.service.worker.local_ray import LocalRay; "
    code += "LocalRay(Path(sys.argv[1])).ensure()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, folder], env=environment, check=True, timeout=120)
    known = json.loads((folder / "address.json").read_text())
    return Ray(address=known["url"], token_file=folder / "token")


def stop_ray(folder: Path) -> None:
    code = "import sys; from pathlib import Path; "
    code += "from automap.service.worker.local_ray import LocalRay; "
    code += "LocalRay(Path(sys.argv[1])).stop()"
    subprocess.run([sys.executable, "-c", code, folder], check=True, timeout=120)


def eventually(true: Callable[[], Any], *, seconds: float = 60) -> Any:
    """What it returns once that is something."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def worker_environment(url: str, folder: Path, **settings: object) -> dict[str, str]:
    return {
        **os.environ,
        "AUTOMAP_DATABASE_URL": url,
        "AUTOMAP_LEASE_SECONDS": str(LEASE_SECONDS),
        "AUTOMAP_POLL_SECONDS": "0.2",
        "AUTOMAP_RUNS_FOLDER": str(folder),
        "AUTOMAP_RUN_COMMAND": f"{sys.executable} {STAND_IN}",
        "AUTOMAP_PROFILE_COMMAND": f"{sys.executable} {PROFILE_STAND_IN}",
        "AUTOMAP_RUNNING_JOBS": "4",
        "AUTOMAP_STOP_SECONDS": "2",
        **{f"AUTOMAP_{name.upper()}": str(value) for name, value in settings.items()},
    }


@contextmanager
def working(
    url: str,
    folder: Path,
    ray: Ray,
    *,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, killed at the end if it still is there."""
    variables = {**worker_environment(url, folder, **settings), **ray.environment}
    with ExitStack() as stack:
        to = None if log is None else stack.enter_context(log.open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", "automap.service.cli.main", "worker"],
            env={**variables, **(environment or {})},
            stderr=to,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@cache
def tiny_plan() -> Plan:
    return make_plan(JobSpec.model_validate(TINY))


def add_plan(database: Database, plan: Plan | None = None) -> UUID:
    """A plan that was made."""
    plan = plan or tiny_plan()
    with database.transaction() as session:
        row = plan_records.new_plan_row(plan.spec, cluster_name=None)
        plan_queue.store_succeeded(session, row, plan.model_dump(mode="json", by_alias=True))
        session.flush()
        return row.id


def add_job(database: Database, mode: str = "ok", *, owner: str = "local", **changes: Any) -> UUID:
    """A queued job of a plan of its own."""
    plan_id = add_plan(database)
    with database.transaction() as session:
        plan = session.get_one(PlanRow, plan_id)
        settings = RunSettings.model_validate(run_settings(mode, **changes))
        row = job_records.new_job_row(plan, settings, owner=owner)
        job_queue.enqueue(session, row)
        return row.id


def record(database: Database, job_id: UUID) -> JobRecord:
    with database.reading() as session:
        found = job_records.find_job(session, job_id)
    assert isinstance(found, JobRecord | ProfileJobRecord)
    return cast(JobRecord, found)  # of a profile a test asks what both have


def events(database: Database, job_id: UUID) -> list[Json]:
    with database.reading() as session:
        rows = job_records.events_after(session, job_id, 0, limit=10_000)
        assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
        return [dict(row.document) for row in rows]


def wait_for(database: Database, job_id: UUID, *statuses: str, seconds: float = 120) -> JobRecord:
    deadline = time.monotonic() + seconds
    while (job := record(database, job_id)).status not in statuses:
        assert time.monotonic() < deadline, f"the job is still {job.status}"
        assert job.finished_at is None, job.problem
        time.sleep(0.05)
    return job


def starts(job: JobRecord) -> int:
    """How often the stand-in was started for a job."""
    assert job.output is not None
    return len((Path(job.output) / "starts").read_text().splitlines())


def only(backend: str, database: Database) -> None:
    """What the database has no part in is tried with one; a job takes seconds to start."""
    if database.engine.dialect.name != backend:
        pytest.skip(f"tried with {backend}")


def iterations(database: Database, job_id: UUID) -> list[int]:
    return [e["iteration"] for e in events(database, job_id) if e["type"] == "iteration"]


def let_go(database: Database, job_id: UUID) -> None:
    """Let a held run finish."""
    output = record(database, job_id).output
    assert output is not None
    (Path(output) / "go").touch()


def process_of(database: Database, job_id: UUID) -> int:
    """The process of a job's last attempt."""
    output = record(database, job_id).output
    assert output is not None
    file = Path(output) / "starts"
    eventually(file.exists)
    return int(file.read_text().splitlines()[-1].split()[0])
