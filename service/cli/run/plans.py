"""The command about plans on a service: list, show, delete."""

import json
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from automap.planner import Plan
from automap.service.cli.backends.client import Service, parsed, uuid_of
from automap.service.cli.inputs.files import error_lines
from automap.service.cli.options.runs import PlansArguments
from automap.service.cli.plan.view import print_plan
from automap.service.cli.run.lists import WIDE_COLUMNS, ask_for_list, show_list
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import NOTHING, plain_table
from automap.service.schemas.base import Page
from automap.service.schemas.plans import PlanRecord, PlanSummary


def run_plans(given: PlansArguments) -> None:
    """List the latest plans, or show, cancel or delete one."""
    service = Service(given.account.server, given.account.api_key)
    if given.plan_id is None:
        _list_plans(service, given)
    else:
        _one_plan(service, given.plan_id, given)


def _list_plans(service: Service, given: PlansArguments) -> None:
    """A row each, and whether there are others."""
    response = ask_for_list(service, "plans", given.chosen, sort=given.sort)
    if given.json:
        console.write_json(json.dumps(response.json(), indent=2))
        return
    page = parsed(Page[PlanSummary], response.content, service)
    wide = console.stdout_console().width >= WIDE_COLUMNS
    table = plain_table()
    for header in ("plan", "status"):
        table.add_column(header, no_wrap=True)
    table.add_column("name", overflow="fold")
    for header in ("owner", "created") if wide else ():
        table.add_column(header, no_wrap=True)
    for header in ("GPUs", "itera-\ntion s", "price"):
        table.add_column(header, justify="right", no_wrap=True)
    for plan in page.items:
        table.add_row(*_cells(plan, wide=wide))
    show_list(table, page, "plan")


def _cells(plan: PlanSummary, *, wide: bool) -> Iterator[RenderableType]:
    yield str(plan.id)
    yield plan.status
    yield Text(formats.printable(plan.name or plan.spec_name))
    if wide:
        yield Text(formats.printable(plan.owner))
        yield f"{plan.created_at.astimezone():%Y-%m-%d %H:%M}"
    seconds, price = plan.iteration_seconds, plan.price_per_iteration
    yield NOTHING if plan.gpus_used is None else f"{plan.gpus_used:,}"
    yield NOTHING if seconds is None else formats.seconds(seconds)
    yield NOTHING if price is None else formats.price(price)


def _one_plan(service: Service, plan_id: str, given: PlansArguments) -> None:
    path = f"plans/{uuid_of(plan_id, listed_by='automap plans')}"
    if given.delete and given.cancel:
        raise BadInputError("--cancel and --delete: give one of them", ["--delete ends it, too"])
    out = console.stdout_console()
    if given.delete:
        service.delete(path)
        if not given.json:
            out.print(Text(f"deleted {plan_id}, with the records of its jobs"), soft_wrap=True)
        return
    method = "POST" if given.cancel else "GET"
    response = service.ask(method, f"{path}/cancel" if given.cancel else path)
    if given.json:
        console.write_json(json.dumps(response.json(), indent=2))
        return
    record = parsed(PlanRecord, response.content, service)
    if isinstance(record.plan, Plan):
        print_plan(record.plan, out, unicode=console.unicode_output(), with_details=given.details)
    else:
        out.print(Text(f"{formats.printable(record.name or record.spec_name)}: {record.status}"))
    if record.problem is not None:
        out.print(Text(formats.printable(record.problem.detail), style="red"), soft_wrap=True)
        for line in error_lines(record.problem.errors):
            out.print(Text(f"  {formats.printable(line)}"), soft_wrap=True)
