"""`automap export`: a plan as the launch of another framework."""

from pathlib import Path

from rich.text import Text

from automap.planner import Launch
from automap.planner.errors import NotExportableError
from automap.planner.frameworks import framework
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.options.plans import ExportArguments
from automap.service.cli.plan.inputs import read_or_make_plan
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError, naming_options, reporting_check
from automap.service.cli.terminal.files import write_file

SCRIPT = "launch.sh"


def run_export(given: ExportArguments) -> None:
    """Export a plan, or plan a spec and export that."""
    with naming_options({"target": "--target"}):
        framework(given.target)
    folder = None if given.out == "-" else Path(given.out)
    if folder is not None and not folder.is_dir():
        raise BadInputError(f"cannot write {folder}: there is no such folder")
    backend = backend_of(given.where)
    known = read_or_make_plan(backend, given.plan_or_spec, given.show)
    refusal = f"{given.plan_or_spec}: the plan cannot be exported"
    with reporting_check(refusal):
        try:
            launch = backend.export(known, given.target)
        except NotExportableError as error:
            lines = [
                f"{reason.summary} (instead: {reason.remedy})" if reason.remedy else reason.summary
                for reason in error.reasons
            ]
            raise BadInputError(refusal, lines) from None
    if folder is not None:
        write_file(str(folder / SCRIPT), launch.script.rstrip("\n"))
    _show(given, launch, folder)


def _show(given: ExportArguments, launch: Launch, folder: Path | None) -> None:
    if given.show.json:
        console.write_json(launch.model_dump_json(indent=2))
    elif folder is None:
        console.write_text(launch.script)
    else:
        asked = ", ".join(each.variable for each in launch.placeholders)
        line = f"{folder / SCRIPT}: {len(launch.settings)} settings; to be filled in: {asked}"
        console.stdout_console().print(Text(line), soft_wrap=True)
