"""Which hosts and pages requests may come through, against what browsers are made to send.

Without keys whoever reaches the service may run code. A page of any site can make a browser post to
this machine (the request then has that site as Origin), or have its own name stand for this
machine's address (the request then has that name as Host).
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from automap.service.api.error_responses import error_response
from automap.service.api.refusals import CrossSiteError, UnknownHostError
from automap.service.settings import Settings


class KnownOrigins:
    """Answers 403 to a request for a host that is not ours, or from a page of another one."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app = app
        self._names = {"localhost", *map(str.lower, settings.allowed_hosts)}
        # Behind a proxy the names are the operator's, and a page cannot know a key.
        self._checks_host = bool(
            settings.on_loopback or settings.allowed_hosts or not settings.api_keys
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await error_response(refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Exception | None:
        host = headers.get("host")
        # Without a Host there is no browser: probes that speak HTTP/1.0 send none.
        if self._checks_host and host is not None and not self._is_ours(_name(f"//{host}")):
            return UnknownHostError(host)
        origin = headers.get("origin")
        if origin is None:  # no browser, or nothing that changes anything
            return None
        same = host is not None and urlsplit(origin).netloc.lower() == host.lower()
        if not same and _name(origin) not in self._names - {"localhost"}:
            return CrossSiteError(origin)
        return None

    def _is_ours(self, name: str | None) -> bool:
        if name is None or name in self._names:
            return name is not None
        try:
            ip_address(name)  # no site can make an address stand for another one
        except ValueError:
            return False
        return True


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
