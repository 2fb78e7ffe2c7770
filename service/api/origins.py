"""Which hosts and pages requests may come through, against what browsers are made to send.

Without keys whoever reaches the service may run code. A page of any site can make a browser post to
this machine (the request then has that site as Origin), or have its own name stand for this
machine's address (the request then has that name as Host).
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from automap.service.api.auth import Keys
from automap.service.api.error_responses import error_response
from automap.service.api.refusals import CrossSiteError, UnknownHostError
from automap.service.settings import Settings, canonical_host, is_address

_PORTS = {"http": 80, "https": 443}


class KnownOrigins:
    """Answers 403 to a request for a host that is not ours, or from a page of another one."""

    def __init__(self, app: ASGIApp, *, settings: Settings, keys: Keys) -> None:
        self.app = app
        self._names = {"localhost", *settings.allowed_hosts}
        self._always_checks_host = bool(settings.on_loopback or settings.allowed_hosts)
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await error_response(refusal)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Exception | None:
        host = headers.get("host")
        # Behind a proxy the names are the operator's, and a page cannot know a key.
        checks_host = self._always_checks_host or not self._keys.are_asked_for
        # Without a Host there is no browser: probes that speak HTTP/1.0 send none.
        if checks_host and host is not None and not self._is_ours(_name(f"//{host}")):
            return UnknownHostError(host)
        origin = headers.get("origin")
        if origin is None:  # no browser, or nothing that changes anything
            return None
        if _is_sent_to(origin, host) or _name(origin) in self._names - {"localhost"}:
            return None
        return CrossSiteError(origin)

    def _is_ours(self, name: str | None) -> bool:
        # No site can make an address stand for another one.
        return name is not None and (name in self._names or is_address(name))


def _is_sent_to(origin: str, host: str | None) -> bool:
    """Whether a page sends to where it comes from; a scheme's own port may be written or not."""
    scheme = origin.partition("://")[0].lower()
    own_port = _PORTS.get(scheme)
    place = None if host is None else _place(f"//{host}", own_port)
    return place is not None and _place(origin, own_port) == place


def _place(url: str, own_port: int | None) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if name is None else (name, port if port is not None else own_port)


def _name(url: str) -> str | None:
    """The host of a URL, an address in the form in which the settings have it."""
    try:
        return canonical_host(urlsplit(url).hostname or "") or None
    except ValueError:
        return None
