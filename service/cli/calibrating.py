"""`automap calibrate`: what runs measured becomes a new version of a profile, or of a spec."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from pydantic import TypeAdapter, ValidationError
from rich.text import Text

from executor.report import RunReport
from planner.calibration import Observed, calibrate, evidence_of
from planner.cost.corrections import Corrections, Evidence
from planner.foreign_logs import FORMATS, foreign_run
from planner.iterations import QUANTILES, ObservedLengths
from planner.lengths import LengthSpec
from planner.result import Plan
from service.cli import console
from service.cli.call_table import plain_table
from service.cli.failures import BadInputError, naming_options
from service.cli.inputs import read_document, read_report, read_runnable
from service.cli.metric_logs import read_log
from service.cli.remote import Service, parsed
from service.documents import MAX_DOCUMENT_BYTES
from service.measured import other_plan
from service.measurement import AnyJobRecord, ProfileJobRecord
from service.schemas import PlanRecord

AUTOMAP = "automap"
"""The format of our own runs."""
LENGTH = "response_length"


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """What the command was given."""

    runs: Sequence[str]
    profile: str | None
    output: str | None
    plan: str | None
    spec: str | None
    output_spec: str | None
    format: str
    as_json: bool
    quiet: bool = False
    server: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run of a plan: its calls, and how long its responses were."""

    source: str
    plan: Plan
    observed: list[Observed]
    lengths: dict[str, float]
    """Quantiles; empty where the run does not say."""


def run_calibrate(options: CalibrateOptions) -> None:
    """Write the calibrated profile, the spec, or both, and show what was learnt."""
    _check(options)
    runs = [_read(each, options) for each in options.runs]
    learnt: Corrections | None = None
    if options.profile is not None:
        assert options.output is not None
        folder = Path(options.profile).expanduser().absolute()
        evidence = [
            each
            for run in runs
            for each in evidence_of(run.plan, run.observed, folder, run=run.source)
        ]
        if not evidence:
            raise BadInputError(
                "these runs say nothing of this profile",
                ["a run needs an iteration after its warm-up, and a call that it times"],
            )
        learnt = calibrate(folder, Path(options.output).expanduser().absolute(), evidence)
    lengths = None
    if options.spec is not None:
        assert options.output_spec is not None
        lengths = _write_spec(options.spec, options.output_spec, runs)
    _show(options, learnt, lengths)


def _check(options: CalibrateOptions) -> None:
    for given, missing in (
        ((options.profile, "--profile"), (options.output, "--output")),
        ((options.spec, "--spec"), (options.output_spec, "--output-spec")),
    ):
        if (given[0] is None) != (missing[0] is None):
            there, lacking = (given, missing) if given[0] is not None else (missing, given)
            raise BadInputError(f"{there[1]} needs {lacking[1]}")
    if options.profile is None and options.spec is None:
        raise BadInputError(
            "nothing to calibrate: give a profile, a spec or both",
            [
                "--profile FOLDER --output FOLDER2 corrects the prices of a measured profile",
                "--spec SPEC --output-spec SPEC2 takes over the lengths of the responses",
            ],
        )


def _read(source: str, options: CalibrateOptions) -> MeasuredRun:
    if options.format == AUTOMAP and options.server is not None and is_id(source):
        return read_job(source, Service(options.server, options.api_key))
    if options.format == AUTOMAP:
        return read_run(source, plan=options.plan)
    if options.plan is None:
        raise BadInputError(f"--format {options.format} needs --plan PLAN: what was run")
    return _read_log(source, options.format, _plan_of(options.plan, source))


def _read_log(source: str, given: str, plan: Plan) -> MeasuredRun:
    """The run that a log of another framework tells of."""
    if given not in FORMATS:
        known = ", ".join((AUTOMAP, *FORMATS))
        raise BadInputError(f"--format: {given!r} is none of {known}")
    path = Path(source).expanduser()
    with naming_options({source: source}):
        found = foreign_run(read_log(source), given, plan, source=source)
    if found.missing:
        note = f"{source}: without {', '.join(found.missing)}; nothing is learnt of these calls"
        console.stderr_console().print(Text(note), soft_wrap=True)
    return MeasuredRun(str(path.absolute()), plan, found.observed, found.lengths)


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
    job = parsed(TypeAdapter(AnyJobRecord), response.content, service.server)
    if isinstance(job, ProfileJobRecord):
        raise BadInputError(f"job {job_id} measures a profile; calibrate learns from runs")
    answer = service.ask("GET", f"plans/{job.plan_id}")
    stored = parsed(PlanRecord, answer.content, service.server)
    if stored.plan is None or job.measured_iteration_seconds is None:
        raise BadInputError(f"job {job_id} has measured no iteration yet: it is {job.status}")
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
    return MeasuredRun(
        source=str(file.absolute()),
        plan=found,
        observed=observed_in(report),
        lengths=_lengths(file.with_name("metrics.jsonl"), report),
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


def _write_spec(source: str, output: str, runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """The spec with the lengths that the runs observed; its maximum stays."""
    document = read_document(source, max_bytes=MAX_DOCUMENT_BYTES)
    try:
        assert isinstance(document, dict)
        before = LengthSpec.model_validate(document["workload"][LENGTH])
    except (AssertionError, KeyError, TypeError, ValidationError):
        raise BadInputError(f"{source}: no job spec with a workload.{LENGTH}") from None
    known = [run.lengths for run in runs if run.lengths]
    means = {
        name: statistics.fmean(each[name] for each in known)
        for name in (*QUANTILES, "mean")
        if known and all(name in each for each in known)
    }
    if not means:
        raise BadInputError(
            "these runs do not say how long their responses were",
            [f"their reports need the metrics {LENGTH}/p50, p90 and p99, or {LENGTH}/mean"],
        )
    observed = ObservedLengths(**means).spec(before)
    document["workload"][LENGTH] = observed.model_dump(exclude_none=True)
    lengths: dict[str, float] = observed.model_dump(exclude_none=True, exclude={"max"})
    try:
        Path(output).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {output}: {error.strerror or error}") from None
    return lengths


def _show(
    options: CalibrateOptions, learnt: Corrections | None, lengths: dict[str, float] | None
) -> None:
    if options.as_json:
        document = {
            "profile": None if learnt is None else options.output,
            "corrections": None if learnt is None else learnt.model_dump(mode="json"),
            "spec": None if lengths is None else options.output_spec,
            LENGTH: lengths,
        }
        console.write_json(json.dumps(document, indent=2))
        return
    out = console.stdout_console()
    if learnt is not None:
        table = plain_table()
        for header in ("call", "models", "factor", "observations", "measured ÷ predicted"):
            table.add_column(header, justify="left" if header in ("call", "models") else "right")
        for each in learnt.corrections:
            own = [
                seen
                for seen in learnt.evidence
                if (seen.kind, seen.role_class) == (each.kind, each.role_class)
            ]
            cells = (each.kind, each.role_class, f"{each.factor:.3f}", str(each.observations))
            table.add_row(*cells, _ratios(own))
        if not options.quiet:
            out.print(table)
        out.print(Text(f"Written to {options.output}"), soft_wrap=True)
    if lengths is not None:
        told = ", ".join(f"{name} {value:g}" for name, value in lengths.items())
        out.print(Text(f"Response lengths: {told}; written to {options.output_spec}"))


def _ratios(evidence: Sequence[Evidence]) -> str:
    ratios = sorted(each.measured / each.predicted for each in evidence)
    if not ratios:
        return "-"
    least, most = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    return least if least == most else f"{least} to {most}"
