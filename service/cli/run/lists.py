"""What the lists of plans and of jobs have in common: which ones, and how they are shown."""

from typing import Any

import httpx
from rich.table import Table
from rich.text import Text

from automap.service.cli.backends.client import Service
from automap.service.cli.options.runs import Chosen
from automap.service.cli.terminal import console
from automap.service.client.records import with_query
from automap.service.schemas.base import Page

WIDE_COLUMNS = 120
"""From this width on a list has more columns."""


def ask_for_list(
    service: Service, path: str, chosen: Chosen, *, sort: str | None = None
) -> httpx.Response:
    """The first page of a list of plans or jobs.

    Raises:
        BadInputError, ServerError: as `Service.ask`.
    """
    asked: dict[str, object] = {"q": chosen.find, "label": chosen.label, "owner": chosen.owner}
    asked |= {"status": chosen.status, "sort": sort, "limit": chosen.limit}
    return service.ask("GET", with_query(path, asked))


def show_list(table: Table, page: Page[Any], noun: str) -> None:
    """The table of a page; that there is nothing, or more, is told on standard error."""
    if page.items:
        console.stdout_console().print(table)
    text = "" if page.items else f"no {noun} was found"
    if page.next_cursor is not None:
        text = "there are more: --limit N (at most 200), or --find, --label, --owner, --status"
    if text:
        console.stderr_console().print(Text(text), soft_wrap=True)
