"""The accounts: what is in the tables, while it runs and at the end."""

import contextlib
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from automap.planner import Plan
from automap.service.storage.database import Database
from automap.service.storage.stored_documents import readable
from automap.service.storage.tables import IdempotencyRow, JobEventRow, JobRow, PlanRow
from benchmarks.chaos.clients import Item
from benchmarks.chaos.ledger import Ledger

LOOK_SECONDS = 0.5
TABLES = (PlanRow, JobRow)


class Observer:
    """Looks again and again: what is over stays as it is, and nothing goes."""

    def __init__(self, url: str, ledger: Ledger) -> None:
        self._database = Database(url)
        self._ledger = ledger
        self._over: dict[UUID, tuple[str, datetime]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._database.dispose()

    def _look_on(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            # It is meant to be away now and then.
            with contextlib.suppress(SQLAlchemyError):
                self.look()

    def look(self) -> None:
        found: dict[UUID, tuple[str, datetime]] = {}
        with self._database.reading() as session:
            for table in TABLES:
                over = select(table.id, table.status, table.finished_at)
                for row_id, status, finished_at in session.execute(
                    over.where(table.finished_at.is_not(None))
                ):
                    found[row_id] = (status, finished_at)
        for row_id, before in self._over.items():
            if found.get(row_id) != before:
                now = found.get(row_id, "gone")
                self._ledger.violate(f"{row_id} was over, {before}, and then {now}")
        self._over = found


@dataclass(frozen=True, slots=True)
class Held:
    """The rows that were held when a fault struck: token and expiry of each."""

    rows: dict[UUID, tuple[UUID, datetime]]

    @classmethod
    def now(cls, database: Database) -> "Held":
        with database.reading() as session:
            rows = {
                row_id: (token, expires)
                for table in TABLES
                for row_id, token, expires in session.execute(
                    select(table.id, table.lease_token, table.lease_expires_at).where(
                        table.lease_token.is_not(None)
                    )
                )
            }
        return cls(rows)

    def left_alone(self, database: Database) -> set[UUID]:
        """Of these, those that nobody has renewed, taken over or ended since."""
        now = Held.now(database).rows
        return {row_id for row_id, lease in self.rows.items() if now.get(row_id) == lease}


def unfinished(database: Database) -> int:
    with database.reading() as session:
        counts = [
            session.scalar(
                select(func.count()).select_from(table).where(table.finished_at.is_(None))
            )
            for table in TABLES
        ]
    return sum(count or 0 for count in counts)


def audit(database: Database, ids: dict[Item, str], expected: Counter[str], ledger: Ledger) -> None:
    """Everything that was asked for is there once, done once and in order."""
    with database.reading() as session:
        plans = session.scalars(select(PlanRow)).all()
        jobs = session.scalars(select(JobRow)).all()
        keys = session.scalars(select(IdempotencyRow)).all()
        events = session.scalars(
            select(JobEventRow).order_by(JobEventRow.job_id, JobEventRow.sequence)
        ).all()
    rows: dict[str, set[str]] = {
        "plans": {str(row.id) for row in plans},
        "jobs": {str(row.id) for row in jobs},
    }
    for kind, number in expected.items():
        if len(rows[kind]) != number:
            ledger.violate(f"{number} {kind} were asked for, {len(rows[kind])} are there", at=0)
    for (kind, number), row_id in ids.items():
        if row_id not in rows[kind]:
            ledger.violate(f"{kind} {number}, {row_id}, is lost", at=0)
    for row in [*plans, *jobs]:
        _audit_row(row, ledger)
    for key in keys:
        if key.lease_token is not None:
            ledger.violate(f"the key {key.key} is still held by a request", at=0)
    for job in jobs:
        for problem in _wrong_with([event for event in events if event.job_id == job.id]):
            ledger.violate(f"job {job.id}: {problem}", at=_when(job))


def _audit_row(row: PlanRow | JobRow, ledger: Ledger) -> None:
    kind = "plan" if isinstance(row, PlanRow) else "job"
    if row.status != "succeeded":
        ledger.violate(f"{kind} {row.id} is {row.status}: {row.problem}", at=_when(row))
    if row.lease_token is not None:
        ledger.violate(f"{kind} {row.id} is still held", at=0)
    if isinstance(row, PlanRow) and row.plan is not None and readable(Plan, row.plan) is None:
        ledger.violate(f"plan {row.id}: its document is broken", at=_when(row))


def _when(row: PlanRow | JobRow) -> float:
    return 0 if row.finished_at is None else row.finished_at.timestamp()


def _wrong_with(events: list[JobEventRow]) -> list[str]:
    """Numbers without gaps, attempts in order, one end, and every printed event once."""
    wrong = []
    if [event.sequence for event in events] != list(range(1, len(events) + 1)):
        wrong.append(f"its events are {[event.sequence for event in events]}")
    documents: list[Any] = [event.document for event in events]
    statuses = [each for each in documents if each["type"] == "status"]
    attempts = [each["attempt"] for each in statuses if each.get("status") == "starting"]
    if attempts != list(range(1, len(attempts) + 1)):
        wrong.append(f"its attempts are {attempts}")
    ends = [each["status"] for each in statuses if each["status"] in ("succeeded", "failed")]
    if len(ends) != 1 or documents[-1].get("status") != ends[0]:
        wrong.append(f"its ends are {ends}, its last event {documents[-1]}")
    printed: dict[int, list[int]] = defaultdict(list)
    for each in documents:
        if "printed_by" in each:
            printed[each["printed_by"]].append(each["number"])
    for process, numbers in printed.items():
        if numbers != list(range(1, len(numbers) + 1)):
            wrong.append(f"of process {process} the events {numbers} were kept")
    return wrong


def overlaps(entries: list[dict[str, Any]], ledger: Ledger) -> int:
    """How many runs there were; no two of one job may have lived at the same time."""
    lives: dict[tuple[str, int], list[float]] = defaultdict(list)
    for entry in entries:
        lives[entry["job"], entry["process"]].append(entry["at"])
    per_job: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for (job, process), times in lives.items():
        per_job[job].append((min(times), max(times), process))
    offset = time.time() - time.monotonic()
    for job, spans in per_job.items():
        spans.sort()
        for (_, ended, one), (began, _, other) in pairwise(spans):
            if began < ended:
                ledger.violate(
                    f"job {job} was run by {one} and {other} at the same time", at=began + offset
                )
    return len(lives)
