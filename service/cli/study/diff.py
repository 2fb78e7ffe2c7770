"""The command that puts two plans beside each other."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from automap.planner.plan import PlanDifference, Quantity, plan_difference
from automap.planner.spec import JobSpec
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.options.runs import DiffArguments
from automap.service.cli.options.shared import Where
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import NOTHING, plain_table


def run_diff(given: DiffArguments) -> None:
    """Figures of both plans, calls with their seconds and bytes, and what is placed otherwise."""
    backend = backend_of(Where(server=given.server, api_key=given.api_key))
    known = [backend.read_plan(source) for source in (given.before, given.after)]
    for source, each in zip((given.before, given.after), known, strict=True):
        if isinstance(each, JobSpec):
            raise BadInputError(f"{source} is a job, not a plan", ["plan it first: automap plan"])
    before, after = (each.plan for each in known if not isinstance(each, JobSpec))
    found = plan_difference(before, after)
    if given.json:
        console.write_json(found.model_dump_json(indent=2))
    else:
        _show(found)


def _show(found: PlanDifference) -> None:
    out = console.stdout_console()
    out.print(_table("plan", found.figures))
    out.print(_table("seconds of", found.seconds))
    out.print(_table("peak bytes of", found.peak_bytes))
    for each in found.placement:
        out.print(Text(f"{each.of}: {each.before} -> {each.after}"), soft_wrap=True)
    if not found.placement:
        out.print(Text("the placements are the same"))
    for change in found.spec:
        line = f"spec {change.field}: {change.before} -> {change.after}"
        out.print(Text(formats.printable(line)), soft_wrap=True)


def _table(name: str, quantities: Sequence[Quantity]) -> Table:
    table = plain_table()
    table.add_column(name, no_wrap=True)
    for header in ("before", "after", "change"):
        table.add_column(header, justify="right", no_wrap=True)
    for each in quantities:
        table.add_row(each.of, _number(each.before), _number(each.after), _change(each))
    return table


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.4g}"


def _change(each: Quantity) -> str:
    if not each.before or each.after is None:
        return NOTHING
    return f"{each.after / each.before - 1:+.1%}"
