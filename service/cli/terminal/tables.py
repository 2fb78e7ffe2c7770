"""What all tables of the command line share: their style, and the widths at which they grow."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from automap.service.cli.terminal.console import WholeConsole

PAGE_COLUMNS = 80
MEDIUM_COLUMNS = 100
WIDE_COLUMNS = 140
NOTHING = "-"
LONGEST_NAME = 24
"""Characters from which on names are broken, so that numbers are not."""


_NO_LIMIT = 100_000


class WholeTable(Table):
    """A table that is as wide as its cells wherever nothing says how wide lines may be."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if isinstance(console, WholeConsole):
            options = options.update_width(_NO_LIMIT)
        return super().__rich_console__(console, options)


def plain_table() -> Table:
    """A table without lines."""
    return WholeTable(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)


def kept_whole(names: Iterable[str]) -> bool:
    """Whether a column of these names is short enough to stand unbroken."""
    return all(len(name) <= LONGEST_NAME for name in names)
