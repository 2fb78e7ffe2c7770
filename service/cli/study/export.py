"""`automap export`: a plan as the launch of another framework."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.text import Text

from automap.planner import Launch, Plan, export_into
from automap.planner.errors import NotExportableError
from automap.planner.frameworks import framework
from automap.planner.imports import LaunchFile, Rewritten
from automap.planner.plan import differences
from automap.planner.spec import JobSpec, TargetName
from automap.planner.studies import inside_another
from automap.planner.targets import inside
from automap.planner.units import GIB
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.backends.protocol import Backend, KnownPlan
from automap.service.cli.inputs.launches import read_launch
from automap.service.cli.options.plans import ExportArguments
from automap.service.cli.options.shared import Show
from automap.service.cli.plan.inputs import make_plan
from automap.service.cli.study.import_launch import reporting_launch, values_of
from automap.service.cli.study.rewriting import need_output, show_rewritten, write_launch
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, naming_options, reporting_check
from automap.service.cli.terminal.files import make_folder, need_no_file, write_file

SCRIPT = "launch.sh"
NEAREST = "--nearest exports the best plan of its job that can be"


def run_export(given: ExportArguments) -> None:
    """Export a plan, or plan a spec and export that."""
    with naming_options({"target": "--target"}):
        framework(given.target)
    if given.into:
        _run_into(given)
        return
    if given.set or given.job:
        raise BadInputError("--set and --job are of a launch", ["name it with --into FILE"])
    folder = folder_of(given.out)
    backend = backend_of(given.where)
    known = _planned(backend, given)
    launch = _exportable(backend, known, given)[1]
    write_script(launch, folder)
    show_launch(given.show, launch, folder)


def folder_of(out: str, *, read: Sequence[str] = ()) -> Path | None:
    """Where a launch goes; None: standard output. It does not go over a file that is read.

    A folder that is not there is made when the launch is written.
    """
    folder = None if out == "-" else Path(out)
    if folder is not None:
        need_no_file(folder)
        _need_other(folder / SCRIPT, read)
    return folder


def _need_other(path: Path, read: Sequence[str]) -> None:
    if path.exists() and any(Path(each).exists() and path.samefile(each) for each in read):
        told = f"cannot write {path}: it is the launch that is read"
        raise BadInputError(told, ["name another folder with --out"])


def write_script(launch: Launch, folder: Path | None, *, read: Sequence[str] = ()) -> None:
    """The launch as files of a folder, if there is one; never over a file that was read for it."""
    if folder is None:
        return
    files = {folder / name: text for name, text in {SCRIPT: launch.script, **launch.files}.items()}
    for path in files:
        _need_other(path, read)
    make_folder(folder)
    for path, text in files.items():
        write_file(str(path), text.rstrip("\n"))


def _run_into(given: ExportArguments) -> None:
    """Write a plan into a launch, of which all else stays."""
    if given.out != "-":
        need_output("--out", given.out)
    files = read_launch(given.into or [])
    backend = backend_of(given.where)
    known = _planned(backend, given)
    names = [each.name for each in files]
    with reporting_launch(names, target="--target", refused="the plan cannot be written into it"):
        try:
            written = _into(known.plan, files, given)
        except NotExportableError:
            known, _ = _exportable(backend, known, given)
            written = _into(known.plan, files, given)
    if given.show.json:
        console.write_json(written.model_dump_json(indent=2))
    elif given.out == "-":
        console.write_exactly(written.text)
    if given.out != "-":
        write_launch(written, given.out)
    if not given.show.quiet:
        output = written.file if given.out == "-" else given.out
        show_rewritten(written, output, files)


def _into(plan: Plan, files: list[LaunchFile], given: ExportArguments) -> Rewritten:
    return export_into(plan, files, given.target, values=values_of(given.set), job=given.job)


def _planned(backend: Backend, given: ExportArguments) -> KnownPlan:
    """The plan that is given; a job is planned for the target."""
    found = backend.read_plan(given.plan_or_spec)
    if not isinstance(found, JobSpec):
        return found
    return make_plan(backend, _inside(found, given.target), given.show)


def _inside(spec: JobSpec, target: str) -> JobSpec:
    """The job, planned for what shall run it."""
    if target not in get_args(TargetName):
        return spec
    name = next(each for each in get_args(TargetName) if each == target)
    return inside(spec, name)


def _exportable(
    backend: Backend, known: KnownPlan, given: ExportArguments
) -> tuple[KnownPlan, Launch]:
    """The plan with its launch; with --nearest, the best one that can be exported."""
    refusal = f"{given.plan_or_spec}: the plan cannot be exported"
    with reporting_check(refusal):
        try:
            return known, backend.export(known, given.target)
        except NotExportableError as error:
            inside = known.plan.search.target == given.target
            if inside or not given.nearest:
                raise BadInputError(refusal, reasons_of(error) + [NEAREST][inside:]) from None
    spec = known.plan.spec
    if given.target in get_args(TargetName):
        spec = inside_another(spec, given.target)
    other = make_plan(backend, spec, given.show)
    try:
        launch = backend.export(other, given.target)
    except NotExportableError as error:
        refusal = f"{given.plan_or_spec}: nor can the best plan inside {given.target}"
        raise BadInputError(refusal, reasons_of(error)) from None
    show_changes(known.plan, other.plan, given.target)
    return other, launch


def reasons_of(error: NotExportableError) -> list[str]:
    """Why a plan cannot be exported, as lines."""
    return [
        f"{reason.summary} (instead: {reason.remedy})" if reason.remedy else reason.summary
        for reason in error.reasons
    ]


def show_changes(plan: Plan, other: Plan, target: str, *, which: str = "best") -> None:
    """What is otherwise, and its cost, on standard error: the script may be on standard output."""
    seconds = plan.iteration_seconds, other.iteration_seconds
    out = console.stderr_console()
    out.print(
        Text(
            f"the plan takes {formats.seconds(seconds[0])} s per iteration, the {which} that "
            f"{target} runs {formats.seconds(seconds[1])} s ({seconds[1] / seconds[0] - 1:+.1%}):"
        ),
        soft_wrap=True,
    )
    gpus = plan.gpus_used, other.gpus_used
    if gpus[0] != gpus[1]:
        out.print(Text(f"  GPUs: {gpus[0]} -> {gpus[1]}"), soft_wrap=True)
    risks = [each.out_of_memory_probability for each in (plan, other)]
    shown = ["unknown" if risk is None else formats.chance(risk) for risk in risks]
    if shown[0] != shown[1]:
        out.print(Text(f"  out of memory: {shown[0]} -> {shown[1]}"), soft_wrap=True)
    for name in type(plan.spec.workload).model_fields:
        before, after = (getattr(each.spec.workload, name) for each in (plan, other))
        if before != after:
            out.print(Text(f"  workload.{name}: {before} -> {after}"), soft_wrap=True)
    for each in differences(plan, other):
        costs = [f"{each.more_bytes / GIB:+.1f} GiB per GPU"]
        if each.more_seconds is not None:
            costs.insert(0, f"{each.more_seconds:+.3g} s")
        line = f"  {each.of}: {each.before} -> {each.after} ({', '.join(costs)})"
        out.print(Text(line), soft_wrap=True)


def _write_launch(launch: Launch) -> None:
    """The launch on standard output: whoever pipes one that has configurations wants these."""
    configurations = {name: text for name, text in launch.files.items() if name.endswith(".yaml")}
    console.write_text("---\n".join(configurations.values()) or launch.script)
    programs = [name for name in launch.files if name not in configurations]
    if programs:
        told = f"note: {', '.join(programs)} belongs beside it: --out FOLDER writes both"
        console.stderr_console().print(Text(told), soft_wrap=True)


def show_launch(show: Show, launch: Launch, folder: Path | None) -> None:
    """The launch on standard output, or where it was written to."""
    if launch.iterations == 1 and not show.quiet:
        told = "it trains 1 iteration: give workload.iterations, or change it in the script"
        console.stderr_console().print(Text(f"note: {told}"), soft_wrap=True)
    if show.json:
        console.write_json(launch.model_dump_json(indent=2))
    elif folder is None:
        _write_launch(launch)
    else:
        asked = ", ".join(each.variable for each in launch.placeholders)
        line = f"{folder / SCRIPT}: {len(launch.settings)} settings; to be filled in: {asked}"
        console.stdout_console().print(Text(line), soft_wrap=True)
