"""How each kind of failure is reported on stderr."""

import sys
import traceback
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, Reason, SpecError
from automap.planner.studies import ExplainedInfeasibleError
from automap.service.cli.study.several_plans_view import refusal_view
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.console import stderr_console
from automap.service.cli.terminal.failures import (
    EXIT_NO_PLAN,
    EXIT_OUR_FAULT,
    ReportedError,
    UnpricedInfeasibleError,
    of_option,
    of_spec,
)
from automap.service.cli.terminal.tables import WholeTable

UNSURE = "it does not fit by its price, but may with what saves memory and is not priced:"


def report(error: Exception, *, debug: bool) -> int:
    """Say on stderr what went wrong; return the exit code."""
    console = stderr_console()
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, SpecError):
        error = of_option(error, error.field) if error.field.startswith("--") else of_spec(error)
    if isinstance(error, ReportedError):
        _headline(console, error.headline)
        for line in error.lines:
            console.print(Text(f"  {formats.printable(line)}"), soft_wrap=True)
        return error.code
    if isinstance(error, InfeasibleError):
        _report_infeasible(console, error)
        return EXIT_NO_PLAN
    if isinstance(error, NoSolutionInTimeError):
        _headline(console, str(error))
        return EXIT_NO_PLAN
    _headline(console, f"internal error, a fault of automap: {type(error).__name__}: {error}")
    if not debug:
        console.print(Text("  Run `automap --debug …` for the traceback and report it, please."))
    return EXIT_OUR_FAULT


def _report_infeasible(console: Console, error: InfeasibleError) -> None:
    settings = error.settings if isinstance(error, UnpricedInfeasibleError) else []
    _headline(console, UNSURE if settings else "no placement is feasible")
    for line in settings:
        console.print(Text(f"  {formats.printable(line)}"), soft_wrap=True)
    if not isinstance(error, ExplainedInfeasibleError):
        console.print(reasons_view(error.reasons))
        return
    # What was planned is below, with its price.
    console.print(reasons_view(error.reasons, with_remedies=not error.refusal.remedies))
    console.print(refusal_view(error.refusal, width=console.width))


def reasons_view(reasons: Sequence[Reason], *, with_remedies: bool = True) -> Group:
    """Why no placement fits, then what would make one fit, each once."""
    remedies = list(dict.fromkeys(reason.remedy for reason in reasons if reason.remedy))
    # A reason that only says its remedy is no cause of its own.
    causes = [
        reason
        for reason in reasons
        if not (reason.remedy and reason.summary == f"it would fit if you {reason.remedy}")
    ]
    parts: list[RenderableType] = [_causes_table(causes)] if causes else []
    if remedies and with_remedies:
        parts.append(Text("It would fit with any one of:", style="bold"))
        parts += [Text(f"- {formats.printable(remedy)}") for remedy in remedies]
    return Group(*parts)


def _causes_table(causes: Sequence[Reason]) -> Table:
    """A cause a row, with the columns for which some cause has a value."""
    table = WholeTable(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=True)
    columns: list[list[str]] = []
    if any(reason.phase for reason in causes):
        table.add_column("phase", no_wrap=True)
        columns.append([formats.printable(reason.phase or "-") for reason in causes])
    for header, name in (
        ("needs\nGiB", "required_bytes"),
        ("has\nGiB", "capacity_bytes"),
        ("over\nGiB", "over_bytes"),
    ):
        values = [getattr(reason, name) for reason in causes]
        if any(value is not None for value in values):
            table.add_column(header, justify="right", no_wrap=True)
            columns.append(["-" if value is None else formats.gib(value) for value in values])
    table.add_column("why", overflow="fold")
    columns.append([formats.printable(reason.summary) for reason in causes])
    for cells in zip(*columns, strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _headline(console: Console, text: str) -> None:
    console.print(Text.assemble(("error: ", "bold red"), formats.printable(text)), soft_wrap=True)
