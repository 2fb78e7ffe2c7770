"""That the chaos command sees what must never be, and that a small run of it sees nothing."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import update

from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import JobEventRow, PlanRow
from automap.service.worker.local_ray import LocalRay
from automap.service.worker.ray_jobs import RayJobs, Submission
from benchmarks.chaos.accounts import Held, Observer, _wrong_with, audit, overlaps
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.leftovers import held_in
from tests.service.support.databases import migrated, url_of
from tests.service.support.job_claims import finish, taken
from tests.service.support.workers import add_job, eventually, record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return migrated(f"sqlite:///{tmp_path}/automap.db")


def lived(job: str, process: int, *times: float) -> list[dict[str, Any]]:
    return [{"job": job, "process": process, "what": "lives", "at": at} for at in times]


def events(*documents: dict[str, Any]) -> list[JobEventRow]:
    return [JobEventRow(sequence=n, document=each) for n, each in enumerate(documents, start=1)]


def status(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "status", "status": name, **more}


def printed(process: int, number: int) -> dict[str, Any]:
    return {"type": "call", "printed_by": process, "number": number}


def test_two_runs_of_a_job_at_once_are_seen() -> None:
    ledger = Ledger()
    one_after_the_other = [*lived("a", 1, 0.0, 1.0), *lived("a", 2, 1.5, 3.0)]
    beside = lived("b", 3, 0.5, 2.0)
    assert overlaps([*one_after_the_other, *beside], ledger) == 3
    assert ledger.violations == []
    overlaps([*one_after_the_other, *lived("a", 4, 2.9)], ledger)
    assert [violation.what for violation in ledger.violations] == [
        "job a was run by 2 and 4 at the same time"
    ]


def test_events_that_were_lost_doubled_or_came_after_the_end_are_seen() -> None:
    begun = [status("queued"), status("starting", attempt=1), status("running")]
    again = [status("starting", attempt=2)]
    end = [status("succeeded")]
    assert _wrong_with(events(*begun, printed(1, 1), *again, printed(2, 1), *end)) == []
    for wrong in (
        [*begun, printed(1, 1), printed(1, 1), *end],
        [*begun, printed(1, 2), *end],
        [*begun, *begun, *end],
        [*begun, *end, *end],
        [*begun, *end, printed(1, 1)],
        begun,
    ):
        assert len(_wrong_with(events(*wrong))) >= 1, wrong
    gap = events(*begun, *end)
    gap[1].sequence = 7
    assert len(_wrong_with(gap)) == 1


def test_rows_that_were_lost_are_not_done_or_change_afterwards_are_seen(
    database: Database,
) -> None:
    ledger = Ledger()
    job_id = add_job(database)
    observer = Observer(url_of(database), ledger)
    held = taken(database)
    before = Held.now(database)
    assert before.left_alone(database) == {job_id}
    finish(database, held)
    assert before.left_alone(database) == set()
    observer.look()
    ids = {("jobs", 0): str(job_id), ("plans", 0): str(record(database, job_id).plan_id)}  # type: ignore[union-attr]
    audit(database, ids, {"plans": 1, "jobs": 1}, ledger)  # type: ignore[arg-type]
    observer.look()
    assert ledger.violations == []
    with database.transaction() as session:
        session.execute(update(PlanRow).values(finished_at=utc_now()))
    observer.look()
    add_job(database)
    audit(database, {("plans", 1): str(uuid4())}, {"plans": 1, "jobs": 2}, ledger)  # type: ignore[arg-type]
    what = " ".join(violation.what for violation in ledger.violations)
    for sign in ("was over", "1 plans were asked for, 2", "is lost", "is queued"):
        assert sign in what
    observer._database.dispose()
    database.dispose()


def test_what_the_audit_counts_is_attributed_to_the_fault_before_it() -> None:
    ledger = Ledger()
    struck = ledger.strike("kill")
    ledger.violate("later")
    ledger.violate("later")
    ledger.violate("in the end", at=0)
    ledger.violate("before", at=struck.began - 1)
    assert [violation.during for violation in ledger.violations] == [
        "kill",
        "at the end",
        "at the end",
    ]
    assert ledger.table().row_count == 2


@pytest.mark.slow
@pytest.mark.many_processes
@pytest.mark.skipif(find_spec("ray") is None, reason="the worker needs Ray")
def test_what_a_real_ray_still_holds_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # put back afterwards: it sets them for its process
    ray = LocalRay(tmp_path)
    try:
        url, token = ray.ensure(), ray.token()
        assert held_in(url, token) == []
        group = "ray.util.placement_group([{'CPU': 1}], lifetime='detached').ready()"
        command = f'{sys.executable} -c "import ray; ray.init(); ray.get({group})"'
        RayJobs(url).submit(Submission("held", command, files={"a": b""}, stop_seconds=1))
        eventually(lambda: [each[:16] for each in held_in(url, token)] == ["placement_group "])
    finally:
        ray.stop()


@pytest.mark.slow
@pytest.mark.many_processes
@pytest.mark.skipif(find_spec("ray") is None, reason="the worker needs Ray")
@pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])
def test_a_small_run_loses_nothing(database_kind: str) -> None:
    size = ["--jobs", "10", "--plans", "15", "--faults", "5", "--seed", "1"]
    short = ["--lease-seconds", "3", "--away-seconds", "6"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", "--database", database_kind, *size, *short],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
