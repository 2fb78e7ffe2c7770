"""A job's events as server-sent events: those there are, then each as it comes, until its end."""

import json
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from automap.service.errors.domain import NotFoundError
from automap.service.storage import job_records
from automap.service.storage.database import Database
from automap.service.storage.tables import JobEventRow

_AT_ONCE = 500
_PING_SECONDS = 15


def event_stream(
    database: Database, job_id: UUID, *, after: int, poll_seconds: float
) -> EventSourceResponse:
    """The events with a sequence number above `after`, each with its number as the event's id."""
    events = _events(database, job_id, after, poll_seconds)
    return EventSourceResponse(events, ping=_PING_SECONDS, sep="\n")


async def _events(
    database: Database, job_id: UUID, after: int, poll_seconds: float
) -> AsyncIterator[ServerSentEvent]:
    while True:
        rows, over = await run_in_threadpool(_next, database, job_id, after)
        for row in rows:
            after = row.sequence
            yield ServerSentEvent(
                data=json.dumps(row.document),
                event=str(row.document["type"]),
                id=str(after),
                sep="\n",
            )
        if over and not rows:
            return
        if not rows:
            await anyio.sleep(poll_seconds)


def _next(database: Database, job_id: UUID, after: int) -> tuple[Sequence[JobEventRow], bool]:
    with database.reading() as session:
        try:
            over = job_records.is_over(session, job_id)
        except NotFoundError:  # deleted while it was followed
            return [], True
        # Asked after the end is known: what came before it is among them.
        return job_records.events_after(session, job_id, after, limit=_AT_ONCE), over
