"""Whether a database can be written: a full disk lets reading go on, and every write fails."""

import time

from sqlalchemy.exc import OperationalError

CHECKED_AFTER_SECONDS = 60.0
"""So long after a write that failed, another one is tried to see whether the next will do."""
_CAUSES = (
    ("SQLITE_FULL", "its disk is full"),
    ("SQLITE_READONLY", "it is read-only"),
    ("SQLITE_IOERR_WRITE", "its disk takes no more"),
    ("SQLITE_IOERR_FSYNC", "its disk takes no more"),
    ("SQLITE_IOERR_SHMSIZE", "its disk takes no more"),
    ("53100", "its disk is full"),
)
"""How SQLite's names of errors and PostgreSQL's codes of them begin."""


def why_not_written(error: Exception) -> str | None:
    """Why a write failed though the database answers, with its own name of that; None: otherwise.

    That it is busy, or away, is something else.
    """
    orig = getattr(error, "orig", None)
    code = getattr(orig, "sqlite_errorname", None) or getattr(orig, "sqlstate", None) or ""
    why = next((why for begins, why in _CAUSES if code.startswith(begins)), None)
    return None if why is None else f"{why} ({code})"


class Writability:
    """What this process has seen of its writes."""

    def __init__(self) -> None:
        self._failed_at: float | None = None
        self.why_not: str | None = None
        """Why the last write that failed did; None: a write that was tried since has done."""

    @property
    def is_to_be_tried(self) -> bool:
        """Whether the last failure is long enough ago to try a write."""
        failed_at = self._failed_at
        return failed_at is not None and time.monotonic() - failed_at >= CHECKED_AFTER_SECONDS

    def note(self, error: OperationalError) -> None:
        """Take notice of a transaction that failed."""
        why = why_not_written(error)
        if why is not None:
            self._failed_at, self.why_not = time.monotonic(), why

    def note_success(self) -> None:
        """Take notice of a write that was tried and has done."""
        self._failed_at = self.why_not = None
