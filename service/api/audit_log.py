"""Writes down who did what: every request that could change something, and every refused one."""

import logging
import time
from http import HTTPStatus
from uuid import UUID

import anyio
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automap.service.api.scopes import SAFE_METHODS
from automap.service.storage import audit
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import AuditRow
from automap.service.use_cases.service_parts import Caller

log = logging.getLogger(__name__)
_REFUSED = (401, 403, 429)
_STRANGERS = RateLimitItemPerMinute(120)
"""Refused requests without a key that opens that are written down: nobody is to fill the
database."""
_UNKNOWN_ROUTE = "unknown"
_FORGET_SECONDS = 3600.0


class AuditLog:
    """Notes a request before its answer leaves: what was answered was written down.

    Neither bodies nor query strings, nor headers, are kept, and of a path only the route and an id.
    """

    def __init__(self, app: ASGIApp, *, database: Database, days: float) -> None:
        self.app = app
        self._database = database
        self._days = days
        self._forget_at = time.monotonic()
        self._strangers = FixedWindowRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        noted = False

        async def noting(message: Message) -> None:
            nonlocal noted
            if message["type"] == "http.response.start" and not noted:
                noted = True
                await self._note(scope, message["status"], Headers(raw=message["headers"]))
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception:
            if not noted:
                await self._note(scope, 500, Headers())
            raise

    async def _note(self, scope: Scope, status: int, headers: Headers) -> None:
        if scope["method"] in SAFE_METHODS and status not in _REFUSED:
            return
        row = _row(scope, status, headers)
        is_stranger = row.owner is None or status == HTTPStatus.UNAUTHORIZED
        if is_stranger and not self._strangers.hit(_STRANGERS):
            return
        with anyio.CancelScope(shield=True):
            try:
                await run_in_threadpool(self._write, row)
            except SQLAlchemyError as error:
                log.error("not in the audit log: %s %s: %s", row.method, row.route, error)

    def _write(self, row: AuditRow) -> None:
        now = time.monotonic()
        with self._database.transaction() as session:
            if now >= self._forget_at:
                self._forget_at = now + _FORGET_SECONDS
                audit.forget(session, days=self._days)
            audit.add(session, row)


def _row(scope: Scope, status: int, headers: Headers) -> AuditRow:
    state = scope.get("state", {})
    caller: Caller | None = state.get("caller")
    client = scope.get("client")
    return AuditRow(
        created_at=utc_now(),
        owner=None if caller is None else caller.owner,
        key_id=None if caller is None else caller.key_id,
        method=scope["method"],
        route=_route(scope),
        resource_id=_resource(scope, status, headers),
        change=state.get("change") if status < 400 else None,
        status=status,
        remote_address=client[0] if client else None,
        request_id=state.get("request_id"),
    )


def _route(scope: Scope) -> str:
    """The path as the route has it: what is sent in place of a name may be anything, a key too."""
    route = scope.get("route")
    if route is None:  # refused before it was looked for
        matching = (each for each in scope["app"].routes if each.matches(scope)[0] == Match.FULL)
        route = next(matching, None)
    return str(getattr(route, "path_format", getattr(route, "path", _UNKNOWN_ROUTE)))


def _resource(scope: Scope, status: int, headers: Headers) -> str | None:
    made = headers.get("location")
    if made is not None:
        return made.rpartition("/")[2]
    named = next(iter(scope.get("path_params", {}).values()), None)
    if named is None or (status >= 400 and not _is_id(str(named))):
        return None  # what does not exist may be anything
    return str(named)


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
