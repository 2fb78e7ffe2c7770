"""The command that says whether a running plan should be kept."""

from collections.abc import Mapping, Sequence

import typer
from pydantic import ValidationError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import Plan, Replan, ReplanOptions
from automap.planner.replanning import Restart, changed_spec
from automap.planner.spec import JobSpec
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.backends.protocol import Backend, KnownPlan
from automap.service.cli.inputs.files import read_report, wrong_options
from automap.service.cli.options.plans import ReplanArguments
from automap.service.cli.options.shared import Where
from automap.service.cli.plan.inputs import working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, naming_options, reporting_check
from automap.service.cli.terminal.files import need_folder, write_file
from automap.service.cli.terminal.tables import plain_table
from automap.service.cli.terminal.usage import POSITIVE
from automap.service.errors.fields import field_errors

OPTIONS = {
    "measured": "--call",
    "lose_nodes": "--lose-node",
    "add_nodes": "--add-nodes",
    "move_by": "--move-by",
    "iterations_left": "--iterations-left",
    "startup_seconds": "--startup-seconds",
    "checkpoint_seconds": "--checkpoint-seconds",
    "search_seconds": "--search-seconds",
}
"""Field of the request → what it is given with."""


def run_replan(given: ReplanArguments) -> None:
    """Keep or move, with gain, cost and break-even."""
    need_folder(given.output)
    backend = backend_of(Where(server=given.server, api_key=given.api_key))
    known = _running(backend, given.plan)
    reported = _of_report(given.measured, known.plan)
    options = _options(given, reported)
    names = OPTIONS | {f"measured.{it}": f"--measured {given.measured}: {it}" for it in reported}
    names["plan"] = given.plan
    refusal = f"{given.plan}: the plan cannot be looked at again"
    with (
        naming_options(names, otherwise=refusal),
        reporting_check(refusal),
        working("Looking for a better plan", given.show),
    ):
        found = backend.replan(known, options)
    if given.output is not None and found.placement is not None:
        # As a plan to run, it is priced without the corrections.
        new = backend.estimate(changed_spec(known.plan.spec, options), found.placement)
        write_file(given.output, new.model_dump_json(indent=2, by_alias=True))
    if given.show.json:
        console.write_json(found.model_dump_json(indent=2, by_alias=True))
        return
    out = console.stdout_console()
    out.print(Text(found.answer, style="bold"), soft_wrap=True)
    if not given.show.quiet:
        out.print(_view(found))


def _running(backend: Backend, source: str) -> KnownPlan:
    known = backend.read_plan(source)
    if isinstance(known, JobSpec):
        raise BadInputError(
            f"{source}: this is a job spec, not a plan that runs",
            ["plan it first: automap plan SPEC --output PLAN.json"],
        )
    return known


def _options(given: ReplanArguments, reported: Mapping[str, float]) -> ReplanOptions:
    document: dict[str, object] = {
        "measured": {**reported, **_of_calls(given.call or [])},
        "lose_nodes": _of_nodes(given.lose_node or [], "--lose-node", default=1),
        "add_nodes": _of_nodes(given.add_nodes or [], "--add-nodes", default=None),
        "move_by": given.move_by,
        "iterations_left": given.iterations_left,
        "startup_seconds": given.startup_seconds,
        "checkpoint_seconds": given.checkpoint_seconds,
    }
    if given.search_seconds is not None:
        document["search_seconds"] = given.search_seconds
    try:
        return ReplanOptions.model_validate(document)
    except ValidationError as error:
        raise wrong_options(field_errors(error, document), OPTIONS) from None


def _of_report(source: str | None, plan: Plan) -> dict[str, float]:
    """Call id → median seconds of a run's report; what the plan does not know is left out."""
    if source is None:
        return {}
    from automap.service.runs.call_seconds import other_plan

    report = read_report(source)
    if difference := other_plan(report, plan):
        raise BadInputError(
            f"--measured: {source} is the report of another plan: {difference}",
            ["give the plan.json beside the report"],
        )
    measured = {
        call.id: call.seconds.measured.median
        for call in report.calls
        if call.seconds.measured is not None and call.seconds.predicted
    }
    if not measured:
        raise BadInputError(f"{source}: no call of the plan was measured (yet)")
    return measured


