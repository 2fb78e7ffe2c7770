"""Connections whose requests must come whole within a time: each costs a file while it is open."""

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol


def protocol_with_limit(request_seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol, which closes a connection whose request has no whole head by then.

    The time begins with the connection, and with the first bytes after an answer.
    """

    class Protocol(H11Protocol):
        """Ends connections over which no request comes."""

        _overdue: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._expect_head()
            else:
                self._stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _expect_head(self) -> None:
            if self._overdue is None:
                self._overdue = self.loop.call_later(request_seconds, self.transport.abort)

        def _stop_waiting(self) -> None:
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

    return Protocol


def allow_many_files() -> None:
    """Let this process have as many connections as its user may have files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
