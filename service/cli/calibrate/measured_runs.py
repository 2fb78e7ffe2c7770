"""Runs that were measured: ours, jobs of a service, and logs of other frameworks."""

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from automap.executor.telemetry.run_report import RunReport
from automap.planner import Plan
from automap.planner.runs import FORMATS, QUANTILES, Observed, foreign_run
from automap.service.cli.backends.client import Service, parsed
from automap.service.cli.inputs.files import read_report, read_runnable
from automap.service.cli.inputs.metric_logs import read_log
from automap.service.cli.terminal.failures import BadInputError, naming_options
from automap.service.runs.call_seconds import other_plan
from automap.service.schemas.measurements import AnyJobRecord, ProfileJobRecord
from automap.service.schemas.plans import PlanRecord

AUTOMAP = "automap"
"""The format of our own runs."""
LENGTH = "response_length"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run of a plan: its calls, and how long its responses were."""

    source: str
    plan: Plan
    observed: list[Observed]
    lengths: dict[str, float]
    """Quantiles; empty where the run does not say."""
    iteration_seconds: float | None = None
    """Measured seconds of an iteration; None: the run does not say."""
    warnings: list[str] = field(default_factory=list)
    """What of it could not be used."""


def is_id(source: str) -> bool:
    """Whether it names a job of a service, not a file."""
    try:
        return not Path(source).exists() and bool(UUID(source))
    except (ValueError, OSError):
        return False


def read_job(job_id: str, service: Service) -> MeasuredRun:
    """A job of a service, also one that still runs: what it has measured so far.

    Raises:
        BadInputError: there is no such job, or it has measured nothing yet.
    """
    response = service.ask("GET", f"jobs/{job_id}")
    job = parsed(TypeAdapter(AnyJobRecord), response.content, service)
    if isinstance(job, ProfileJobRecord):
        raise BadInputError(f"job {job_id} measures a profile; calibrate learns from runs")
    answer = service.ask("GET", f"plans/{job.plan_id}")
    stored = parsed(PlanRecord, answer.content, service)
    if stored.plan is None or job.measured_iteration_seconds is None:
        raise BadInputError(f"job {job_id} has measured no iteration yet: it is {job.status}")
    if not isinstance(stored.plan, Plan):
        raise BadInputError(f"the plan of job {job_id} is another version's: nothing to learn from")
    try:
        observed = observed_in(RunReport.model_validate(job.report))
    except ValidationError:  # it runs, or its report is another version's
        observed = [
            Observed(call=each.call, seconds=each.measured_seconds, iterations=each.count - 1)
            for each in job.calls
            if each.measured_seconds is not None and each.count > 1  # the first one warms up
        ]
    seen = job.response_lengths
    lengths = {} if seen is None else seen.model_dump(include={*QUANTILES, "mean"})
    return MeasuredRun(
        source=service.url(f"jobs/{job_id}"),
        plan=stored.plan,
        observed=observed,
        lengths={name: value for name, value in lengths.items() if value is not None},
        iteration_seconds=job.measured_iteration_seconds,
    )


def read_run(source: str, *, plan: str | None) -> MeasuredRun:
    """The run whose folder, or report.json, is named.

    Raises:
        BadInputError: there is no report or no plan, or either cannot be read.
    """
    path = Path(source).expanduser()
    file = path / "report.json" if path.is_dir() else path
    if not file.is_file():
        if is_id(source):
            raise BadInputError(f"{source}: a job of a service needs --server URL")
        raise BadInputError(
            f"{source}: there is no {file}",
            ["name a folder that automap run wrote, or the report.json in it"],
        )
    report = read_report(str(file), remedy="name the folder of its run, or the report.json in it")
    found = _plan_of(plan or str(file.with_name("plan.json")), source)
    if difference := other_plan(report, found):
        raise BadInputError(
            f"{source}: this is the report of another plan: {difference}",
            ["name the plan that was run with --plan PLAN.json"],
        )
    measured = report.iteration_seconds.measured
    return MeasuredRun(
        source=str(file.absolute()),
        plan=found,
        observed=observed_in(report),
        lengths=_lengths(file.with_name("metrics.jsonl"), report),
        iteration_seconds=None if measured is None else measured.median,
    )


def _plan_of(file: str, source: str) -> Plan:
    if not Path(file).is_file():
        raise BadInputError(
            f"{source}: there is no plan beside the report", ["name it with --plan PLAN.json"]
        )
    found = read_runnable(file)
    if not isinstance(found, Plan):
        raise BadInputError(f"{file} is a job spec; the plan that was run is needed")
    return found


def observed_in(report: RunReport) -> list[Observed]:
    """The calls that were measured after the warm-up."""
    found = []
    for call in report.calls:
        seconds = call.seconds.measured
        if seconds is None:
            continue
        part = call.transition_seconds.measured if call.transition_seconds is not None else None
        found.append(
            Observed(
                call=call.id,
                seconds=seconds.median,
                iterations=seconds.count,
                transition_seconds=None if part is None else part.median,
            )
        )
    return found


def _lengths(file: Path, report: RunReport) -> dict[str, float]:
    """Means over all iterations where the run kept them, else of the last one."""
    names = (*QUANTILES, "mean")
    lines: list[dict[str, Any]] = [dict(report.metrics)]
    if file.is_file():
        lines = [json.loads(line)["data"] for line in file.read_text().splitlines() if line]
    found = {
        name: [line[f"{LENGTH}/{name}"] for line in lines if line.get(f"{LENGTH}/{name}")]
        for name in names
    }
    return {name: statistics.fmean(values) for name, values in found.items() if values}


def read_foreign(source: str, given: str, *, plan: str) -> MeasuredRun:
    """The run of a plan that a log of another framework records.

    Raises:
        BadInputError: there is no such format or plan, or the log has nothing of use.
    """
    if given not in FORMATS:
        known = ", ".join((AUTOMAP, *FORMATS))
        raise BadInputError(f"--format: {given!r} is none of {known}")
    ran = _plan_of(plan, source)
    with naming_options({source: source}):
        found = foreign_run(read_log(source), given, ran, source=source)
    warnings = list(found.warnings)
    if found.missing:
        warnings.append(f"without {', '.join(found.missing)}; nothing is learnt of these calls")
    return MeasuredRun(
        source=str(Path(source).expanduser().absolute()),
        plan=ran,
        observed=found.observed,
        lengths=found.lengths,
        iteration_seconds=found.iteration_seconds,
        warnings=warnings,
    )
