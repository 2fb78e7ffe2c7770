"""Reads of a stored row or two, for which a thread would cost more than what it does."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from automap.service.storage.database import Database

READERS = 2
"""Threads that read at once: one waits for the database while the other one works. As many as there
are clients mostly wait for one another."""
Found = TypeVar("Found")


class ShortReads:
    """From a file on the event loop, unless it is locked; from a server on a few threads."""

    def __init__(self, database: Database) -> None:
        self._database, self._readers = database, CapacityLimiter(READERS)

    async def find(
        self, short: Callable[[Connection], Found | None], whole: Callable[[Session], Found]
    ) -> Found:
        """What is stored.

        Args:
            short: takes a millisecond or two; None: it would take longer, which `whole` may.
            whole: finds it in any case.
        """
        with suppress(OperationalError), self._database.reading_at_once() as connection:
            if connection is not None and (found := short(connection)) is not None:
                return found
        return await to_thread.run_sync(self._in_thread, whole, limiter=self._readers)

    def _in_thread(self, read: Callable[[Session], Found]) -> Found:
        with self._database.reading() as session:
            return read(session)
