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

EVENT_SCHEMA = {
    "type": "object",
    "description": "One event; `data` is a JSON object with `time` and `type`",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"type": "object"},
        },
    },
}
_AT_ONCE = 500
_PING_SECONDS = 15
_FAREWELL_SECONDS = 1.0
"""What a stream has to end by itself when the service stops."""


def event_stream(
    database: Database, job_id: UUID, *, after: int, poll_seconds: float
) -> EventSourceResponse:
    """The events with a sequence number above `after`, each with its number as the event's id."""
    stopping = anyio.Event()
    events = _events(database, job_id, after, poll_seconds, stopping)
    return EventSourceResponse(
        events,
        ping=_PING_SECONDS,
        sep="\n",
        shutdown_event=stopping,
        shutdown_grace_period=_FAREWELL_SECONDS,
    )


async def _events(
    database: Database, job_id: UUID, after: int, poll_seconds: float, stopping: anyio.Event
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
        if stopping.is_set():
            yield ServerSentEvent(comment="the service stops; go on with Last-Event-ID", sep="\n")
            return
        if not rows:
            with anyio.move_on_after(poll_seconds):
                await stopping.wait()


def _next(database: Database, job_id: UUID, after: int) -> tuple[Sequence[JobEventRow], bool]:
    with database.reading() as session:
        try:
            over = job_records.is_over(session, job_id)
        except NotFoundError:  # deleted while it was followed
            return [], True
        # Asked after the end is known: what came before it is among them.
        return job_records.events_after(session, job_id, after, limit=_AT_ONCE), over
