"""`automap export`: a plan as the launch of another framework."""

from pathlib import Path
from typing import get_args

from rich.text import Text

from automap.planner import Launch, Plan
from automap.planner.errors import NotExportableError
from automap.planner.frameworks import framework
from automap.planner.plan import differences
from automap.planner.spec import JobSpec, TargetName
from automap.planner.units import GIB
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.backends.protocol import Backend, KnownPlan
from automap.service.cli.options.plans import ExportArguments
from automap.service.cli.plan.inputs import make_plan
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, naming_options, reporting_check
from automap.service.cli.terminal.files import write_file

SCRIPT = "launch.sh"
NEAREST = "--nearest exports the best plan of its job that can be"


def run_export(given: ExportArguments) -> None:
    """Export a plan, or plan a spec and export that."""
    with naming_options({"target": "--target"}):
        framework(given.target)
    folder = None if given.out == "-" else Path(given.out)
    if folder is not None and not folder.is_dir():
        raise BadInputError(f"cannot write {folder}: there is no such folder")
    backend = backend_of(given.where)
    known = _planned(backend, given)
    launch = _exported(backend, known, given)
    if folder is not None:
        write_file(str(folder / SCRIPT), launch.script.rstrip("\n"))
    _show(given, launch, folder)


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
    search = spec.search.model_copy(update={"target": target, "strategy": None})
    return spec.model_copy(update={"search": search})


def _exported(backend: Backend, known: KnownPlan, given: ExportArguments) -> Launch:
    """The launch of the plan; with --nearest, of the best that can be exported."""
    refusal = f"{given.plan_or_spec}: the plan cannot be exported"
    with reporting_check(refusal):
        try:
            return backend.export(known, given.target)
        except NotExportableError as error:
            inside = known.plan.spec.search.target == given.target
            if inside or not given.nearest:
                raise BadInputError(refusal, _reasons(error) + [NEAREST][inside:]) from None
    other = make_plan(backend, _inside(known.plan.spec, given.target), given.show)
    try:
        launch = backend.export(other, given.target)
    except NotExportableError as error:
        refusal = f"{given.plan_or_spec}: nor can the best plan inside {given.target}"
        raise BadInputError(refusal, _reasons(error)) from None
    _show_changes(known.plan, other.plan, given.target)
    return launch


def _reasons(error: NotExportableError) -> list[str]:
    return [
        f"{reason.summary} (instead: {reason.remedy})" if reason.remedy else reason.summary
        for reason in error.reasons
    ]


def _show_changes(plan: Plan, other: Plan, target: str) -> None:
    """What is otherwise, and its cost, on standard error: the script may be on standard output."""
    seconds = plan.iteration_seconds, other.iteration_seconds
    out = console.stderr_console()
    out.print(
        Text(
            f"the plan takes {formats.seconds(seconds[0])} s per iteration, the best that {target} "
            f"runs {formats.seconds(seconds[1])} s ({seconds[1] / seconds[0] - 1:+.1%}):"
        ),
        soft_wrap=True,
    )
    for each in differences(plan, other):
        costs = [f"{each.more_bytes / GIB:+.1f} GiB per GPU"]
        if each.more_seconds is not None:
            costs.insert(0, f"{each.more_seconds:+.3g} s")
        line = f"  {each.of}: {each.before} -> {each.after} ({', '.join(costs)})"
        out.print(Text(line), soft_wrap=True)


def _show(given: ExportArguments, launch: Launch, folder: Path | None) -> None:
    if given.show.json:
        console.write_json(launch.model_dump_json(indent=2))
    elif folder is None:
        console.write_text(launch.script)
    else:
        asked = ", ".join(each.variable for each in launch.placeholders)
        line = f"{folder / SCRIPT}: {len(launch.settings)} settings; to be filled in: {asked}"
        console.stdout_console().print(Text(line), soft_wrap=True)
