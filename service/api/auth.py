"""Who sends a request, by its key: an owner, with scopes and limits.

Keys are asked for where the environment names some, or the database has ever had one: a key that
was revoked, or has expired, does not open the service again.
"""

import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from starlette.concurrency import run_in_threadpool

from automap.service.api.key_limits import KeyLimits
from automap.service.api.refusals import EndedKeyError, MissingScopeError, UnauthorizedError
from automap.service.api.scopes import LONG_READ, scope_of
from automap.service.schemas.access import ApiKeyRecord
from automap.service.settings import Settings
from automap.service.storage import api_keys
from automap.service.storage.database import Database
from automap.service.storage.tables import JobRow, PlanRow
from automap.service.use_cases.service_parts import Caller

log = logging.getLogger(__name__)
_bearer = HTTPBearer(
    auto_error=False,
    description="A key of this service; it asks for none on loopback until there is one",
)
_ENVIRONMENT = "environment-"
"""What the ids of keys begin with that no database has."""
_LOOK_SECONDS = 2.0
"""So long it may take until a service without keys notices the first one."""


_AT_ONCE = ("/v1/plans", "/v1/plans/what-if")
"""These plan at once, unless the client prefers to be answered before."""
_QUEUEING = (*_AT_ONCE, "/v1/jobs", "/v1/profiles")


class Keys:
    """The keys of a service: those of its environment, and those in its database."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._given = [_digest(key.get_secret_value()) for key in settings.api_keys]
        self._exist = bool(self._given)
        self._looked_at = float("-inf")

    @property
    def are_asked_for(self) -> bool:
        """Whether requests need a key, as far as is known without a look."""
        return self._exist

    @property
    def is_recent(self) -> bool:
        """Whether `are_asked_for` can be relied on."""
        return self._exist or time.monotonic() - self._looked_at < _LOOK_SECONDS

    def look_again(self) -> None:
        """Rely on nothing that was known: a key is being made."""
        self._looked_at = float("-inf")

    def look(self, *, again: bool = False) -> bool:
        """Whether requests need a key; asks the database if need be, or `again`."""
        if not self.is_recent or (again and not self._exist):
            try:
                with self._database.reading() as session:
                    self._exist = api_keys.is_any(session)
            except OperationalError:
                if self._looked_at == float("-inf"):
                    raise
                # Without the database what was last known holds; a key in it would be asked for.
            self._looked_at = time.monotonic()
        return self._exist

    def waiting(self, owner: str) -> int:
        """Plans and jobs of the owner that nobody has begun."""
        with self._database.reading() as session:
            return sum(
                session.scalar(
                    select(func.count())
                    .select_from(table)
                    .where(table.status == "queued", table.owner == owner)
                )
                or 0
                for table in (PlanRow, JobRow)
            )

    def caller_of(self, sent: str | None) -> Caller:
        """Who sends this key, or none.

        Raises:
            UnauthorizedError: a key is asked for, and this is none of the service's.
            EndedKeyError: this one was revoked, or has expired.
        """
        # Who has a key sends it from its first moment on, and is to be known by it.
        if not self.look(again=sent is not None):
            return Caller()
        if sent is None:
            raise UnauthorizedError
        return self._of_environment(sent) or self._stored(sent)

    def still_admit(self, caller: Caller) -> bool:
        """Whether who was let in would be again: for answers that take hours."""
        if caller.key_id is None:
            return not self.look()
        if caller.key_id.startswith(_ENVIRONMENT):
            return True  # as long as this process lives
        with self._database.reading() as session:
            return api_keys.opens(session, UUID(caller.key_id))

    def _of_environment(self, sent: str) -> Caller | None:
        """Digests of one length leave nothing to time."""
        given = _digest(sent)
        known = [hmac.compare_digest(given, each) for each in self._given]
        return Caller(key_id=f"{_ENVIRONMENT}{known.index(True) + 1}") if any(known) else None

    def _stored(self, sent: str) -> Caller:
        with self._database.reading() as session:
            key = api_keys.find_sent(session, sent)
        if key is None:
            raise UnauthorizedError
        if not key.usable:
            sender = Caller(owner=key.owner, scopes=frozenset(), key_id=str(key.id))
            raise EndedKeyError("expired" if key.revoked_at is None else "revoked", sender)
        self._note_use(key)
        return Caller(owner=key.owner, scopes=frozenset(key.scopes), key_id=str(key.id))

    def _note_use(self, key: ApiKeyRecord) -> None:
        if not api_keys.is_use_to_be_noted(key):
            return
        try:
            with self._database.transaction() as session:
                api_keys.note_use(session, key.id)
        except OperationalError as error:  # reading goes on while nothing can be written
            log.warning("the use of key %s is not noted: %s", key.id, error)


async def admit(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> AsyncIterator[None]:
    """Let a request pass whose key opens, may do this, and has not asked for too much."""
    keys: Keys = request.app.state.keys
    sent = None if credentials is None else credentials.credentials
    if keys.is_recent and not keys.are_asked_for and sent is None:
        caller = Caller()
    else:
        try:
            caller = await run_in_threadpool(keys.caller_of, sent)
        except EndedKeyError as error:
            request.state.caller = error.sender  # for the logs
            raise
    request.state.caller = caller
    if caller.key_id is None:
        yield
        return
    request.state.key_digest = _digest(sent or "")
    scope = scope_of(request.method, request.scope["route"].path_format)
    limits: KeyLimits = request.app.state.limits
    limits.count_request(caller.key_id)
    if scope not in caller.scopes:
        raise MissingScopeError(scope, caller.scopes)
    if _may_queue(request):
        limits.check_queues(await run_in_threadpool(keys.waiting, caller.owner))
    if not _plans_now(request):
        yield
        return
    with limits.planning(caller.key_id):
        yield


def _may_queue(request: Request) -> bool:
    """Whether a plan or job is put into a queue, if the request is sound."""
    route = request.scope["route"].path_format
    if request.method != "POST" or route not in _QUEUEING:
        return False
    return route not in _AT_ONCE or "respond-async" in request.headers.get("prefer", "").lower()


def _plans_now(request: Request) -> bool:
    """Whether a planner works until the request is answered, if it is sound.

    What the queue takes is bounded there, and labels, clusters and deletions need no planner.
    """
    route = request.scope["route"].path_format
    if route == LONG_READ:
        return True
    planning = scope_of(request.method, route) == "plan" and not route.startswith("/v1/clusters")
    return planning and request.method == "POST" and not _may_queue(request)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
