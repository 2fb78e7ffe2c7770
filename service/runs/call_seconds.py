"""What a run measured beside what its plan predicted, call by call, from the run's events."""

from collections.abc import Iterable, Mapping
from math import isclose
from statistics import median
from typing import Any

from pydantic import JsonValue, ValidationError

from automap.executor.telemetry.run_report import Comparison, RunReport
from automap.planner import Plan
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import CallSeconds

KEPT = 32
"""Durations kept of each call: their median is steady, whatever the first iterations took."""

NOTHING: JsonObject = {"iteration": {"count": 0, "seconds": []}, "calls": {}, "report": None}
"""`measured` of a run that has not begun."""


def with_events(measured: JsonObject, events: Iterable[JsonObject]) -> JsonObject:
    """What is known after these events; those without seconds say nothing."""
    iteration: Any = measured["iteration"]
    calls: Any = dict(measured["calls"])  # type: ignore[arg-type]
    for event in events:
        seconds = number(event.get("seconds"))
        if seconds is None:
            continue
        if event["type"] == "iteration":
            iteration = _with_one(iteration, seconds, event.get("bytes"))
        elif event["type"] == "call" and isinstance(name := event.get("call"), str):
            calls[name] = _with_one(calls.get(name, {}), seconds, event.get("bytes"))
    return {**measured, "iteration": iteration, "calls": calls}


def with_report(measured: JsonObject, report: JsonObject) -> JsonObject:
    """What is known after the report, which leaves out the iterations that warmed up."""
    try:
        read = RunReport.model_validate(report)
    except ValidationError:  # another version's: its events remain
        return measured
    medians = {call.id: _median(call.seconds) for call in read.calls}
    return {
        **measured,
        "report": {"iteration": _median(read.iteration_seconds), "calls": dict(medians)},
    }


def other_plan(report: RunReport, plan: Plan) -> str:
    """What shows that a report is of a run of another plan; empty where nothing does."""
    if report.name != plan.name:
        return f"its plan was named {report.name!r}, this one is {plan.name!r}"
    predicted = {call.id: call.seconds.predicted for call in report.calls}
    known = {call.id: call.measurable_seconds for call in plan.calls}
    for name, seconds in known.items():
        reported = predicted.get(name)
        if reported is None:
            return f"it has no call {name}"
        if not isclose(reported, seconds, rel_tol=1e-6, abs_tol=1e-9):
            return f"of {name} {reported:.4g} s were predicted then, and {seconds:.4g} s here"
    return ""


def _median(comparison: Comparison) -> float | None:
    return None if comparison.measured is None else comparison.measured.median


def number(value: JsonValue) -> float | None:
    """The value if it is a number that a float can hold, and not true or false."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value)


def iteration_seconds(measured: JsonObject) -> float | None:
    """The usual duration of an iteration; None: none is finished."""
    known: Any = measured["iteration"]
    reported: Any = measured["report"]
    if reported is not None and reported["iteration"] is not None:
        return float(reported["iteration"])
    return median(known["seconds"]) if known["seconds"] else None


def calls_of(predicted: Mapping[str, float], measured: JsonObject) -> list[CallSeconds]:
    """Every call that a plan predicts, and every other one that was measured, in time order."""
    known: Any = measured["calls"]
    reported: Any = (measured["report"] or {"calls": {}})["calls"]  # type: ignore[index,call-overload]
    return [
        _call_seconds(name, predicted.get(name), reported.get(name), known.get(name, {}))
        for name in dict.fromkeys((*predicted, *known))
    ]


def _with_one(known: dict[str, Any], seconds: float, num_bytes: JsonValue) -> dict[str, Any]:
    counted = {
        "count": known.get("count", 0) + 1,
        "seconds": [*known.get("seconds", ()), seconds][-KEPT:],
    }
    latest = number(num_bytes)
    if latest is None:
        latest = known.get("bytes")
    return counted if latest is None else {**counted, "bytes": int(latest)}


def _call_seconds(
    name: str, predicted: float | None, reported: float | None, known: dict[str, Any]
) -> CallSeconds:
    durations = known.get("seconds", [])
    usual = median(durations) if durations else None
    return CallSeconds(
        call=name,
        predicted_seconds=predicted,
        measured_seconds=usual if reported is None else reported,
        measured_bytes=known.get("bytes"),
        count=known.get("count", 0),
    )
