"""Exit codes, and how each kind of failure is told."""

import sys
import traceback
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.errors import InfeasibleError, NoSolutionInTimeError, Reason, SpecError
from service.cli import formats
from service.cli.console import stderr_console

EXIT_OUR_FAULT = 1
EXIT_BAD_INPUT = 2
EXIT_NO_PLAN = 3


class BadInputError(Exception):
    """What the user gave is wrong; one line per thing to mend."""

    def __init__(self, headline: str, lines: Sequence[str] = ()) -> None:
        super().__init__(headline)
        self.headline = headline
        self.lines = list(lines)


class ServerError(Exception):
    """A service or its database failed or could not be reached."""


def report(error: Exception, *, debug: bool) -> int:
    """Tell the user on stderr what went wrong; return the exit code."""
    console = stderr_console()
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, BadInputError):
        _headline(console, error.headline)
        for line in error.lines:
            console.print(Text(f"  {line}"), soft_wrap=True)
        return EXIT_BAD_INPUT
    if isinstance(error, SpecError):
        _headline(console, "the spec cannot be planned")
        remedy = f" ({error.remedy})" if error.remedy else ""
        console.print(Text(f"  {error.field}: {error.message}{remedy}"), soft_wrap=True)
        return EXIT_BAD_INPUT
    if isinstance(error, InfeasibleError):
        _headline(console, "no placement is feasible")
        console.print(reasons_table(error.reasons))
        return EXIT_NO_PLAN
    if isinstance(error, NoSolutionInTimeError):
        _headline(console, str(error))
        return EXIT_NO_PLAN
    if isinstance(error, ServerError):
        _headline(console, str(error))
        return EXIT_OUR_FAULT
    _headline(console, f"internal error, a fault of automap: {type(error).__name__}: {error}")
    if not debug:
        console.print(Text("  Run `automap --debug …` for the traceback and report it, please."))
    return EXIT_OUR_FAULT


def reasons_table(reasons: Sequence[Reason]) -> Table:
    """Why no placement fits and what would make one fit, one reason a row."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("needs\nGiB", justify="right", no_wrap=True)
    table.add_column("has\nGiB", justify="right", no_wrap=True)
    table.add_column("over\nGiB", justify="right", no_wrap=True)
    table.add_column("why, and what would help", overflow="fold")
    for reason in reasons:
        why = Text(reason.summary)
        if reason.remedy:
            why.append(f"\n→ {reason.remedy}", style="bold")
        table.add_row(
            Text(reason.phase or "-"),
            *(
                "-" if value is None else formats.gib(value)
                for value in (reason.required_bytes, reason.capacity_bytes, reason.over_bytes)
            ),
            why,
        )
    return table


def _headline(console: Console, text: str) -> None:
    console.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
