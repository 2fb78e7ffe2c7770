"""What becomes of a launch: it runs as it says, or not, or has the price of another one."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from automap.planner import Imported
from automap.planner.errors import InfeasibleError, Reason
from automap.planner.imports import Remark, unpriced_savings
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import UnpricedInfeasibleError

SAVES = "not priced, and saves memory"
RUNS, FAILS = "fits, and runs as it says", "does not run as it says"
OTHERWISE = "is not priced as what it says"
"""What becomes of a launch that can be priced."""
SECTIONS = {
    "priced otherwise": OTHERWISE,
    "saves memory": SAVES,
    "contradiction": "contradicts itself",
    "without effect": "without effect",
    "replaced": "of an earlier version",
    "unknown key": "unknown keys",
    "not read": "not read",
    "not priced": "not priced",
    "assumed": "assumed",
}
"""Kind of remark → its heading, in the order of what matters; what fails is of the verdict."""


def verdict_of(imported: Imported, found: list[Reason]) -> str:
    """What becomes of a launch that has a price; `found` are its hazards."""
    if found:
        return FAILS
    return OTHERWISE if of_kind(imported, "priced otherwise") else RUNS


@contextmanager
def reporting_unfit(imported: Imported, *, quiet: bool = False) -> Iterator[None]:
    """Say of a launch that does not fit what else keeps it from running, unless `quiet`.

    Raises:
        UnpricedInfeasibleError: it may fit, by settings of its own that have no price.
    """
    try:
        yield
    except InfeasibleError as error:
        unfit = [each.text for each in of_kind(imported, "does not fit")]
        if unfit and not quiet:
            show_failure(unfit)
        savings = [where_of(each) + each.text for each in unpriced_savings(imported.remarks)]
        if savings and all(each.required_bytes is not None for each in error.reasons):
            raise UnpricedInfeasibleError(error.reasons, savings) from None
        raise


def in_words(reasons: Iterable[Reason]) -> list[str]:
    """Reasons as lines, each with its remedy."""
    return [
        f"{reason.summary} ({reason.remedy})" if reason.remedy else reason.summary
        for reason in reasons
    ]


def of_kind(imported: Imported, kind: str) -> list[Remark]:
    """Remarks of one kind."""
    return [each for each in imported.remarks if each.kind == kind]


def show_failure(lines: Iterable[str], out: Console | None = None) -> None:
    """Say that a launch does not run as it says, and why."""
    out = out or console.stdout_console()
    out.print(Text(f"\n{FAILS}", style="bold yellow"))
    for line in lines:
        out.print(Text(f"  {line}"), soft_wrap=True)


def show_remarks(remarks: list[Remark], heading: str, out: Console) -> None:
    """Remarks of one kind below their heading; nothing where there is none."""
    if remarks:
        out.print(Text(f"\n{heading}", style="bold"))
    for each in remarks:
        out.print(Text(f"  {where_of(each)}{each.text}"), soft_wrap=True)


def where_of(remark: Remark) -> str:
    """The line of a remark, before its text; empty: it is of none."""
    return f"line {remark.line}: " if remark.line else ""
