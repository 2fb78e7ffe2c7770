"""The command that sets, lists and removes budgets on a service."""

import json

from rich.text import Text

from automap.service.cli.backends.client import Service, parsed
from automap.service.cli.options.runs import BudgetsArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, need_valid
from automap.service.cli.terminal.tables import plain_table
from automap.service.schemas.base import Page
from automap.service.schemas.budgets import BudgetRecord

_ACTIONS = ("list", "set", "remove")
_PAGE = 200


def run_budgets(given: BudgetsArguments) -> None:
    """Set, list or remove budgets.

    Raises:
        BadInputError: no such action, or one without what it needs.
    """
    need_valid("budgets", [given.action], _ACTIONS)
    service = Service(given.account.server, given.account.api_key)
    if given.action != "list" and given.of is None:
        raise BadInputError(f"budgets {given.action}: name one: owner:NAME or label:KEY:VALUE")
    if given.action == "set":
        if given.amount is None:
            raise BadInputError("budgets set: say how much: --amount NUMBER")
        new = {"of": given.of, "unit": given.unit, "amount": given.amount}
        for old in _budgets(service):
            if (old.of, old.unit) == (given.of, given.unit):
                service.ask("DELETE", f"budgets/{old.id}")
        service.ask("POST", "budgets", data=new)
    elif given.action == "remove":
        found = [each for each in _budgets(service) if each.of == given.of]
        if not found:
            raise BadInputError(f"there is no budget of {formats.printable(given.of or '')}")
        for each in found:
            service.ask("DELETE", f"budgets/{each.id}")
    _show(_budgets(service), as_json=given.json)


def _budgets(service: Service) -> list[BudgetRecord]:
    found: list[BudgetRecord] = []
    cursor: str | None = ""
    while cursor is not None:
        following = f"&cursor={cursor}" if cursor else ""
        response = service.ask("GET", f"budgets?limit={_PAGE}{following}")
        page: Page[BudgetRecord] = parsed(Page[BudgetRecord], response.content, service)
        found += page.items
        cursor = page.next_cursor
    return found


def _show(budgets: list[BudgetRecord], *, as_json: bool) -> None:
    if as_json:
        rows = [each.model_dump(mode="json") for each in budgets]
        console.write_json(json.dumps(rows, indent=2))
        return
    out = console.stdout_console()
    if not budgets:
        out.print(Text("there are no budgets"))
        return
    table = plain_table()
    table.add_column("budget of", overflow="fold")
    table.add_column("unit")
    for header in ("a month", "spent", "expected"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for each in budgets:
        amounts = (f"{value:,.2f}" for value in (each.amount, each.spent, each.forecast))
        state = "over" if each.spent > each.amount else "will be over" if each.warning else ""
        table.add_row(formats.printable(each.of), each.unit, *amounts, state)
    out.print(table)
