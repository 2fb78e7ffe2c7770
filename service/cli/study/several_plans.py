"""The commands that answer with several plans: pareto and what-if."""

from pydantic import BaseModel

from automap.planner import catalogue
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.backends.protocol import Variations
from automap.service.cli.options.plans import ParetoArguments, WhatIfArguments
from automap.service.cli.plan.inputs import working
from automap.service.cli.study.several_plans_view import front_view, what_if_view
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError, naming_options
from automap.service.cli.terminal.files import need_folder, write_file
from automap.service.cli.terminal.picture import need_picture


def run_pareto(given: ParetoArguments) -> None:
    """The front of a job, shown, drawn and written; on a service its plans are stored."""
    backend = backend_of(given.where)
    spec = backend.read_spec(given.spec)
    need_folder(given.output)
    need_picture(given.picture)
    with working("Pareto front", given.show) as tell:
        front, document = backend.pareto(spec, tolerance=given.tolerance, tell=tell)
    if given.picture is not None:
        from automap.service.cli.study.pictures import draw_front

        draw_front(front, given.picture)
    if not _as_json(document, output=given.output, as_json=given.show.json):
        out, brief = console.stdout_console(), given.show.quiet
        out.print(front_view(front, width=out.width, brief=brief), soft_wrap=brief)


def run_what_if(given: WhatIfArguments) -> None:
    """The plans of a job on several clusters, shown and written."""
    backend = backend_of(given.where)
    varied = Variations(_numbers("--nodes", given.nodes), _names("--gpu", given.gpu), given.pool)
    others = [catalogue.gpu_type(name, field="--gpu").name for name in varied.gpus]
    spec = backend.read_spec(given.spec, others=others)
    need_folder(given.output)
    if not varied.nodes and not varied.gpus:
        raise BadInputError("nothing is varied", ["give --nodes N,N,... or --gpu TYPE,... or both"])
    options = {"nodes": "--nodes", "gpus": "--gpu", "pool": "--pool"}
    with naming_options(options), working("What if", given.show) as tell:
        found, document = backend.what_if(spec, varied, tell)
    if not _as_json(document, output=given.output, as_json=given.show.json):
        out, brief = console.stdout_console(), given.show.quiet
        out.print(what_if_view(found, width=out.width, brief=brief), soft_wrap=brief)


def _as_json(answer: BaseModel, *, output: str | None, as_json: bool) -> bool:
    """Write the JSON where it is wanted; False: there is still something to show."""
    text = answer.model_dump_json(indent=2, by_alias=True)
    write_file(output, text)
    if as_json:
        console.write_json(text)
    return as_json


def _names(option: str, given: str | None) -> list[str]:
    """The values of a comma-separated option."""
    if given is None:
        return []
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        raise BadInputError(f"{option}: {given!r} has an empty value", ["leave out the comma"])
    return names


def _numbers(option: str, given: str | None) -> list[int]:
    """The whole numbers of a comma-separated option."""
    names = _names(option, given)
    wrong = [name for name in names if not (name.isascii() and name.isdigit()) or int(name) < 1]
    if wrong:
        raise BadInputError(
            f"{option}: {', '.join(wrong)} is not a number of nodes",
            ["give whole numbers from 1, separated by commas: 4,8,16"],
        )
    return [int(name) for name in names]
