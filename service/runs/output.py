"""What a run prints, told apart: events, one JSON object per marked line, and everything else.

A run prints to a file that may be far away and is read in arbitrary pieces, from arbitrary places
on; docs/running.md has the contract.
"""

import json
import math
from dataclasses import dataclass, field

from automap.service.schemas.documents import JsonObject

MARK = b"AUTOMAP-EVENT "
"""What comes before an event; it may follow the start of a line that something else printed."""

MAX_EVENT_BYTES = 2**24
_MAX_LINE_BYTES = 2**16
"""A line without an event is passed on once it is so long, finished or not."""


@dataclass(slots=True)
class Printed:
    """A stretch of the output: all complete lines of it."""

    events: list[JsonObject] = field(default_factory=list)
    text: str = ""
    end_offset: int = 0
    """Bytes of the whole output up to here."""

    def __bool__(self) -> bool:
        return bool(self.events or self.text)


class OutputReader:
    """Takes the output piece by piece and gives back what is complete."""

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset
        self._rest = b""

    @property
    def received(self) -> int:
        """Bytes of the whole output that were fed, or skipped at the beginning."""
        return self._offset + len(self._rest)

    def feed(self, data: bytes) -> Printed:
        """The lines that are complete now."""
        pending = self._rest + data
        end = pending.rfind(b"\n") + 1
        if len(pending) - end > (MAX_EVENT_BYTES if MARK in pending[end:] else _MAX_LINE_BYTES):
            end = len(pending)
        self._rest = pending[end:]
        return self._printed(pending[:end])

    def finish(self) -> Printed:
        """What is left of a last line that nothing ended."""
        pending, self._rest = self._rest, b""
        return self._printed(pending)

    def _printed(self, complete: bytes) -> Printed:
        self._offset += len(complete)
        printed = Printed(end_offset=self._offset)
        *lines, unfinished = complete.split(b"\n")
        for line in [line + b"\n" for line in lines] + [unfinished] * bool(unfinished):
            before, mark, document = line.partition(MARK)
            event = _event(document) if mark else None
            if event is None:
                printed.text += _as_text(line)
                continue
            printed.events.append(event)
            if before.strip():
                printed.text += _as_text(before + b"\n")
        return printed


def _event(document: bytes) -> JsonObject | None:
    """The event, fit for every database; None: it is none."""
    try:
        # NaN is no JSON: a loss that is not a number becomes null.
        event = _clean(
            json.loads(document, parse_constant=lambda _: None, parse_float=_finite_or_none)
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return None
    return event


def _finite_or_none(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _clean(value: object) -> object:
    """Remove NUL characters and halves of surrogate pairs, which are no text to store or send."""
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean_text(key): _clean(item) for key, item in value.items()}
    return value


def _clean_text(text: str) -> str:
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def _as_text(line: bytes) -> str:
    """The line as a terminal would leave it: a progress bar draws over itself."""
    ending = "\n" if line.endswith(b"\n") else ""
    shown = line.rstrip(b"\r\n").rpartition(b"\r")[2]
    return shown.decode("utf-8", "replace").replace("\0", "�") + ending
