"""The commands that answer with several plans: pareto and what-if."""

from collections.abc import Sequence
from importlib import util
from pathlib import Path

from pydantic import BaseModel

from planner import catalogue
from service.cli import console
from service.cli.failures import BadInputError
from service.cli.inputs import read_spec
from service.cli.planning import need_folder, need_pools, telling_reasons, write_file
from service.cli.profiles import by_gpu_type
from service.cli.study_view import front_view, what_if_view

PICTURES = (".png", ".svg", ".pdf")


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
    _need_picture(picture)
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
        out.print(front_view(front, width=out.width, brief=quiet))


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
    numbers, types = _numbers("--nodes", nodes), _names(gpus)
    asked = [catalogue.gpu_type(name, field="--gpu").name for name in types]
    spec = read_spec(source, profiles=profiles, others=asked)
    need_pools(spec)
    need_folder(output)
    measured = by_gpu_type(profiles)
    with console.progress("What if", quiet=quiet) as tell:
        from planner.what_if import make_what_if

        answer = make_what_if(
            spec, nodes=numbers, gpus=types, pool=pool, profiles=measured, tell=tell
        )
    if not _as_json(answer, output=output, as_json=as_json):
        out = console.stdout_console()
        out.print(what_if_view(answer, width=out.width))


def _as_json(answer: BaseModel, *, output: str | None, as_json: bool) -> bool:
    """Write the JSON where it is wanted; False: there is still something to show."""
    text = answer.model_dump_json(indent=2, by_alias=True)
    write_file(output, text)
    if as_json:
        console.write_json(text)
    return as_json


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def _numbers(option: str, given: str | None) -> list[int]:
    """The whole numbers of a comma-separated option."""
    names = _names(given)
    wrong = [name for name in names if not (name.isascii() and name.isdigit()) or int(name) < 1]
    if wrong or (given is not None and not names):
        raise BadInputError(
            f"{option}: {', '.join(wrong) or 'nothing'} is no number of nodes",
            ["give whole numbers from 1, separated by commas: 4,8,16"],
        )
    return [int(name) for name in names]


def _need_picture(path: str | None) -> None:
    """Say so before the search when its picture could not be drawn."""
    if path is None:
        return
    need_folder(path)
    if Path(path).suffix.lower() not in PICTURES:
        raise BadInputError(f"--picture: {path} does not end in {', '.join(PICTURES)}")
    if util.find_spec("matplotlib") is None:
        raise BadInputError(
            "--picture needs matplotlib, which is not installed",
            ["pip install matplotlib, or leave --picture out"],
        )
