"""The commands that answer with several plans: pareto and what-if."""

from collections.abc import Sequence

from pydantic import BaseModel

from service.cli import console
from service.cli.failures import BadInputError, naming_options
from service.cli.inputs import read_spec
from service.cli.pictures import need_picture
from service.cli.planning import need_folder, need_pools, telling_reasons, write_file
from service.cli.study_view import front_view, what_if_view


def run_pareto(
    source: str,
    *,
    tolerance: float,
    picture: str | None,
    output: str | None,
    profiles: Sequence[str],
    as_json: bool,
    quiet: bool,
) -> None:
    """The front of a job, shown, drawn and written."""
    spec = read_spec(source, profiles=profiles)
    need_pools(spec)
    need_folder(output)
    need_picture(picture)
    with console.progress("Pareto front", quiet=quiet) as tell:
        from planner.front import make_front

        front = telling_reasons(
            lambda: make_front(spec, tolerance=tolerance, tell=tell), as_json=as_json
        )
    if picture is not None:
        from service.cli.front_plot import plot

        plot(front, picture)
    if not _as_json(front, output=output, as_json=as_json):
        out = console.stdout_console()
        out.print(front_view(front, width=out.width, brief=quiet), soft_wrap=quiet)


def run_what_if(
    source: str,
    *,
    nodes: str | None,
    gpus: str | None,
    pool: str | None,
    output: str | None,
    profiles: Sequence[str],
    as_json: bool,
    quiet: bool,
) -> None:
    """The plans of a job on several clusters, shown and written."""
    spec = read_spec(source, profiles=profiles)
    need_pools(spec)
    need_folder(output)
    numbers, types = _numbers("--nodes", nodes), _names("--gpu", gpus)
    if not numbers and not types:
        raise BadInputError("nothing is varied", ["give --nodes N,N,... or --gpu TYPE,... or both"])
    options = {"nodes": "--nodes", "gpus": "--gpu", "pool": "--pool"}
    with naming_options(options), console.progress("What if", quiet=quiet) as tell:
        from planner.what_if import make_what_if

        answer = make_what_if(spec, nodes=numbers, gpus=types, pool=pool, tell=tell)
    if not _as_json(answer, output=output, as_json=as_json):
        out = console.stdout_console()
        out.print(what_if_view(answer, width=out.width, brief=quiet), soft_wrap=quiet)


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
            f"{option}: {', '.join(wrong)} is no number of nodes",
            ["give whole numbers from 1, separated by commas: 4,8,16"],
        )
    return [int(name) for name in names]
