"""A worker's part in the queue of jobs: claim, record, finish."""

from automap.service.queues import job_queue
from automap.service.queues.job_queue import JobClaim
from automap.service.runs.output import Printed
from automap.service.storage.database import Database
from tests.service.support.samples import Json


def claim(database: Database, *, lease_seconds: float = 60, new: bool = True) -> JobClaim | None:
    with database.transaction() as session:
        return job_queue.claim(session, lease_seconds=lease_seconds, runs_folder="/runs", new=new)


def taken(database: Database, *, lease_seconds: float = 60) -> JobClaim:
    held = claim(database, lease_seconds=lease_seconds)
    assert held is not None
    return held


def printed(*events: Json, text: str = "", end_offset: int = 1) -> Printed:
    return Printed(events=list(events), text=text, end_offset=end_offset)


def keep(
    database: Database, held: JobClaim, what: Printed, *, max_log_bytes: int = 2**20
) -> job_queue.Progress | None:
    with database.transaction() as session:
        return job_queue.record(session, held, what, lease_seconds=60, max_log_bytes=max_log_bytes)


def finish(database: Database, held: JobClaim, report: Json | None = None) -> None:
    keep(database, held, printed({"type": "finished", "report": report or {"seconds": 1.0}}))
    with database.transaction() as session:
        assert job_queue.succeed(session, held)
