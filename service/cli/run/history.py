"""The command that puts what plans predicted beside what their runs measured."""

import json
from collections.abc import Iterator

from pydantic import BaseModel
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from automap.service.cli.backends.client import Service, parsed, uuid_of
from automap.service.cli.options.runs import HistoryArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.tables import NOTHING, plain_table
from automap.service.schemas.history import CallAccuracy, HistoryPage, JobHistory, PlanHistory

ROWS_PER_RUN = 12
"""How many rows show a run over time; of more windows every nth is shown."""


def run_history(given: HistoryArguments) -> None:
    """Show one plan run by run and over time, or the latest runs of all plans."""
    plan_id = given.plan_id
    service = Service(given.account.server, given.account.api_key)
    path = "plans/history"
    if plan_id is not None:
        path = f"plans/{uuid_of(plan_id, listed_by='automap history')}/history"
    response = service.ask("GET", path)
    if given.json:
        console.write_json(json.dumps(response.json(), indent=2))
        return
    model: type[BaseModel] = HistoryPage if plan_id is None else PlanHistory
    found = parsed(model, response.content, service)
    out = console.stdout_console()
    parts: Iterator[RenderableType] = iter(())
    if isinstance(found, HistoryPage):
        parts = _all_plans(found)
    elif isinstance(found, PlanHistory):
        parts = _one_plan(found)
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, Text))


def _all_plans(found: HistoryPage) -> Iterator[RenderableType]:
    if not found.items:
        yield Text("no plan was run yet")
        return
    table = _table("plan", "spec", "ended at\niteration")
    for job in found.items:
        name = Text(formats.printable(job.spec_name))
        table.add_row(str(job.plan_id), name, str(job.iterations), *_cells(job.iteration))
    yield table
    yield Text()
    errors = plain_table()
    errors.add_column("error of", no_wrap=True)
    for header in ("times", "median", "mean", "measured ÷\npredicted"):
        errors.add_column(header, justify="right", no_wrap=True)
    for each in found.accuracy:
        usual = f"{1 / (1 + each.bias):.2f}"
        shares = (f"{each.median_error:.1%}", f"{each.mean_error:.1%}")
        errors.add_row(each.kind, str(each.count), *shares, usual)
    yield errors


def _one_plan(found: PlanHistory) -> Iterator[RenderableType]:
    predicted = formats.seconds(found.iteration_seconds)
    name = formats.printable(found.spec_name)
    yield Text.assemble((name, "bold"), f": {predicted} s an iteration were predicted")
    if not found.jobs:
        yield Text("no run of it has measured an iteration yet")
    for job in found.jobs:
        yield Text()
        yield Text(
            f"job {job.job_id}: {job.status}, {formats.number_of(job.iterations, 'iteration')}, "
            f"{job.created_at.astimezone():%Y-%m-%d %H:%M}"
        )
        yield _calls(job)
        if len(job.stretches) > 1:
            yield _over_time(job)


def _calls(job: JobHistory) -> Table:
    table = _table("call")
    table.add_row("iteration", *_cells(job.iteration))
    for name, each in job.calls.items():
        table.add_row(Text(formats.printable(name)), *_cells(each))
    return table


def _over_time(job: JobHistory) -> Table:
    """The iteration, in a few rows; --json has its calls, too."""
    table = _table("iterations")
    table.add_column("tokens", justify="right", no_wrap=True)
    step = -(-len(job.stretches) // ROWS_PER_RUN)
    for each in job.stretches[::step]:
        tokens = each.response_tokens
        first, last = each.first_iteration, each.last_iteration
        table.add_row(
            str(first) if first == last else f"{first}-{last}",
            *_cells(each.iteration),
            NOTHING if tokens is None else formats.count(tokens),
        )
    return table


def _table(*names: str) -> Table:
    table = plain_table()
    for name in names:
        table.add_column(name, no_wrap=name != "spec", overflow="fold")
    for header in ("predicted\ns", "measured\ns", "measured ÷\npredicted", "error"):
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _cells(each: CallAccuracy) -> tuple[str, str, str, str]:
    predicted, measured = each.predicted_seconds, each.measured_seconds
    ratio = f"{measured / predicted:.2f}" if predicted else NOTHING
    error = NOTHING if each.relative_error is None else f"{each.relative_error:+.1%}"
    return formats.seconds(predicted), formats.seconds(measured), ratio, error
