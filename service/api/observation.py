"""Every request: its id, its span, its line in the log, and how it is counted."""

import logging
import re
import time
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automap.executor.telemetry import traces
from automap.service.telemetry import context
from automap.service.telemetry.metrics import Metrics
from automap.service.use_cases.service_parts import Caller

log = logging.getLogger(__name__)

HEADER = "X-Request-ID"
UNMATCHED = "none"
"""The route of a path that there is not: what clients make up is no label."""
_SAFE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines: of no interest in a log as long as they succeed."""


class Observation:
    """Outside of all other middleware, so that refusals are seen too."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 500  # what becomes of an exception, outside of here

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        began = time.monotonic()
        with (
            self._metrics.requests_in_flight.track_inprogress(),
            context.bound(request_id=request_id),
            traces.continued(headers.get("traceparent")),
            traces.span("request", serves=True),
        ):
            try:
                await self.app(scope, receive, noted)
            finally:
                self._note(scope, status, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = route_of(scope)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.request_seconds.labels(method, route).observe(seconds)
        traces.describe_request(method=method, route=route, status=status)
        level = logging.DEBUG if route in _QUIET and status < 400 else logging.INFO
        log.log(
            level,
            "%s %s: %d",
            method,
            route,
            status,
            extra={
                "method": method,
                "route": route,
                "status": status,
                "milliseconds": round(1000 * seconds, 1),
                **_sender(scope),
            },
        )


def request_id_of(headers: Headers) -> str:
    """What the client or its proxy calls the request, if that is harmless; else a new id."""
    given = headers.get(HEADER, "")
    return given if _SAFE.fullmatch(given) else uuid4().hex


def _sender(scope: Scope) -> dict[str, str]:
    """Whose request it is and which key was sent, as far as that is known."""
    caller: Caller | None = scope["state"].get("caller")
    if caller is None:
        return {}
    return {"owner": caller.owner, **({"key_id": caller.key_id} if caller.key_id else {})}


def route_of(scope: Scope) -> str:
    """The path of the route that took the request, with names in place of what they stand for."""
    return getattr(scope.get("route"), "path", None) or UNMATCHED
