"""`automap targets SPEC`: what each target costs a job."""

import json

from rich.console import Console
from rich.text import Text

from automap.planner import TargetCost, target_costs
from automap.planner.spec import JobSpec
from automap.planner.targets import ANY, TARGETS
from automap.service.cli.backends.local import Local
from automap.service.cli.options.plans import TargetsArguments
from automap.service.cli.plan.compared_targets import best_of_all, of_drivers
from automap.service.cli.plan.inputs import working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import need_valid
from automap.service.cli.terminal.tables import plain_table

LEAST_SHARE = 5e-4
"""Limits that cost less are only counted."""


def run_targets(given: TargetsArguments) -> None:
    """The best plan of a job for each target, beside what it would be without its limits."""
    names = [name for name in TARGETS if name != ANY.name]
    need_valid("--target", given.target or [], names)
    assert given.spec is not None, "without one targets are listed"
    spec = Local().read_spec(given.spec)
    with working("Planning for each target", given.show) as tell:
        wanted = [name for name in TARGETS if name in (given.target or names)]
        costs = target_costs(spec, wanted, by_limit=not given.brief, tell=tell)
    if given.show.json:
        rows = [cost.model_dump(mode="json", by_alias=True) for cost in costs]
        console.write_json(json.dumps(rows, indent=2))
        return
    out = console.stdout_console()
    _print(spec, costs, out)


def _print(spec: JobSpec, costs: list[TargetCost], out: Console) -> None:
    out.print(Text(f"{formats.printable(spec.name)}: best plans by target", style="bold"))
    best = best_of_all(spec, costs)
    if best:
        out.print(f"  without a target {best}, of all that can be priced")
    for cost in costs:
        if cost.plan is None:
            out.print(Text(f"\n{cost.target}: {cost.reason}"), soft_wrap=True)
            continue
        search = cost.plan.search
        parts = [
            formats.objective_text(spec.search, search.objective_value),
            "beside a best that was not found in time"
            if cost.share is None
            else f"{_percent(cost.share)} more",
            "proven" if search.status == "optimal" else "not proven",
        ]
        out.print(Text.assemble(f"\n{cost.target}: ", (", ".join(parts), "bold")))
        _print_limits(cost, out)
    if told := of_drivers(costs):
        out.print(Text(f"\n{told}"), soft_wrap=True)
    out.print(
        Text(
            "\nA limit costs what the best plan without it alone saves; together they cost more or "
            "less.",
            style="dim",
        )
    )


def _print_limits(cost: TargetCost, out: Console) -> None:
    table = plain_table()
    table.add_column("costs", justify="right", no_wrap=True)
    table.add_column("its limit", overflow="fold")
    costly = [each for each in cost.limits if each.share >= LEAST_SHARE]
    for each in costly:
        least = "" if each.proven else " (at least)"
        table.add_row(_percent(each.share), Text(each.limit + least))
    rest = len(cost.limits) - len(costly)
    if rest:
        table.add_row(_percent(0.0), formats.number_of(rest, "other limit"))
    if cost.limits:
        out.print(table)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
