"""`automap compare --targets`: the best plan of a job inside each target, in one table."""

import json
from typing import Any

from rich.table import Table
from rich.text import Text

from automap.planner import TargetCost, target_cost
from automap.planner.frameworks import framework, framework_names
from automap.planner.spec import JobSpec
from automap.planner.targets import ANY, TARGETS, limits_in_words
from automap.service.cli.options.plans import CompareArguments
from automap.service.cli.plan.inputs import working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, need_valid
from automap.service.cli.terminal.tables import plain_table

ALL = "all"


def compare_targets(given: CompareArguments, spec: JobSpec) -> None:
    """Plan the job inside each target, without its limits, and show one beside the other."""
    if given.strategy:
        raise BadInputError("--strategy and --targets are two comparisons", ["give one of them"])
    names = [name for name in TARGETS if name != ANY.name]
    wanted = (
        names if given.targets == ALL else [e.strip() for e in (given.targets or "").split(",")]
    )
    need_valid("--targets", wanted, names)
    with working("Planning for each target", given.show) as tell:
        costs = [
            target_cost(spec, name, by_limit=False, tell=tell) for name in names if name in wanted
        ]
    if given.show.json:
        console.write_json(json.dumps([_as_json(each) for each in costs], indent=2))
        return
    out = console.stdout_console()
    out.print(_table(costs))
    for each in costs:
        if each.plan is None:
            out.print(Text(f"{each.target}: {formats.printable(each.reason)}"), soft_wrap=True)
    if given.show.quiet:
        return
    for each in costs:
        unsaid = _unsaid(each)
        out.print(Text(f"\n{each.target} cannot be told:", style="bold"))
        for line in unsaid or ["nothing that plans decide is beyond it"]:
            out.print(Text(f"  {line}", style="dim"), soft_wrap=True)


def _table(costs: list[TargetCost]) -> Table:
    table = plain_table()
    table.add_column("target", no_wrap=True)
    for head in ("seconds", "price", "out of memory", "proof", "its limits cost"):
        table.add_column(head, justify="right")
    for each in costs:
        plan = each.plan
        if plan is None:
            table.add_row(each.target, "-", "-", "-", "no plan", "-")
            continue
        chance = plan.out_of_memory_probability
        table.add_row(
            each.target,
            f"{formats.seconds(plan.iteration_seconds)} s",
            formats.price(plan.price_per_iteration),
            "-" if chance is None else formats.chance(chance),
            "optimal" if plan.search.status == "optimal" else "not proven",
            "not known" if each.share is None else f"{100 * each.share:.1f} %",
        )
    return table


def _unsaid(cost: TargetCost) -> list[str]:
    """What a target cannot be told: a framework's limits in its words, else those of its table."""
    if cost.target in framework_names():
        return [limit.what for limit in framework(cost.target).limits]
    return limits_in_words(TARGETS[cost.target])


def _as_json(cost: TargetCost) -> dict[str, Any]:
    plan = cost.plan
    return {
        "target": cost.target,
        "reason": cost.reason,
        "iteration_seconds": None if plan is None else plan.iteration_seconds,
        "price_per_iteration": None if plan is None else plan.price_per_iteration,
        "out_of_memory_probability": None if plan is None else plan.out_of_memory_probability,
        "status": None if plan is None else plan.search.status,
        "free_value": cost.free_value,
        "share": cost.share,
        "cannot_be_told": _unsaid(cost),
        "plan": None if plan is None else plan.model_dump(mode="json", by_alias=True),
    }
