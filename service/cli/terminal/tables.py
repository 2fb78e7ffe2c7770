"""What all tables of the command line share: their style, and the widths at which they grow."""

from collections.abc import Iterable

from rich.table import Table

PAGE_COLUMNS = 80
MEDIUM_COLUMNS = 100
WIDE_COLUMNS = 140
NOTHING = "-"
LONGEST_NAME = 24
"""Characters from which on names are broken, so that numbers are not."""


def plain_table() -> Table:
    """A table without lines."""
    return Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)


def kept_whole(names: Iterable[str]) -> bool:
    """Whether a column of these names is short enough to stand unbroken."""
    return all(len(name) <= LONGEST_NAME for name in names)
