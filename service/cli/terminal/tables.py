"""What all tables of the command line share: their style, and the widths at which they grow."""

from rich.table import Table

MEDIUM_COLUMNS = 100
WIDE_COLUMNS = 140
NOTHING = "-"


def plain_table() -> Table:
    """A table without lines."""
    return Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
