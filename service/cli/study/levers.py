"""`automap levers SPEC`: what each change would bring a job."""

import json

from rich.console import Console
from rich.text import Text

from automap.planner import Levers, Plan, levers
from automap.planner.studies import Lever
from automap.planner.targets import ANY, TARGETS
from automap.service.cli.backends.local import Local
from automap.service.cli.options.plans import LeversArguments
from automap.service.cli.plan.inputs import working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import need_valid
from automap.service.cli.terminal.tables import plain_table

LEAST_GAIN = 5e-4
"""Changes that bring less bring nothing."""


def run_levers(given: LeversArguments) -> None:
    """The best plan of a job for each target, and what every change would make of it."""
    names = [name for name in TARGETS if name != ANY.name]
    need_valid("--target", given.target or [], list(TARGETS))
    spec = Local().read_spec(given.spec)
    own = spec.search.target
    wanted = given.target or ([own] if own is not None else names)
    with working("Solving one change after another", given.show) as tell:
        found = [levers(spec, name, tell=tell) for name in TARGETS if name in wanted]
    if given.show.json:
        rows = [each.model_dump(mode="json", by_alias=True) for each in found]
        console.write_json(json.dumps(rows, indent=2))
        return
    out = console.stdout_console()
    out.print(Text(f"{formats.printable(spec.name)}: what would change its time", style="bold"))
    for each in found:
        _print(each, out)
    out.print(
        Text("\nEach change by itself; together they bring more or less.", style="dim"),
    )


def _print(found: Levers, out: Console) -> None:
    if found.plan is None:
        out.print(Text(f"\n{found.target}: {found.reason}"), soft_wrap=True)
        return
    out.print(Text.assemble(f"\n{found.target}: ", (_now(found.plan), "bold")))
    table = plain_table()
    for name in ("gain", "s", "price"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("if you …, and what else that changes", overflow="fold")
    for each in found.levers:
        if each.gain is not None and abs(each.gain) >= LEAST_GAIN:
            table.add_row(*_row(each))
    out.print(table)
    for each in found.levers:
        if each.gain is not None and abs(each.gain) < LEAST_GAIN:
            out.print(Text(f"  nothing if you {each.text}", style="dim"), soft_wrap=True)
        if each.gain is None:
            out.print(Text(f"  no plan if you {each.text}: {each.reason}"), soft_wrap=True)


def _now(plan: Plan) -> str:
    proven = "proven" if plan.search.status == "optimal" else "not proven"
    price = formats.price(plan.price_per_iteration)
    return f"{formats.seconds(plan.iteration_seconds)} s per iteration at {price}, {proven}"


def _row(lever: Lever) -> tuple[str, str, str, Text]:
    assert lever.gain is not None
    assert lever.iteration_seconds is not None
    assert lever.price_per_iteration is not None
    about = "" if lever.proven else "~"
    return (
        f"{about}{100 * lever.gain:+.1f} %",
        formats.seconds(lever.iteration_seconds),
        formats.price(lever.price_per_iteration),
        Text.assemble(lever.text, (f"; {lever.risk}", "dim")),
    )
