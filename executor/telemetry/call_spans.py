"""Iterations of a run and their calls as spans, made when an iteration is over."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from automap.executor.telemetry import traces
from automap.executor.telemetry.call_records import CallRecord


def trace_iteration(records: Sequence[CallRecord]) -> None:
    """A span for the iteration, which is the last record, with one in it for every call."""
    if not traces.is_on():
        return
    *calls, whole = records
    with _span_of(whole):
        for call in calls:
            with _span_of(call):
                pass


def _span_of(record: CallRecord) -> AbstractContextManager[None]:
    return traces.past_span(
        record.call_id,
        start_seconds=record.start_seconds,
        end_seconds=record.end_seconds,
        iteration=record.iteration,
        kind=record.kind,
    )
