"""What a run reports: marked lines of JSON on stdout, and a file of all of them."""

import contextlib
import json
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from automap.executor.telemetry.proofs import Proofs

MARK = "AUTOMAP-EVENT "
"""Stands before an event on stdout, among whatever else is printed."""


class Events:
    """The events of a run; any thread may send some. Each has its type and its time.

    On stdout each has a proof that it is one of these and not what something else printed.

    state (state), call (call, iteration, seconds, bytes, slowest), metrics (iteration, metrics),
    iteration (iteration, iterations, seconds), log (message), failed (cause, kind), finished
    (report).
    """

    def __init__(self) -> None:
        """Events go to stdout alone until `keep` names a file."""
        self._file: TextIO | None = None
        self._error: OSError | None = None
        self._lock = threading.Lock()
        self._proofs = Proofs()

    def keep(self, path: Path) -> None:
        """Write what follows to a file too, after what earlier attempts wrote there."""
        torn = _is_torn(path)
        file = path.open("a", encoding="utf-8")
        if torn:
            file.write("\n")
        with self._lock:
            self._file = file

    def send(self, kind: str, /, **fields: object) -> None:
        """Numbers that are not finite become null. Never raises; `check` does."""
        event = {"type": kind, "time": datetime.now(UTC).isoformat(), **fields}
        known = _finite(event)
        assert isinstance(known, dict)
        with self._lock:
            proven = json.dumps({**known, **self._proofs.take()}, default=str)
            self._write(sys.stdout, f"{MARK}{proven}\n")
            if self._file is not None:
                self._write(self._file, json.dumps(known, default=str) + "\n")

    def _write(self, file: TextIO, text: str) -> None:
        try:
            file.write(text)
            file.flush()
        except OSError as error:  # a full disk, say: of no concern to the thread that ended a call
            self._error = self._error or error

    def check(self) -> None:
        """Raise what kept an event from being written."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """No more events."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what is left of an event that `check` has reported
                self._file.close()
            self._file = None


def _finite(value: object) -> object:
    """The value, with null for every number that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _is_torn(path: Path) -> bool:
    """Whether an attempt was killed while it wrote a line."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def read_events(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Events of one type, as all attempts wrote them; none if there is no such file."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # torn by a kill
                continue
            if isinstance(event, dict) and event.get("type") == kind:
                yield event
