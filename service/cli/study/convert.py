"""`automap convert`: the launch of one framework as that of another."""

import json
from collections.abc import Iterable
from contextlib import suppress

import typer
from rich.console import Console
from rich.text import Text

from automap.planner import Imported, Launch, Plan, export, hazards, import_launch
from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    NotExportableError,
    SpecError,
)
from automap.planner.frameworks import framework
from automap.planner.studies import (
    EVERYTHING,
    SHARDING,
    SHARDING_OF,
    Carried,
    carried,
    driver_seconds,
    inside_another,
    most_kept,
    put_back,
    saying,
)
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.backends.protocol import Backend
from automap.service.cli.inputs.launches import read_launch
from automap.service.cli.options.plans import ConvertArguments
from automap.service.cli.plan.inputs import make_plan, working
from automap.service.cli.study.export import (
    folder_of,
    reasons_of,
    show_changes,
    show_launch,
    write_script,
)
from automap.service.cli.study.import_launch import answers_of, reporting_launch
from automap.service.cli.study.verdicts import (
    RUNS,
    SECTIONS,
    in_words,
    of_kind,
    reporting_unfit,
    show_failure,
    show_remarks,
    verdict_of,
)
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import (
    EXIT_NO_PLAN,
    BadInputError,
    naming_options,
    reporting_check,
)

WIDTH = 100
"""Characters of a setting that is lost."""
EXACT = "without --exact the plan is written that keeps the most of it"


def run_convert(given: ConvertArguments) -> None:
    """Read a launch, price it, and write it for the other framework."""
    with naming_options({"target": "--to"}):
        framework(given.target)
    folder = folder_of(given.out, read=given.files)
    backend = backend_of(given.where)
    files = read_launch(given.files)
    source, answers = answers_of(given.said, files)
    if source == given.target:
        told = f"{given.files[0]}: the launch is for {source} already"
        raise BadInputError(told, ["automap advise says what to change in it"])
    with reporting_launch(given.files):
        imported = import_launch(files, source, answers)
    plan = _priced(backend, imported, given)
    found = hazards(imported, plan)
    launch = _written(backend, imported, plan, given)
    kept = carried(imported, launch)
    write_script(launch, folder, read=given.files)
    if given.show.json:
        document = launch.model_dump(mode="json")
        document |= kept.model_dump(mode="json")
        document["hazards"] = [each.model_dump(mode="json", exclude_none=True) for each in found]
        document["remarks"] = [each.model_dump(mode="json") for each in imported.remarks]
        console.write_json(json.dumps(document, indent=2))
    else:
        show_launch(given.show, launch, folder)
    out = console.stderr_console()
    if found:
        show_failure(in_words(found), out)
    if not given.show.quiet:
        _show_kept(imported, launch, kept, out)
    if verdict_of(imported, found) != RUNS:
        raise typer.Exit(EXIT_NO_PLAN)


def _priced(backend: Backend, imported: Imported, given: ConvertArguments) -> Plan:
    with (
        naming_options({"placement": given.files[0]}),
        working("Pricing it", given.show),
        reporting_unfit(imported),
    ):
        return backend.estimate(imported.spec, imported.placement)


def _written(backend: Backend, imported: Imported, plan: Plan, given: ConvertArguments) -> Launch:
    """The launch of the plan, or of the nearest one that the other framework can be told."""
    refusal = f"{given.files[0]}: {given.target} cannot be told what this launch says"
    say = saying(imported)
    with reporting_check(refusal):
        try:
            launch = export(plan, given.target, say=say)
            _show_prices(backend, imported, plan, given)
            return launch
        except NotExportableError as error:
            if given.exact:
                raise BadInputError(refusal, [*reasons_of(error), EXACT]) from None
    try:
        other, what = _nearest(backend, imported, given)
    except SpecError as error:
        # No plan inside it is of the same job: another algorithm, say.
        raise BadInputError(refusal, [error.message]) from None
    try:
        launch = export(other, given.target, say=say)
        if what:
            placement, price = imported.placement, backend.estimate
            other, launch, beside = put_back(other, placement, given.target, price, say)
            what = (*what, *beside)
    except NotExportableError as error:
        refusal = f"{given.files[0]}: nor can the best plan inside {given.target}"
        raise BadInputError(refusal, reasons_of(error)) from None
    engines = [each.spec.workload.rollout_engine for each in (plan, other)]
    if engines[0] != engines[1]:
        told = f"it generates with {engines[1]}, as {given.target} has no {engines[0]}"
        console.stderr_console().print(Text(told), soft_wrap=True)
    console.stderr_console().print(Text(_told(what)), soft_wrap=True)
    show_changes(plan, other, given.target, which="nearest" if what else "best")
    return launch


