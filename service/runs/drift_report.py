"""How far a run has drifted from its plan, from the report of the run."""

import shlex
from collections.abc import Iterator

from pydantic import ValidationError

from automap.executor.telemetry.run_report import Comparison, RunReport
from automap.planner.runs import Cause, Deviation, Drift, Suggestion, Window, drift, in_words
from automap.service.schemas.documents import JsonObject
from automap.service.schemas.jobs import JobRecord, JobSuggestion


def drift_of(report: JsonObject | RunReport | None) -> Drift | None:
    """The drift of a run; None: it has measured no iteration, or its report cannot be read."""
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


def advice(record: JobRecord, *, server: str) -> list[str]:
    """Lines for people about a job that is over: what has drifted, and ways to a plan that knows.

    No lines if nothing has. The commands ask the job's service: its folder is on the cluster.
    """
    found = drift_of(record.report)
    if found is None or not found.replan:
        return []
    report = RunReport.model_validate(record.report)
    measured = {call.id: known for call in report.calls if (known := _deviation(call.seconds))}
    calls = [f"--call {name}={each.measured:.4g}" for name, each in measured.items()]
    where = f"--server {shlex.quote(server)}"
    return [
        *in_words(found),
        *_ways_on(
            found,
            replan=" ".join(["automap replan", str(record.plan_id), where, *calls]),
            calibrate=f"automap calibrate {record.id} {where}",
        ),
    ]


def drift_summary(report: RunReport, *, folder: str | None = None) -> list[str]:
    """`advice` on a run of this machine, beside a table that says how each call has drifted."""
    found = drift_of(report)
    if found is None or not found.replan:
        return []
    without_calls = found.model_copy(update={"calls": {}})
    run = folder or "RUN"
    replan = f"automap replan {run}/plan.json --measured {run}/report.json"
    ways = _ways_on(found, replan=replan, calibrate=f"automap calibrate {run}")
    return [*in_words(without_calls), *ways]


def _ways_on(found: Drift, *, replan: str, calibrate: str) -> list[str]:
    tokens = found.response_tokens
    spec = "--spec SPEC --output-spec SPEC2" if tokens and tokens.beyond(found.threshold) else ""
    learn = f"{calibrate} --output FOLDER {spec}".rstrip()
    return [
        f"see whether to keep the plan or to move: {replan}",
        f"learn from it and plan anew: {learn}; automap plan SPEC --profile FOLDER",
    ]


def suggested(each: JobSuggestion) -> list[str]:
    """Lines for people about a suggestion that was raised on a job."""
    over = each.over_after_iteration
    until = [] if over is None else [f"as planned again after iteration {over:,}"]
    return suggestion_lines(each.suggestion) + until


def suggestion_lines(found: Suggestion) -> list[str]:
    """What had drifted, why, and whether another plan pays."""
    window = found.window
    lines = [f"iterations {window.first:,} to {window.last:,}:", *in_words(found.drift)]
    lines += [_cause(cause, window) for cause in found.causes]
    if found.replan is not None:
        lines.append(found.replan.answer)
    return lines + list(_further(found))


def _cause(cause: Cause, window: Window) -> str:
    calls = ", ".join(cause.calls)
    match cause.kind:
        case "lengths":
            return f"the lengths of responses make {calls} take {cause.ratio:.2f} times as long"
        case "slow_device":
            rank = window.slow_devices[cause.calls[0]]
            return (
                f"{cause.device} took {rank.ratio:.2f} times as long as the other devices of "
                f"{calls} in each of these iterations"
            )
        case "slowdown":
            return (
                f"{calls}: {cause.ratio:.2f} times the estimate, but not so in the first "
                "iterations, and no device stands out: clocks, links, or others that share them"
            )
        case "estimate":
            return (
                f"{calls}: {cause.ratio:.2f} times the estimate without a slowdown, so the "
                "estimate is wrong (automap calibrate corrects a model's; a function's is its "
                "seconds_per_response in the spec)"
            )
        case "between_calls":
            return "no call takes other than planned: the time goes between them"


def _further(found: Suggestion) -> Iterator[str]:
    without = found.without_node
    if without is not None:
        even = without.break_even_iterations
        pays = "which never pays" if even is None else f"paid back after {even:,} iterations"
        yield (
            f"without node {without.node} of {without.pool}: {without.iteration_seconds:.2f} s an "
            f"iteration, {without.gain_seconds:.2f} s less, for a restart of "
            f"{without.cost_seconds:.1f} s, {pays}"
        )
    if found.problem is not None:
        yield found.problem
