"""Methods that every path has: HEAD wherever there is GET, OPTIONS everywhere; and `Allow`."""

from collections.abc import Iterable, Iterator

from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ORDER = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class CommonMethods:
    """Answers HEAD as GET without a body, and OPTIONS with what the path allows.

    There is no CORS: pages of other sites are refused before (`KnownOrigins`).
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        self.app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method")
        if scope["type"] == "http" and method == "OPTIONS":
            allowed = allow(self._routes, scope)
            if allowed:
                scope["route"] = next(_of_path(self._routes, scope))
                await Response(status_code=204, headers={"Allow": allowed})(scope, receive, send)
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


def allow(routes: Iterable[BaseRoute], scope: Scope) -> str:
    """The methods of a path, as `Allow` lists them; empty: there is no such path."""
    methods: set[str] = set()
    for route in _of_path(routes, scope):
        methods |= route.methods or set()
    if not methods:
        return ""
    methods |= {"OPTIONS", *(["HEAD"] if "GET" in methods else [])}
    return ", ".join(sorted(methods, key=_ORDER.index))


def _of_path(routes: Iterable[BaseRoute], scope: Scope) -> Iterator[Route]:
    for route in routes:
        if isinstance(route, Route) and route.matches(dict(scope))[0] != Match.NONE:
            yield route
