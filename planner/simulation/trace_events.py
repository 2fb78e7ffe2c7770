"""A simulated plan as a Chrome trace, for chrome://tracing and Perfetto."""

from collections.abc import Iterator, Sequence
from typing import Any

from automap.planner.simulation.timeline import Occurrence, Piece, host_lanes, rows

HOST = "host"
_RUN = 0


def chrome_trace(timeline: Sequence[Occurrence]) -> dict[str, Any]:
    """The trace as JSON data: complete events in microseconds after the first one's start.

    A row is a stretch of GPUs on which the same things happen; the first are the host's, for what
    takes no GPU. The chunks that a call takes, and the main phase and tail of a generation, lie
    inside its event. A generation has no such parts on GPUs that its tail leaves free.
    """
    stretches = rows(timeline)
    origin = min((one.start_seconds for one in timeline), default=0.0)
    lanes = host_lanes(timeline)
    hosts = max(lanes.values(), default=0) + 1
    names = [HOST] * hosts + [f"{row.pool} {row.first}-{row.end - 1}" for row in stretches]
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": _RUN, "args": {"name": "simulated plan"}}
    ]
    for number, name in enumerate(names):
        common = {"ph": "M", "pid": _RUN, "tid": number}
        events.append({"name": "thread_name", **common, "args": {"name": name}})
        events.append({"name": "thread_sort_index", **common, "args": {"sort_index": number}})
    for one in timeline:
        host = lanes.get((one.name, one.iteration), 0) - hosts
        for row, with_tail in one.places(stretches) or [(host, True)]:
            events += _on_a_row(one, row + hosts, one.pieces(with_tail=with_tail), origin=origin)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _on_a_row(
    one: Occurrence, row: int, pieces: Sequence[Piece], *, origin: float
) -> Iterator[dict[str, Any]]:
    """The event, and its pieces if they are more than the whole."""
    category = "call" if one.name.startswith("call ") else "weight sync"
    whole = Piece(one.name, pieces[0].start_seconds, pieces[-1].end_seconds)
    inner = [] if pieces == [whole] else [(piece, "part") for piece in pieces]
    for piece, kind in [(whole, category), *inner]:
        begin, end = (
            round((seconds - origin) * 1e6, 3)
            for seconds in (piece.start_seconds, piece.end_seconds)
        )
        yield {
            "name": piece.name,
            "cat": kind,
            "ph": "X",
            "pid": _RUN,
            "tid": row,
            "ts": begin,
            "dur": round(end - begin, 3),
            "args": {"iteration": one.iteration},
        }
