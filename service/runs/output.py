"""What a run prints, told apart: events, one JSON object per marked line, and everything else.

A run prints to a file that may be far away and is read in arbitrary pieces, from arbitrary places
on; docs/guides/running.md has the contract.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from automap.executor.telemetry.proofs import before
from automap.service.schemas.documents import JsonObject

MARK = b"AUTOMAP-EVENT "
"""What comes before an event; it may follow the start of a line that something else printed."""

MAX_EVENT_BYTES = 2**24
_TORN_EVENTS = 64
"""So many events in a row may be lost, by something that prints between their bytes."""
_MAX_LINE_BYTES = 2**16
"""A line without an event is passed on once it is so long, finished or not."""
_FOR_TERMINALS = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and where to write next
    rb"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # titles and links
)


@dataclass(slots=True)
class Printed:
    """A stretch of the output: all complete lines of it."""

    events: list[JsonObject] = field(default_factory=list)
    text: str = ""
    end_offset: int = 0
    """Bytes of the whole output up to here."""
    proofs: list[str] = field(default_factory=list)
    """Which proofs the next event may follow; none: no event had one."""

    def __bool__(self) -> bool:
        return bool(self.events or self.text)


class OutputReader:
    """Takes the output piece by piece and gives back what is complete."""

    def __init__(self, offset: int = 0, proofs: Sequence[str] = ()) -> None:
        """Reads from the byte `offset` on, where the next event follows one of the `proofs`."""
        self._offset = offset
        self._rest = b""
        self._proofs = list(proofs)

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
            ahead, mark, document = line.partition(MARK)
            event = _event(document) if mark else None
            if event is None or not self._is_proven(event):
                printed.text += _as_text(line)
                continue
            printed.events.append(event)
            if ahead.strip():
                printed.text += _as_text(ahead + b"\n")
        printed.proofs = list(self._proofs)
        return printed

    def _is_proven(self, event: JsonObject) -> bool:
        """Whether the program itself sent the event: once one had a proof, all must.

        The first is sent before anything that others wrote is even loaded.
        """
        proof, following = event.pop("proof", None), event.pop("next_proof", None)
        if not isinstance(proof, str):
            return not self._proofs
        if self._proofs and not _follows(proof, self._proofs):
            return False
        self._proofs = [proof] + ([following] if isinstance(following, str) else [])
        return True


def _follows(proof: str, known: Sequence[str]) -> bool:
    for _ in range(_TORN_EVENTS):
        proof = before(proof)
        if proof in known:
            return True
    return False


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
    """The line as a terminal would leave it: without colours, a progress bar drawn over itself."""
    ending = "\n" if line.endswith(b"\n") else ""
    shown = _FOR_TERMINALS.sub(b"", line).rstrip(b"\r\n").rpartition(b"\r")[2]
    return shown.decode("utf-8", "replace").replace("\0", "�") + ending
