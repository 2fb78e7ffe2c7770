"""A job's events as server-sent events: those there are, then each as it comes, until its end.

Such an answer may take days. It ends before, with a comment, when the service stops or the key that
it was asked for with opens no more; whoever asks again with `Last-Event-ID` is told what holds.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from uuid import UUID

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from automap.service.errors.domain import NotFoundError
from automap.service.storage import job_records
from automap.service.storage.database import Database
from automap.service.storage.tables import JobEventRow

EVENT_SCHEMA = {
    "type": "string",
    "description": "Events of the lines `id`, `event` and `data`, which is a JSON object with "
    "`time` and `type`",
}
_Look = tuple[Sequence[JobEventRow], bool]
"""The next events, and whether there will be no others."""
_AT_ONCE = 500
_PING_SECONDS = 15
_FAREWELL_SECONDS = 1.0
"""What a stream has to end by itself when the service stops."""


def event_stream(
    database: Database,
    job_id: UUID,
    *,
    after: int,
    poll_seconds: float,
    is_admitted: Callable[[], bool],
) -> EventSourceResponse:
    """The events with a sequence number above `after`, each with its number as the event's id.

    Args:
        database: It is looked at every `poll_seconds`.
        job_id: The job, which exists.
        after: The last number that the client has.
        poll_seconds: Between two looks.
        is_admitted: Whether the client may go on; asked at each look.
    """
    stopping = anyio.Event()

    def look(after: int) -> _Look | None:
        return _next(database, job_id, after) if is_admitted() else None

    events = _events(look, after, poll_seconds, stopping)
    return EventSourceResponse(
        events,
        ping=_PING_SECONDS,
        sep="\n",
        shutdown_event=stopping,
        shutdown_grace_period=_FAREWELL_SECONDS,
    )


async def _events(
    look: Callable[[int], _Look | None], after: int, poll_seconds: float, stopping: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    while True:
        found = await run_in_threadpool(look, after)
        if found is None:
            yield ServerSentEvent(comment="the key opens no more", sep="\n")
            return
        rows, over = found
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


def _next(database: Database, job_id: UUID, after: int) -> _Look:
    with database.reading() as session:
        try:
            over = job_records.is_over(session, job_id)
        except NotFoundError:  # deleted while it was followed
            return [], True
        # Asked after the end is known: what came before it is among them.
        return job_records.events_after(session, job_id, after, limit=_AT_ONCE), over
