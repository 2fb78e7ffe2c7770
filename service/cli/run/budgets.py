"""The command that sets, lists and removes budgets on a service."""

import json

from rich.text import Text

from automap.service.cli.backends.client import Service
from automap.service.cli.options.runs import BudgetsArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, need_valid, refusing_options
from automap.service.cli.terminal.tables import plain_table
from automap.service.schemas.budgets import BudgetRecord, NewBudget

_ACTIONS = ("list", "set", "remove")


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
        _set(service, given)
    elif given.action == "remove":
        found = [each for each in _budgets(service) if each.of == given.of]
        if not found:
            raise BadInputError(f"there is no budget of {formats.printable(given.of or '')}")
        with service.telling():
            for each in found:
                service.client.delete_budget(each.id)
    _show(_budgets(service), as_json=given.json)


def _set(service: Service, given: BudgetsArguments) -> None:
    """In place of the one there is, which stays if the new one is none."""
    if given.amount is None:
        raise BadInputError("budgets set: say how much: --amount NUMBER")
    with refusing_options(of="WHOSE"):
        new = NewBudget.model_validate({"of": given.of, "unit": given.unit, "amount": given.amount})
    with service.telling():
        for old in list(service.client.budgets()):
            if (old.of, old.unit) == (new.of, new.unit):
                service.client.delete_budget(old.id)
        service.client.set_budget(new)


def _budgets(service: Service) -> list[BudgetRecord]:
    with service.telling():
        return list(service.client.budgets())


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
        amounts = map(formats.price, (each.amount, each.spent, each.forecast))
        state = "over" if each.spent > each.amount else "will be over" if each.warning else ""
        table.add_row(formats.printable(each.of), each.unit, *amounts, state)
    out.print(table)
