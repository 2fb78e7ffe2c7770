"""Exit codes, and how each kind of failure is told."""

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    PlanCheckError,
    Reason,
    SpecError,
)
from automap.planner.studies.result import ExplainedInfeasibleError
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.console import stderr_console

EXIT_OUR_FAULT = 1
EXIT_BAD_INPUT = 2
EXIT_NO_PLAN = 3


class ToldError(Exception):
    """What a headline, a line per thing to know, and the exit code say in full."""

    code = EXIT_OUR_FAULT

    def __init__(self, headline: str, lines: Sequence[str] = ()) -> None:
        super().__init__(headline)
        self.headline = headline
        self.lines = list(lines)


class BadInputError(ToldError):
    """What the user gave is wrong; one line per thing to mend."""

    code = EXIT_BAD_INPUT


class RunFailedError(ToldError):
    """A run did not end well; one line per thing to know."""

    def __init__(self, headline: str, lines: Sequence[str] = (), *, code: int = EXIT_OUR_FAULT):
        super().__init__(headline, lines)
        self.code = code


class ServerError(ToldError):
    """A service or its database failed."""


class UnreachableError(ServerError):
    """Nothing answers at the address that was given."""

    code = EXIT_BAD_INPUT


@contextmanager
def naming_options(
    options: Mapping[str, str], *, otherwise: str = "the spec cannot be planned"
) -> Iterator[None]:
    """What is wrong with a field is told by the option, or file, that the user gave it with.

    An option stands for all fields below its own: with `{"measured": "--call"}` what is wrong with
    `measured.actor.generate` is wrong with `--call actor.generate`. `otherwise` is the headline
    where the field came with none of them.

    Raises:
        BadInputError: in place of every SpecError.
    """
    try:
        yield
    except SpecError as error:
        if (option := typed(error.field, options)) is not None:
            raise _of_option(error, option) from None
        if error.field.startswith("--"):
            raise
        raise _of_spec(error, otherwise) from None


@contextmanager
def telling_check(refusal: str) -> Iterator[None]:
    """A plan that fails the check is told with what the check found, a line each.

    Raises:
        BadInputError: in place of every PlanCheckError.
    """
    try:
        yield
    except PlanCheckError as error:
        raise BadInputError(
            f"{refusal}, it was {error.cause}",
            [*error.found, "plan the job again: automap plan SPEC --output PLAN.json"],
        ) from None


def typed(field: str, options: Mapping[str, str]) -> str | None:
    """The option that a field was given with, and which of its values."""
    if field in options:
        return options[field]
    for name, option in options.items():
        if field.startswith(f"{name}."):
            between = " " if option.startswith("-") else ": "
            return f"{option}{between}{field.removeprefix(f'{name}.')}"
    return None


def _of_option(error: SpecError, option: str) -> BadInputError:
    return BadInputError(f"{option}: {error.message}", [error.remedy] if error.remedy else [])


def _of_spec(error: SpecError, headline: str = "the spec cannot be planned") -> BadInputError:
    remedy = f" ({error.remedy})" if error.remedy else ""
    return BadInputError(headline, [f"{error.field}: {error.message}{remedy}"])


def report(error: Exception, *, debug: bool) -> int:
    """Tell the user on stderr what went wrong; return the exit code."""
    console = stderr_console()
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, SpecError):
        error = _of_option(error, error.field) if error.field.startswith("--") else _of_spec(error)
    if isinstance(error, ToldError):
        _headline(console, error.headline)
        for line in error.lines:
            console.print(Text(f"  {formats.printable(line)}"), soft_wrap=True)
        return error.code
    if isinstance(error, ExplainedInfeasibleError):
        from automap.service.cli.study.several_plans_view import refusal_view

        _headline(console, "no placement is feasible")
        # What was planned stands below, with its price: told once.
        console.print(reasons_view(error.reasons, with_remedies=not error.refusal.remedies))
        console.print(refusal_view(error.refusal, width=console.width))
        return EXIT_NO_PLAN
    if isinstance(error, InfeasibleError):
        _headline(console, "no placement is feasible")
        console.print(reasons_view(error.reasons))
        return EXIT_NO_PLAN
    if isinstance(error, NoSolutionInTimeError):
        _headline(console, str(error))
        return EXIT_NO_PLAN
    _headline(console, f"internal error, a fault of automap: {type(error).__name__}: {error}")
    if not debug:
        console.print(Text("  Run `automap --debug …` for the traceback and report it, please."))
    return EXIT_OUR_FAULT


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
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=True)
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
