"""`automap simulate`: iterations of a plan as discrete events, with lengths drawn anew."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.service.cli.backends.choice import backend_of
from automap.service.cli.options.plans import SimulateArguments
from automap.service.cli.options.shared import Show
from automap.service.cli.plan.inputs import read_or_make_plan, working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, reporting_check
from automap.service.cli.terminal.files import need_folder, write_file
from automap.service.cli.terminal.picture import need_picture
from automap.service.cli.terminal.tables import plain_table

if TYPE_CHECKING:
    from automap.planner import Simulation
    from automap.planner.simulation import Spread


def run_simulate(given: SimulateArguments) -> None:
    """Simulate a plan, or plan a spec and simulate that."""
    backend = backend_of(given.where)
    if given.picture is not None and not backend.gives_timelines:
        raise BadInputError("--picture: a service draws none; leave out --server, or give --trace")
    _check_outputs(given)
    known = read_or_make_plan(backend, given.plan_or_spec, given.show)
    refusal = f"{given.plan_or_spec}: the plan cannot be simulated"
    with reporting_check(refusal), working("Simulating", given.show):
        try:
            simulation, timeline = backend.simulate(
                known,
                iterations=given.iterations,
                seed=given.seed,
                trace=given.trace is not None,
            )
        except ValueError as error:
            raise BadInputError(f"{refusal}: {error}") from None
    write_file(given.trace, json.dumps(simulation.trace))
    if given.picture is not None:
        from automap.service.cli.study.pictures import draw_simulation

        draw_simulation(timeline, title=_title(simulation), path=given.picture)
    _show(simulation.model_copy(update={"trace": None}), given.show)


def _check_outputs(given: SimulateArguments) -> None:
    """Say so before the work, not after it, when a result could not or must not be written."""
    taken = {Path(given.plan_or_spec).resolve(): "is the file that is read"}
    for option, path in (("--trace", given.trace), ("--picture", given.picture)):
        if path is None:
            continue
        need_folder(path)
        if Path(path).is_dir():
            raise BadInputError(f"cannot write {path}: it is a folder")
        if (cause := taken.get(Path(path).resolve())) is not None:
            raise BadInputError(f"{option}: {path} {cause}; name another")
        taken[Path(path).resolve()] = f"is that of {option}"
    need_picture(given.picture)


def _show(simulation: "Simulation", show: Show) -> None:
    if show.json:
        console.write_json(simulation.model_dump_json(indent=2))
        return
    out = console.stdout_console()
    out.print(Text(_title(simulation), style="bold"), soft_wrap=True)
    if not show.quiet:
        out.print(simulation_view(simulation))


def _title(simulation: "Simulation") -> str:
    spread = simulation.iteration_seconds
    return (
        f"{formats.printable(simulation.name)}, {formats.count(simulation.iterations)} iterations: "
        f"median {formats.seconds(spread.p50)}, 95th percentile {formats.seconds(spread.p95)} "
        f"(planned {formats.seconds(simulation.planned_seconds)})"
    )


def simulation_view(simulation: "Simulation") -> Group:
    """Calls with their spread, and which GPUs are idle."""
    calls = _table("event", "planned", "mean", "p50", "p95", "highest")
    for call in simulation.calls:
        planned = formats.seconds(call.planned_seconds)
        calls.add_row(formats.printable(call.name), planned, *_spread(call.seconds))
        for until, spread in (
            ("first chunk", call.first_chunk_seconds),
            ("tail", call.bulk_seconds),
        ):
            if spread is not None:
                calls.add_row(f"  until its {until}", "", *_spread(spread))
    idle = _table("GPUs", "busy", "idle", "share idle")
    for use in simulation.gpus:
        where = formats.gpu_range(use.pool, first_gpu=use.first_gpu, num_gpus=use.num_gpus)
        shown = (formats.seconds(use.busy_seconds), formats.seconds(use.idle_seconds))
        idle.add_row(where, *shown, formats.percent(use.idle_share))
    lines = [
        f"pool {formats.printable(pool.pool)}: {formats.count(pool.idle_gpu_seconds)} idle GPU-"
        f"seconds per iteration on {formats.number_of(pool.num_gpus, 'GPU')} "
        f"({formats.percent(pool.idle_share)})"
        for pool in simulation.pools
    ]
    parts: list[RenderableType] = [
        Text(),
        Text("Calls", style="bold underline"),
        calls,
        Text(),
        Text("Per iteration", style="bold underline"),
        idle,
        Text("\n".join(lines)),
    ]
    return Group(*parts)


def _spread(spread: "Spread") -> list[str]:
    found = (spread.mean, spread.p50, spread.p95, spread.highest)
    return [formats.seconds(value) for value in found]


def _table(name: str, *numbers: str) -> Table:
    table = plain_table()
    table.add_column(name)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table
