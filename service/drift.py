"""How far a run has drifted from its plan, from the report of the run."""

from pydantic import ValidationError

from executor.report import Comparison, RunReport
from planner.drift import Deviation, Drift, drift, in_words
from service.tables import JsonObject


def drift_of(report: JsonObject | RunReport | None) -> Drift | None:
    """Of a run; None where it has not measured an iteration, or its report cannot be read."""
    if report is None:
        return None
    try:
        read = report if isinstance(report, RunReport) else RunReport.model_validate(report)
    except ValidationError:  # another version's
        return None
    iteration = _deviation(read.iteration_seconds)
    if iteration is None:
        return None
    calls = {call.id: found for call in read.calls if (found := _deviation(call.seconds))}
    return drift(iteration, calls, response_tokens=_deviation(read.response_tokens))


def _deviation(compared: Comparison) -> Deviation | None:
    if compared.measured is None or not compared.predicted:
        return None
    return Deviation(planned=compared.predicted, measured=compared.measured.median)


def advice(report: JsonObject | RunReport | None, *, run: str | None = None) -> list[str]:
    """Lines for people: what has drifted, and ways to a plan that knows; none if nothing has."""
    found = drift_of(report)
    lines = [] if found is None else in_words(found)
    if not lines or found is None:
        return lines
    source = run or "RUN"
    tokens = found.response_tokens
    spec = "--spec SPEC --output-spec SPEC2" if tokens and tokens.beyond(found.threshold) else ""
    learn = f"automap calibrate {source} --profile FOLDER --output FOLDER2 {spec}".rstrip()
    replan = f"automap replan {source}/plan.json --measured {source}/report.json"
    return [
        *lines,
        f"see whether to keep the plan or to move: {replan}",
        f"learn from it and plan anew: {learn}; automap plan SPEC --profile FOLDER2",
    ]
