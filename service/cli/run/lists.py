"""What the lists of plans and of jobs have in common: which ones, and whether there are others."""

import httpx
from rich.text import Text

from automap.service.cli.backends.client import Service
from automap.service.cli.options.runs import Chosen
from automap.service.cli.terminal import console
from automap.service.client.records import with_query

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


def say_if_more(next_cursor: str | None) -> None:
    """Tell those who look at a list that it goes on."""
    if next_cursor is not None:
        text = "there are more: --limit N (at most 200), or --find, --label, --owner, --status"
        console.stderr_console().print(Text(text), soft_wrap=True)
