"""The command that says what a plan will cost before it is run."""

from rich.table import Table
from rich.text import Text

from automap.planner.plan import GpuCost, PlanCosts, plan_costs
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.options.runs import CostsArguments
from automap.service.cli.options.shared import Where
from automap.service.cli.plan.inputs import read_or_make_plan
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import NOTHING, plain_table

ALL = "in all"
OTHER_CATALOGUE = (
    "not divided by type: nodes or prices of the catalogue have changed since it was planned"
)


def run_plan_costs(given: CostsArguments, source: str) -> None:
    """What an iteration, the run and a million tokens will cost, by type of GPU."""
    for name in ("by", "after", "before"):
        if getattr(given, name) is not None:
            raise BadInputError(
                f"--{name} is of runs, and {source} is a plan",
                ["leave it out; or leave out the plan, to sum up what runs have cost"],
            )
    backend = backend_of(Where(server=given.server, api_key=given.api_key))
    found = plan_costs(read_or_make_plan(backend, source, given.show).plan)
    if given.show.json:
        console.write_json(found.model_dump_json(indent=2))
    else:
        _show(found)


def _show(found: PlanCosts) -> None:
    out = console.stdout_console()
    line = (
        f"{formats.number_of(found.iterations, 'iteration')} of "
        f"{formats.seconds(found.iteration_seconds)} s, "
        f"{formats.count(found.tokens_per_iteration)} tokens each; "
        f"the run takes {formats.duration(found.run_seconds)}"
    )
    out.print(Text(line), soft_wrap=True)
    out.print(_table(found))
    if found.by_gpu is None:
        out.print(Text(OTHER_CATALOGUE), soft_wrap=True)
    unpriced = sum(each.gpus for each in found.by_gpu or () if not each.run_price)
    if unpriced:
        told = f"{formats.number_of(unpriced, 'GPU')} without a price: price_per_gpu_hour of a pool"
        out.print(Text(told), soft_wrap=True)


def _table(found: PlanCosts) -> Table:
    table = plain_table()
    table.add_column("GPU type", overflow="fold")
    headers = ("GPUs", "price of an\niteration", "of a million\ntokens", "of the\nrun")
    for header in (*headers, "GPU hours\nof the run"):
        table.add_column(header, justify="right", no_wrap=True)
    rows = found.by_gpu or []
    for each in rows:
        table.add_row(each.gpu, *_cells(each))
    if len(rows) != 1:
        table.add_row(ALL, *_cells(found.total))
    return table


def _cells(cost: GpuCost) -> tuple[str, ...]:
    prices = (cost.price_per_iteration, cost.price_per_million_tokens, cost.run_price)
    return (
        formats.count(cost.gpus),
        *(formats.price(each) if each else NOTHING for each in prices),
        f"{cost.run_gpu_hours:,.2f}",
    )
