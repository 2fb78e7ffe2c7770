"""What a run tells those who started it: marked lines of JSON on stdout, and a file of the same."""

import json
import sys
import threading
from pathlib import Path

MARK = "AUTOMAP-EVENT "
"""Stands before an event on stdout, among whatever else is printed."""


class Events:
    """The events of a run; any thread may send some.

    state (state), call (call, iteration, seconds, bytes), metrics (iteration, metrics), iteration
    (iteration, iterations, seconds), log (message), failed (cause, kind), finished (report).
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def send(self, kind: str, /, **fields: object) -> None:
        """Numbers that are not finite become null."""
        text = json.dumps({"type": kind, **fields}, default=str).replace("\u2028", " ")
        with self._lock:
            self._file.write(text + "\n")
            self._file.flush()
            sys.stdout.write(f"{MARK}{text}\n")
            sys.stdout.flush()

    def close(self) -> None:
        """No more events."""
        self._file.close()
