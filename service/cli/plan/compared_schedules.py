"""`automap compare --schedules`: synchronous, one step off and continuous plans in one table."""

import json

from rich.table import Table
from rich.text import Text

from automap.planner import ScheduleCost, schedules
from automap.planner.spec import JobSpec
from automap.service.cli.options.plans import CompareArguments
from automap.service.cli.plan.details import in_flight
from automap.service.cli.plan.inputs import working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import plain_table


def compare_schedules(given: CompareArguments, spec: JobSpec) -> None:
    """Plan the job under each schedule and show one beside the other."""
    if given.strategy or given.targets is not None:
        raise BadInputError(
            "--schedules is a comparison of its own", ["leave out --strategy and --targets"]
        )
    with working("Planning each schedule", given.show) as tell:
        costs = schedules(spec, tell=tell)
    if all(each.plan is None for each in costs):
        raise BadInputError("no schedule has a plan", [f"{e.schedule}: {e.reason}" for e in costs])
    if given.show.json:
        documents = [each.model_dump(mode="json", by_alias=True) for each in costs]
        console.write_json(json.dumps(documents, indent=2))
        return
    out = console.stdout_console()
    out.print(_table(costs))
    for each in costs:
        if each.plan is None:
            text = f"{each.schedule}: {formats.printable(each.reason)}"
            out.print(Text(text), soft_wrap=True)
    if not given.show.quiet:
        target = spec.search.target
        where = f"for {target}" if target else "of all that can be priced (search.target: any)"
        for line in (f"Each is the best plan {where}.", *_notes(costs)):
            out.print(Text(line, style="dim"), soft_wrap=True)


def _table(costs: list[ScheduleCost]) -> Table:
    table = plain_table()
    table.add_column("schedule", no_wrap=True)
    heads = ("staleness", "seconds", "faster", "generate", "idle", "others idle")
    for head in (*heads, "proof"):
        table.add_column(head, justify="right")
    for each in costs:
        plan = each.plan
        if plan is None:
            table.add_row(each.schedule, str(each.staleness), *["-"] * (len(heads) - 1), "no plan")
            continue
        table.add_row(
            each.schedule,
            str(each.staleness),
            f"{formats.seconds(plan.iteration_seconds)} s",
            "-" if each.times_faster is None else f"{each.times_faster:.2f} x",
            formats.number_of(each.generating_gpus, "GPU"),
            _share(each.idle_generating),
            _share(each.idle_others),
            "optimal" if plan.search.status == "optimal" else "not proven",
        )
    return table


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _notes(costs: list[ScheduleCost]) -> list[str]:
    """What the continuous plan says of its steady state."""
    plan = costs[-1].plan
    steady = None if plan is None else plan.continuous
    if plan is None or steady is None:
        return []
    lines = [f"continuous: {in_flight(steady)}"]
    return [*lines, *(w for w in plan.warnings if w.startswith("search.continuous_rollouts"))]
