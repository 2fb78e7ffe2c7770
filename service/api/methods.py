"""Methods that every path has: HEAD wherever there is GET, OPTIONS everywhere; and `Allow`."""

from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automap.service.api.error_responses import http_error_response
from automap.service.api.paths import SpelledOut, allow, routes_of


class CommonMethods:
    """Answers HEAD as GET without a body, and OPTIONS with what the path allows.

    There is no CORS: pages of other sites are refused before (`KnownOrigins`).
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self._routes = routes
        self._spelled_out = SpelledOut(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method")
        if scope["type"] == "http" and method == "OPTIONS":
            allowed = allow(self._routes, scope)
            if allowed:
                scope["route"] = next(routes_of(self._routes, scope))
                await Response(status_code=204, headers={"Allow": allowed})(scope, receive, send)
                return
        if scope["type"] == "http" and not self._spelled_out.takes(scope):
            scope["route"] = next(routes_of(self._routes, scope))
            refused = http_error_response(Request(scope), HTTPException(405))
            await refused(scope, receive, send)
            return
        if scope["type"] == "http" and method == "HEAD":
            await self._head(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def head_only(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                await send(message)
            elif not answered:
                answered = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def received() -> Message:
            # A stream of events would go on for a client that has had its answer.
            return {"type": "http.disconnect"} if answered else await receive()

        as_get = {**scope, "method": "GET"}
        try:
            await self.app(as_get, received, head_only)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]
