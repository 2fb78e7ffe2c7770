"""Connections: whose they are, and how long their requests may take to come."""

import asyncio
import resource
from collections.abc import Callable
from contextlib import suppress

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from automap.service.api.error_responses import error_response
from automap.service.api.peers import is_foreign
from automap.service.api.refusals import OtherUserError

_PROBLEM = error_response(OtherUserError())
_MOST_REFUSED_BYTES = 2**26
_MOST_HEAD_BYTES = 2**16
MOST_FILES = 65_536
"""Files that the service asks for at most: sockets need no more, and its children inherit it."""
_FOREIGN = (
    f"HTTP/1.1 {_PROBLEM.status_code} Forbidden\r\nConnection: close\r\n"
    f"Content-Type: {_PROBLEM.media_type}\r\nContent-Length: {len(_PROBLEM.body)}\r\n\r\n"
).encode() + bytes(_PROBLEM.body)


class _LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, without other users' connections and those over which nothing comes.

    The time for the head of a request begins with the connection, and with the first bytes after
    an answer. Its parser is a fast one that bounds neither heads nor what stands between the chunks
    of a body: so many bytes in which neither ends are refused.
    """

    request_seconds: float
    is_our_users_alone: Callable[[], bool]
    _is_foreign = False
    _refused_bytes = 0
    _bytes_of_nothing = 0
    """Bytes that came since a head, or a piece of a body, was whole."""
    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        alone = type(self).is_our_users_alone
        self._is_foreign = alone() and is_foreign(self.client, self.server)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._is_foreign:
            self._refuse(data)
            return
        self._bytes_of_nothing += len(data)
        super().data_received(data)
        if self._bytes_of_nothing > _MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()
        else:
            self._stop_waiting()

    def on_headers_complete(self) -> None:
        self._bytes_of_nothing = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_of_nothing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bytes_of_nothing = 0
        super().on_message_complete()

    def _refuse(self, data: bytes) -> None:
        """Answer once, then read on: bytes left unread would make the system take the answer back.

        The client closes when it has seen the end of our side; the time for a request ends one that
        does not.
        """
        if not self._refused_bytes:
            self.transport.write(_FOREIGN)
            self.transport.write_eof()
        self._refused_bytes += len(data)
        if self._refused_bytes > _MOST_REFUSED_BYTES:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(self.request_seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


def limited_protocol(
    *, request_seconds: float, is_our_users_alone: Callable[[], bool]
) -> type[asyncio.Protocol]:
    """A protocol for uvicorn.

    Args:
        request_seconds: What the head of a request may take before its connection is closed.
        is_our_users_alone: Whether connections of other users of this machine are refused now.
    """
    limits = {
        "request_seconds": request_seconds,
        "is_our_users_alone": staticmethod(is_our_users_alone),
    }
    return type("LimitedProtocol", (_LimitedProtocol,), limits)


def allow_many_files() -> None:
    """Let this process have as many connections as its user may have files, up to a limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