def _of_calls(texts: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.rpartition("="))
        if not name:
            raise BadInputError(f"--call: {text!r} is not NAME=SECONDS (actor.generate=31.5)")
        try:
            seconds = POSITIVE(value)
        except typer.BadParameter as error:
            raise BadInputError(f"--call {name}: {error.message}") from None
        _once(found, name, "--call")
        found[name] = seconds
    return found


def _of_nodes(texts: Sequence[str], option: str, *, default: int | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        pool, number = _nodes(text, option, default=default)
        _once(found, pool, option)
        found[pool] = number
    return found


def _once(found: Mapping[str, object], name: str, option: str) -> None:
    if name in found:
        raise BadInputError(f"{option}: {name} is given twice; give it once")


def _nodes(text: str, option: str, *, default: int | None) -> tuple[str, int]:
    """POOL:N, or POOL alone where a default is known."""
    pool, colon, number = text.partition(":")
    if pool and not colon and default is not None:
        return pool, default
    if not pool or not number.isdecimal() or int(number) < 1:
        shape = "POOL:N" if default is None else "POOL or POOL:N"
        raise BadInputError(f"{option}: {text!r} is not {shape}, with N of at least 1")
    return pool, int(number)


def _view(found: Replan) -> Group:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in _lines(found):
        table.add_row(name, Text(value))
    parts: list[RenderableType] = [Text(), table]
    if found.calls:
        parts += [Text(), Text("Calls", style="bold underline"), _calls(found)]
    return Group(*parts)


def _lines(found: Replan) -> list[tuple[str, str]]:
    lines = []
    for each in found.corrections:
        lines.append(
            (
                "measured",
                f"{each.role}.{each.kind} takes {each.ratio:.2f} times as long as estimated "
                f"({formats.seconds(each.measured_seconds)} s)",
            )
        )
    proof = "proven to within" if found.proven else "not proven: gap"
    share = found.margin if found.proven else found.relative_gap
    lines.append(("search", f"{proof} {100 * share:.2g} %"))
    if found.cost is not None:
        cost = found.cost
        lines.append(
            (
                "move",
                f"{cost.total_bytes / 1e9:,.1f} GB over links (at least "
                f"{formats.seconds(cost.reshard_seconds)} s), or a restart of "
                f"{formats.seconds(cost.restart_seconds)} s",
            )
        )
        lines += _restart(cost.restart)
        lines.append(("changes", found.changes))
        if found.keep_seconds is not None:
            lines.append(("whole run", _whole_run(found)))
    tables = "prices reused" if found.tables_kept else "prices computed again"
    lines.append(("took", f"{1000 * found.replanned_in_seconds:.0f} ms, {tables}"))
    return lines


def _restart(found: Restart | None) -> list[tuple[str, str]]:
    """What of a restart nobody gave, and how to give it."""
    if found is None or not found.estimated:
        return []
    parts = (
        ("checkpoint", found.checkpoint_seconds, found.checkpoint_estimated),
        ("startup", found.startup_seconds, found.startup_estimated),
    )
    given = [f"{name} {formats.seconds(s)} s" for name, s, estimated in parts if estimated]
    options = [f"--{name}-seconds" for name, _, estimated in parts if estimated]
    return [("estimated", f"{', '.join(given)}; give what you know with {' and '.join(options)}")]


def _whole_run(found: Replan) -> str:
    if found.iterations_left is None or found.saved_seconds is None:
        return "how many iterations are left is not known; give --iterations-left"
    saved = formats.duration(abs(found.saved_seconds))
    word = "saves" if found.saved_seconds >= 0 else "loses"
    return f"{word} {saved} over {found.iterations_left:,} iterations"


def _calls(found: Replan) -> Table:
    table = plain_table()
    for name in ("call", "layout"):
        table.add_column(name, no_wrap=True)
    for name in ("GPUs", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.calls:
        table.add_row(
            each.id,
            each.layout,
            f"{each.plan_num_gpus} → {each.num_gpus}",
            f"{formats.seconds(each.plan_seconds)} → {formats.seconds(each.seconds)}",
        )
    return table
