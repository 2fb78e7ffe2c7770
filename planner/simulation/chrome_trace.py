"""A simulated plan as a Chrome trace, for chrome://tracing and Perfetto."""

from collections.abc import Sequence
from typing import Any

from planner.simulation.report import Occurrence, stretches

HOST = "host"
_RUN = 0


def chrome_trace(timeline: Sequence[Occurrence]) -> dict[str, Any]:
    """The trace as JSON data: complete events in microseconds after the first one's start.

    A row is a stretch of GPUs on which the same things happen; the first is the host's, for what
    takes no GPU.
    """
    rows = stretches([span for one in timeline for span in one.spans])
    origin = min((one.start_seconds for one in timeline), default=0.0)
    names = [HOST, *(f"{row.pool} {row.first}-{row.end - 1}" for row in rows)]
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": _RUN, "args": {"name": "simulated plan"}}
    ]
    for number, name in enumerate(names):
        common = {"ph": "M", "pid": _RUN, "tid": number}
        events.append({"name": "thread_name", **common, "args": {"name": name}})
        events.append({"name": "thread_sort_index", **common, "args": {"sort_index": number}})
    for one in timeline:
        here = [
            number
            for number, row in enumerate(rows, start=1)
            if any(row.shares_gpus(span) for span in one.spans)
        ]
        events += [
            {
                "name": one.name,
                "cat": "call" if one.name.startswith("call ") else "weight sync",
                "ph": "X",
                "pid": _RUN,
                "tid": row,
                "ts": round((one.start_seconds - origin) * 1e6, 3),
                "dur": round((one.end_seconds - one.start_seconds) * 1e6, 3),
                "args": {"iteration": one.iteration},
            }
            for row in here or [0]
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}
