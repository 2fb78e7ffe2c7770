"""What routes ask for: the parts of the service, its database, a session, headers they share."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from anyio import from_thread
from fastapi import Depends, Header, Request
from sqlalchemy.orm import Session

from automap.service.api.short_reads import ShortReads
from automap.service.storage.database import Database
from automap.service.use_cases.service_parts import ServiceParts


async def _service(request: Request) -> ServiceParts:
    """The service, for a request that is ended when its client leaves."""
    service: ServiceParts = request.app.state.service

    def is_wanted() -> bool:
        return not from_thread.run(request.is_disconnected)

    caller = getattr(request.state, "caller", service.caller)
    return replace(service, is_wanted=is_wanted, caller=caller)


# Neither waits for anything: on the event loop they cost no thread.
ServiceDep = Annotated[ServiceParts, Depends(_service)]


async def _database(service: ServiceDep) -> Database:
    return service.database


DatabaseDep = Annotated[Database, Depends(_database)]


async def _short_reads(request: Request) -> ShortReads:
    reads: ShortReads = request.app.state.short_reads
    return reads


ShortReadsDep = Annotated[ShortReads, Depends(_short_reads)]


def _write_session(database: DatabaseDep) -> Iterator[Session]:
    with database.transaction() as session:
        yield session


def _read_session(database: DatabaseDep) -> Iterator[Session]:
    with database.reading() as session:
        yield session


# scope="function": the commit precedes the response, so that a failed one is not answered 2xx.
SessionDep = Annotated[Session, Depends(_write_session, scope="function")]
ReadSessionDep = Annotated[Session, Depends(_read_session, scope="function")]

_KeyHeader = Annotated[
    str | None,
    Header(
        description="Any text of your own; the same key and request give the same answer",
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]+$",
    ),
]


def _own_key(request: Request, idempotency_key: _KeyHeader = None) -> str | None:
    """The idempotency key as that of its caller: others may use the same text."""
    sent: bytes | None = getattr(request.state, "key_digest", None)
    if idempotency_key is None or sent is None:
        return idempotency_key
    return hashlib.sha256(sent + idempotency_key.encode()).hexdigest()


KeyDep = Annotated[str | None, Depends(_own_key)]
PreferHeader = Annotated[
    str | None,
    Header(description="`respond-async`: queue the job and answer 202", max_length=200),
]
