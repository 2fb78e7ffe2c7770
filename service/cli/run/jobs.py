"""The commands about jobs on a service: submit, list, show, follow, cancel."""

import json
from collections.abc import Iterator

import httpx
from pydantic import TypeAdapter
from rich.console import RenderableType
from rich.text import Text

from automap.executor.telemetry.run_report_view import times
from automap.planner import Plan
from automap.planner.spec import JobSpec
from automap.service.cli.backends.client import Service, parsed, plan_id_of, uuid_of
from automap.service.cli.inputs.files import (
    error_lines,
    read_document,
    read_run_settings,
    read_spec_of,
)
from automap.service.cli.options.runs import JobsArguments, SubmitArguments
from automap.service.cli.profile.on_cluster import show_measurement
from automap.service.cli.profile.progress import MeasureProgress
from automap.service.cli.run.lists import WIDE_COLUMNS, ask_for_list, show_list
from automap.service.cli.run.view import RunProgress, drift_lines, seconds_table
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, RunFailedError
from automap.service.cli.terminal.tables import NOTHING, plain_table
from automap.service.runs.drift_report import advice, suggested
from automap.service.schemas.base import Page
from automap.service.schemas.jobs import JobRecord, JobSummary
from automap.service.schemas.measurements import (
    AnyJobRecord,
    AnyJobSummary,
    ProfileJobRecord,
    ProfileJobSummary,
)
from automap.service.schemas.plans import PlanRecord

EXIT_CANCELLED = 130


def run_submit(given: SubmitArguments) -> None:
    """POST a job for a spec, or for a plan that the service has."""
    service = Service(given.account.server, given.account.api_key)
    what, spec = _what_to_run(given.plan_or_spec, service)
    settings = read_run_settings(
        given.settings, beside=given.plan_or_spec, spec=spec, planned="plan_id" in what
    )
    request = {
        **what,
        **_described(given),
        "settings": settings.model_dump(mode="json", exclude_unset=True),
    }
    start_job(service, "jobs", request, follow=given.follow, as_json=given.json)


def _described(given: SubmitArguments) -> dict[str, object]:
    """What is said of the job, as POST takes it."""
    labels = dict(map(_label, given.label)) if given.label else None
    said = {
        "name": given.name,
        "labels": labels,
        "notes": given.notes,
        "priority": given.priority,
    }
    return {name: value for name, value in said.items() if value is not None}


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key):
        raise BadInputError(f"--label: {text!r} is no label", ["write KEY=VALUE"])
    return key, value


def run_jobs(given: JobsArguments) -> None:
    """List the latest jobs, or show, follow or cancel one, or print its output."""
    service = Service(given.account.server, given.account.api_key)
    if given.job_id is None:
        _list_jobs(service, given)
    else:
        _one_job(service, given.job_id, given)


def start_job(service: Service, path: str, request: object, *, follow: bool, as_json: bool) -> None:
    """POST what makes a job; show it, or stay with it to its end."""
    response = service.ask("POST", path, data=request)
    record = _record(response, service)
    if isinstance(record, JobRecord):
        _warn(record)
    if follow:
        _follow(service, record, as_json=as_json)
    elif as_json:
        console.write_json(json.dumps(response.json(), indent=2))
    else:
        out = console.stdout_console()
        out.print(Text(f"Queued as {service.url(f'jobs/{record.id}')}"), soft_wrap=True)


def _warn(record: JobRecord) -> None:
    """Say on stderr which budgets the job is too much for."""
    for warning in record.warnings:
        line = Text(f"warning: {formats.printable(warning)}", style="yellow")
        console.stderr_console().print(line, soft_wrap=True)


def _list_jobs(service: Service, given: JobsArguments) -> None:
    """The latest jobs, a row each."""
    response = ask_for_list(service, "jobs", given.chosen)
    if given.json:
        console.write_json(json.dumps(response.json(), indent=2))
        return
    page = parsed(TypeAdapter(Page[AnyJobSummary]), response.content, service)
    wide = console.stdout_console().width >= WIDE_COLUMNS
    table = plain_table()
    for header in ("job", "status"):
        table.add_column(header, no_wrap=True)
    table.add_column("spec", overflow="fold")
    if wide:
        table.add_column("created", no_wrap=True)
    numbers = ("predicted\ns", "measured\ns") if wide else ()
    for header in ("itera-\ntion", *numbers, "measured ÷\npredicted"):
        table.add_column(header, justify="right", no_wrap=True)
    for job in page.items:
        table.add_row(*_cells(job, wide=wide))
    show_list(table, page, "job")


def _cells(job: JobSummary | ProfileJobSummary, *, wide: bool) -> Iterator[RenderableType]:
    yield str(job.id)
    yield "cancelling" if job.cancelling else job.status
    if isinstance(job, ProfileJobSummary):
        yield Text("profile of the cluster", style="italic")
        if wide:
            yield f"{job.created_at.astimezone():%Y-%m-%d %H:%M}"
        yield f"{job.seconds:.0f}/{job.budget_seconds:.0f} s"
        return
    predicted, measured = job.predicted_iteration_seconds, job.measured_iteration_seconds
    yield Text(formats.printable(job.name or job.spec_name))
    if wide:
        yield f"{job.created_at.astimezone():%Y-%m-%d %H:%M}"
    yield f"{job.iteration}/{job.iterations}"
    if wide:
        yield NOTHING if predicted is None else formats.seconds(predicted)
        yield NOTHING if measured is None else formats.seconds(measured)
    yield times(predicted, measured)


