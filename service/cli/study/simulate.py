"""`automap simulate`: iterations of a plan as discrete events, with lengths drawn anew."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner.plan.types import Plan
from automap.service.cli.plan.command import read_plan
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, telling_check
from automap.service.cli.terminal.files import need_picture
from automap.service.cli.terminal.tables import plain_table

if TYPE_CHECKING:
    from automap.planner.simulation.result import Simulation, Spread
    from automap.planner.simulation.timeline import Occurrence
    from automap.service.cli.remote import Service


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """What the command was given besides the plan."""

    iterations: int
    seed: int
    trace: str | None
    picture: str | None
    as_json: bool
    quiet: bool
    profiles: Sequence[str] = ()
    server: str | None = None
    api_key: str | None = None


def run_simulate(source: str, options: SimulateOptions) -> None:
    """Simulate a plan, or plan a spec and simulate that."""
    from automap.service.cli.remote import service_of

    service = service_of(options.server, options.api_key, profiles=options.profiles)
    if service is not None and options.picture is not None:
        raise BadInputError("--picture: a service draws none; leave out --server, or give --trace")
    _check_outputs(options, source)
    if service is not None:
        simulation = _simulated_on(service, source, options)
        if options.trace is not None:
            _write(options.trace, json.dumps(simulation.trace))
        _show(simulation.model_copy(update={"trace": None}), options)
        return
    plan = read_plan(
        source, profiles=options.profiles, as_json=options.as_json, quiet=options.quiet
    )
    simulation, timeline = _simulated(plan, source, options)
    if options.trace is not None:
        from automap.planner.simulation.chrome_trace import chrome_trace

        _write(options.trace, json.dumps(chrome_trace(timeline)))
    if options.picture is not None:
        from automap.service.cli.study.simulation_picture import draw

        draw(timeline, title=_title(simulation), path=options.picture)
    _show(simulation, options)


def _simulated(
    plan: Plan, source: str, options: SimulateOptions
) -> "tuple[Simulation, list[Occurrence]]":
    from automap.planner.simulation.report import simulate

    refusal = f"{source}: the plan cannot be simulated"
    with telling_check(refusal), console.progress("Simulating", quiet=options.quiet):
        try:
            return simulate(plan, iterations=options.iterations, seed=options.seed)
        except ValueError as error:
            raise BadInputError(f"{refusal}: {error}") from None


def _simulated_on(service: "Service", source: str, options: SimulateOptions) -> "Simulation":
    """The same on a service, whose timeline is a trace alone."""
    from automap.planner.simulation.result import Simulation
    from automap.service.cli.remote import stored_plan

    stored = stored_plan(service, source)
    asked = {
        "iterations": options.iterations,
        "seed": options.seed,
        "trace": options.trace is not None,
    }
    with console.progress("Simulating", quiet=options.quiet):
        return service.answer(f"plans/{stored.id}/simulate", asked, Simulation)


def _check_outputs(options: SimulateOptions, source: str) -> None:
    """Say so before the work, not after it, when a result could not or must not be written."""
    taken = {Path(source).resolve(): "is the file that is read"}
    for option, path in (("--trace", options.trace), ("--picture", options.picture)):
        if path is None:
            continue
        if not Path(path).parent.is_dir():
            raise BadInputError(f"cannot write {path}: there is no folder {Path(path).parent}")
        if Path(path).is_dir():
            raise BadInputError(f"cannot write {path}: it is a folder")
        if (cause := taken.get(Path(path).resolve())) is not None:
            raise BadInputError(f"{option}: {path} {cause}; name another")
        taken[Path(path).resolve()] = f"is that of {option}"
    need_picture(options.picture)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None


def _show(simulation: "Simulation", options: SimulateOptions) -> None:
    if options.as_json:
        console.write_json(simulation.model_dump_json(indent=2))
        return
    out = console.stdout_console()
    out.print(Text(_title(simulation), style="bold"), soft_wrap=True)
    if not options.quiet:
        out.print(simulation_view(simulation))


def _title(simulation: "Simulation") -> str:
    spread = simulation.iteration_seconds
    return (
        f"{formats.printable(simulation.name)}, {formats.count(simulation.iterations)} iterations: "
        f"median {formats.seconds(spread.p50)}, 95th percentile {formats.seconds(spread.p95)} "
        f"(planned {formats.seconds(simulation.planned_seconds)})"
    )


def simulation_view(simulation: "Simulation") -> Group:
    """Calls with their spread, and what stands idle."""
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
        f"pool {formats.printable(pool.pool)}: {formats.count(pool.idle_gpu_seconds)} idle GPU "
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
