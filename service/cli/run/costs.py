"""The command about what runs on a service have cost."""

import json
from urllib.parse import urlencode

from rich.text import Text

from automap.service.cli.backends.client import Service, parsed
from automap.service.cli.options.runs import CostsArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import plain_table
from automap.service.schemas.costs import Cost, Costs


def run_costs(given: CostsArguments) -> None:
    """GPU hours and price, group by group, with their sum."""
    if given.server is None:
        raise BadInputError(
            "--server is missing: what runs have cost is what a service knows",
            ["give its URL; or a plan, to see what it will cost: automap costs PLAN"],
        )
    service = Service(given.server, given.api_key)
    asked = {"by": given.by, "after": given.after, "before": given.before}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    response = service.ask("GET", f"costs?{query}")
    if given.show.json:
        console.write_json(json.dumps(response.json(), indent=2))
        return
    found = parsed(Costs, response.content, service)
    out = console.stdout_console()
    if not found.items:
        out.print(Text("no run has used a GPU then"))
        return
    table = plain_table()
    table.add_column(found.by, overflow="fold")
    for header in ("runs", "GPU\nhours", "price", "unpriced\nGPU hours"):
        table.add_column(header, justify="right", no_wrap=True)
    for item in found.items:
        table.add_row(formats.printable(item.group) or "none", *_cells(item))
    table.add_section()
    table.add_row("in all", *_cells(found.total))
    out.print(table)


def _cells(cost: Cost) -> tuple[str, str, str, str]:
    return (
        str(cost.jobs),
        formats.price(cost.gpu_hours),
        formats.price(cost.price),
        formats.price(cost.unpriced_gpu_hours),
    )