def _show_prices(backend: Backend, imported: Imported, plan: Plan, given: ConvertArguments) -> None:
    """Seconds of an iteration here and there, on standard error: its software is another."""
    if given.show.quiet:
        return
    told = f"it is kept as it is: {formats.seconds(plan.iteration_seconds)} s per iteration"
    # A service may have measured prices by which it does not fit there.
    with suppress(InfeasibleError, SpecError):
        other = backend.estimate(inside_another(imported.spec, given.target), imported.placement)
        told += (
            f" in {imported.target}, {formats.seconds(other.iteration_seconds)} s in {given.target}"
        )
        parts = {imported.target: plan.spec, given.target: other.spec}
        known = {target: driver_seconds(spec) for target, spec in parts.items()}
        told += "".join(
            f"; {formats.seconds(seconds)} s of them are the driver's of {target}, as measured"
            for target, seconds in known.items()
            if seconds is not None
        )
    console.stderr_console().print(Text(told), soft_wrap=True)


def _nearest(
    backend: Backend, imported: Imported, given: ConvertArguments
) -> tuple[Plan, tuple[str, ...]]:
    """The plan inside the other framework that keeps the most of the launch, and what it keeps."""
    inside = inside_another(imported.spec, given.target)
    with console.progress("Keeping what it can be told", quiet=given.show.quiet) as tell:
        kept = most_kept(inside, imported.placement, given.target)
        # A service may have measured prices by which that does not fit.
        with suppress(InfeasibleError, NoSolutionInTimeError):
            if kept.what:
                return backend.plan(kept.spec, tell).plan, kept.what
    return make_plan(backend, inside, given.show).plan, ()


def _told(kept: tuple[str, ...]) -> str:
    """Which settings of the launch its conversion has, in a line."""
    if not kept:
        return "nothing of the launch's placement can be kept: it is planned anew"
    some = any(each.startswith(SHARDING_OF) for each in kept)
    names = {SHARDING: f"{SHARDING_OF}the others"} if some else {}
    anew = ", ".join(names.get(each, each) for each in EVERYTHING if each not in kept)
    return f"kept of the launch: {', '.join(kept)}" + (f"; planned anew: {anew}" if anew else "")


def _show_kept(imported: Imported, launch: Launch, kept: Carried, out: Console) -> None:
    """What is to be given again, what is lost, and what was odd about the launch."""
    _show_lines(
        "to be given again, and what the launch has there",
        (f"{name}: {_short(value)}" for name, value in kept.had.items()),
        out,
    )
    _show_lines(
        "said in the other's words",
        (
            f"line {each.line}: {_short(f'{each.key}={each.value}')}; now {kept.said[each.key]}"
            for each in imported.settings
            if each.key in kept.said
        ),
        out,
    )
    where = f"{imported.target} -> {launch.target}"
    _show_lines(
        f"lost ({where}): no plan has it, and the new launch does not say it",
        (
            f"line {each.line}: {_short(f'{each.key}={each.value}')}"
            + (f"; the new launch has {kept.instead[each.key]}" if each.key in kept.instead else "")
            for each in kept.lost
        ),
        out,
    )
    for kind, heading in SECTIONS.items():
        if kind != "assumed":
            show_remarks(of_kind(imported, kind), heading, out)


def _show_lines(heading: str, lines: Iterable[str], out: Console) -> None:
    shown = list(lines)
    if shown:
        out.print(Text(f"\n{heading}", style="bold"))
    for each in shown:
        out.print(Text(f"  {formats.printable(each)}"), soft_wrap=True)


def _short(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