def _one_job(service: Service, job_id: str, given: JobsArguments) -> None:
    """Cancel a job, print its output, follow it or show it: the first that was asked for."""
    path = f"jobs/{uuid_of(job_id, listed_by='automap jobs')}"
    if given.logs and not given.cancel:
        console.write_json(formats.printable(service.ask("GET", f"{path}/logs").text))
        return
    method, suffix = "GET", ""
    if given.cancel or given.retry:
        method, suffix = "POST", "/cancel" if given.cancel else "/retry"
    response = service.ask(method, path + suffix)
    record = _record(response, service)
    if given.follow and not given.cancel:
        _follow(service, record, as_json=given.json)
    elif given.json:
        console.write_json(json.dumps(response.json(), indent=2))
    else:
        _show(record, service)


def _what_to_run(source: str, service: Service) -> tuple[dict[str, object], JobSpec]:
    """What names it in the request, and the spec that the settings must go with."""
    plan_id = plan_id_of(source)
    if plan_id is None:
        document = read_document(source)
        if not isinstance(document, dict) or "models" in document:
            spec = read_spec_of(document, source)
            return {"spec": spec.model_dump(mode="json", exclude_unset=True)}, spec
        plan_id = document.get("id")
        if plan_id is None:
            raise BadInputError(
                f"{source}: the service does not know this plan",
                [
                    "submit its spec instead, which is then planned there; or plan it there with "
                    "`automap plan SPEC --server URL --json --output RECORD.json` and submit that"
                ],
            )
    response = service.ask("GET", f"plans/{uuid_of(str(plan_id), listed_by='automap plans')}")
    record = parsed(PlanRecord, response.content, service)
    if not isinstance(record.spec, JobSpec):
        raise BadInputError(f"plan {plan_id} is another version's; plan its job again")
    return {"plan_id": str(record.id)}, record.spec


def _follow(service: Service, record: JobRecord | ProfileJobRecord, *, as_json: bool) -> None:
    """Show events until the job is over; the exit code is that of what it ran."""
    path = f"jobs/{record.id}"
    progress = (
        MeasureProgress(quiet=as_json)
        if isinstance(record, ProfileJobRecord)
        else RunProgress(_plan_of(service, record), iterations=record.iterations, quiet=as_json)
    )
    try:
        with progress:
            for event in service.events(record.id):
                progress.take(event)
    except KeyboardInterrupt:
        raise RunFailedError(
            "the job goes on; you only stopped following it",
            [f"automap jobs {record.id} --server {service.server} --cancel"],
            code=EXIT_CANCELLED,
        ) from None
    response = service.ask("GET", path)
    record = _record(response, service)
    if as_json:
        console.write_json(json.dumps(response.json(), indent=2))
    else:
        _show(record, service)
    if record.status == "cancelled":
        raise RunFailedError("the job was cancelled", code=EXIT_CANCELLED)
    if record.problem is not None:
        if record.problem.status < 500:
            raise BadInputError(record.problem.detail, error_lines(record.problem.errors))
        raise RunFailedError(record.problem.detail)


def _plan_of(service: Service, record: JobRecord) -> Plan | None:
    response = service.ask("GET", f"plans/{record.plan_id}")
    plan = parsed(PlanRecord, response.content, service).plan
    return plan if isinstance(plan, Plan) else None


def _show(record: JobRecord | ProfileJobRecord, service: Service) -> None:
    if isinstance(record, ProfileJobRecord):
        show_measurement(record)
        return
    out = console.stdout_console()
    status = "cancelling" if record.cancelling else record.status
    out.print(
        Text.assemble(
            (formats.printable(record.spec_name), "bold"),
            f": {status}, iteration {record.iteration} of {record.iterations}",
            f", attempt {record.attempts}" if record.attempts > 1 else "",
        ),
        soft_wrap=True,
    )
    _warn(record)
    if record.waits_for is not None:
        out.print(Text(f"waits for {formats.printable(record.waits_for)}"), soft_wrap=True)
    if record.output is not None:
        out.print(Text(f"writes to {formats.printable(record.output)}"), soft_wrap=True)
    if record.problem is not None:
        out.print(Text(formats.printable(record.problem.detail), style="red"), soft_wrap=True)
    if record.calls:
        out.print()
        out.print(seconds_table(record.calls))
    for line in drift_lines([line for each in record.suggestions for line in suggested(each)]):
        out.print(line, soft_wrap=True)
    for line in drift_lines(advice(record, server=service.server)):
        out.print(line, soft_wrap=True)


def _record(response: httpx.Response, service: Service) -> JobRecord | ProfileJobRecord:
    return parsed(TypeAdapter(AnyJobRecord), response.content, service)
