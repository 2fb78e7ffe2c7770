"""What happened in a job and what it printed. Whoever adds to it holds the lock on the job."""

from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from automap.service.schemas.documents import JsonObject
from automap.service.storage.database import utc_now
from automap.service.storage.tables import JobEventRow, JobLogRow

MAX_EVENTS = 1_000_000
"""Events of a job that are kept; what later ones measure is taken from them nevertheless."""
_ALWAYS = ("finished", "failed")
_PIECE_CHARACTERS = 2**16


def add_events(
    session: Session, job_id: UUID, events: Iterable[JsonObject], *, bounded: bool = False
) -> None:
    """Number the events and add them; if `bounded`, of too many only those that end a job."""
    sequence = next_number(session, job_id) - 1
    for event in events:
        if bounded and sequence >= MAX_EVENTS and event["type"] not in _ALWAYS:
            continue
        sequence += 1
        time = time_of(event)
        document: JsonObject = {**event, "time": time.isoformat()}
        session.add(JobEventRow(job_id=job_id, sequence=sequence, time=time, document=document))


def next_number(session: Session, job_id: UUID) -> int:
    """The number of the job's next event."""
    # The job's row is locked by whoever comes here: no one else counts at the same time.
    last = session.scalar(
        select(func.max(JobEventRow.sequence)).where(JobEventRow.job_id == job_id)
    )
    return (last or 0) + 1


def latest(session: Session, job_id: UUID) -> JsonObject:
    """The last event of a job; empty: it has none."""
    found = session.scalars(
        select(JobEventRow.document)
        .where(JobEventRow.job_id == job_id)
        .order_by(JobEventRow.sequence.desc())
        .limit(1)
    ).one_or_none()
    return found or {}


def last_of_attempt(session: Session, job_id: UUID, *types: str) -> JsonObject | None:
    """The last event of these types that the latest attempt of a job has sent."""
    documents = session.scalars(
        select(JobEventRow.document)
        .where(JobEventRow.job_id == job_id)
        .order_by(JobEventRow.sequence.desc())
        .limit(100)
    )
    for document in documents:
        if document["type"] in types:
            return document
        if document["type"] == "status" and document.get("status") == "starting":
            break
    return None


def time_of(event: JsonObject) -> datetime:
    """When the run says that it was; now, if it says nothing that can be read."""
    value = event.get("time")
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
        return utc_now() if time is None or time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return utc_now()


def add_text(session: Session, job_id: UUID, text: str, *, max_characters: int) -> None:
    """Add output, and forget the oldest of what is too much."""
    if not text:
        return
    last = session.scalar(
        select(func.max(JobLogRow.end_position)).where(JobLogRow.job_id == job_id)
    )
    end = last or 0
    for start in range(0, len(text), _PIECE_CHARACTERS):
        piece = text[start : start + _PIECE_CHARACTERS]
        end += len(piece)
        session.add(JobLogRow(job_id=job_id, end_position=end, text=piece))
    session.flush()
    old = JobLogRow.end_position <= end - max_characters
    session.execute(delete(JobLogRow).where(JobLogRow.job_id == job_id, old))
