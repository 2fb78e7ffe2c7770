"""A run as a Chrome trace, for chrome://tracing and Perfetto: a row per device."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from automap.executor.telemetry.call_records import CallRecord

CONTROLLER = "controller"
MAX_DEVICE_ROWS = 64
"""With more devices a row is a set of devices that work together."""
_RUN = 0
_ITERATIONS = 0
"""Row of the iterations; the controller's is 1."""


def chrome_trace(
    records: Sequence[CallRecord], *, device_names: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """The trace as JSON data: complete events in microseconds after the first record's start.

    Rows: iterations, the controller (what has no ranks), then the devices. A call is shown on
    every row of its ranks.

    Args:
        records: In any order.
        device_names: Rank → what the row is called instead of `device 3`.
    """
    origin = min((record.start_seconds for record in records), default=0.0)
    rows = _Rows(records, device_names or {})
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": _RUN, "args": {"name": "run"}}
    ]
    for row, name in rows.names.items():
        common = {"ph": "M", "pid": _RUN, "tid": row}
        events.append({"name": "thread_name", **common, "args": {"name": name}})
        events.append({"name": "thread_sort_index", **common, "args": {"sort_index": row}})
    for record in sorted(records, key=lambda record: record.start_seconds):
        events += [_event(record, row, origin) for row in rows.of(record)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_timeline(
    path: Path, records: Sequence[CallRecord], *, device_names: Mapping[int, str] | None = None
) -> None:
    """Write `chrome_trace`, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(chrome_trace(records, device_names=device_names)))
    partial.replace(path)


class _Rows:
    """Which rows there are, and on which of them a record lies."""

    def __init__(self, records: Iterable[CallRecord], device_names: Mapping[int, str]) -> None:
        sets = sorted({record.ranks for record in records if record.ranks})
        devices = sorted({rank for ranks in sets for rank in ranks})
        self.names: dict[int, str] = {_ITERATIONS: "iterations", 1: CONTROLLER}
        self._of_ranks: dict[tuple[int, ...], list[int]] = {(): [1]}
        if len(devices) > MAX_DEVICE_ROWS:
            for row, ranks in enumerate(sets, start=2):
                self.names[row] = f"devices {_ranges(ranks)}"
                self._of_ranks[ranks] = [row]
            return
        row_of = {rank: row for row, rank in enumerate(devices, start=2)}
        self.names |= {
            row: device_names.get(rank, f"device {rank}") for rank, row in row_of.items()
        }
        self._of_ranks |= {ranks: [row_of[rank] for rank in ranks] for ranks in sets}

    def of(self, record: CallRecord) -> list[int]:
        """Rows on which to show the record."""
        return [_ITERATIONS] if record.kind == "iteration" else self._of_ranks[record.ranks]


def _event(record: CallRecord, row: int, origin: float) -> dict[str, Any]:
    name = f"iteration {record.iteration}" if record.kind == "iteration" else record.call_id
    return {
        "name": name,
        "cat": record.kind,
        "ph": "X",
        "pid": _RUN,
        "tid": row,
        "ts": round((record.start_seconds - origin) * 1e6, 3),
        "dur": round(record.seconds * 1e6, 3),
        "args": {
            "iteration": record.iteration,
            "role": record.role,
            "method": record.method,
            "ranks": _ranges(record.ranks),
            **{f"{kind}_bytes": amount for kind, amount in record.bytes.items()},
        },
    }


def _ranges(ranks: Sequence[int]) -> str:
    """`0-3, 8` for 0, 1, 2, 3 and 8."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
