"""The commands that answer with several plans: pareto and what-if."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from automap.planner import catalogue
from automap.planner.spec import JobSpec
from automap.planner.studies.result import Front, Variant, WhatIf
from automap.service.cli.inputs.files import read_spec
from automap.service.cli.inputs.profile_folders import by_gpu_type
from automap.service.cli.plan.command import need_pools, telling_reasons
from automap.service.cli.study.several_plans_view import front_view, what_if_view
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError, naming_options
from automap.service.cli.terminal.files import need_folder, need_picture, write_file

if TYPE_CHECKING:
    from automap.service.cli.remote import Service


def run_pareto(
    source: str,
    *,
    tolerance: float,
    picture: str | None,
    output: str | None,
    profiles: Sequence[str],
    as_json: bool,
    quiet: bool,
    server: str | None = None,
    api_key: str | None = None,
) -> None:
    """The front of a job, shown, drawn and written; on a service its plans are stored."""
    from automap.service.cli.remote import service_of

    service = service_of(server, api_key, profiles=profiles)
    spec = read_spec(source, profiles=profiles)
    if service is None:
        need_pools(spec)
    need_folder(output)
    need_picture(picture)
    with console.progress("Pareto front", quiet=quiet) as tell:
        front, answer = telling_reasons(
            lambda: (
                _front(spec, tolerance, tell)
                if service is None
                else _front_on(service, spec, tolerance)
            ),
            as_json=as_json,
        )
    if picture is not None:
        from automap.service.cli.study.front_picture import plot

        plot(front, picture)
    if not _as_json(answer, output=output, as_json=as_json):
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
    server: str | None = None,
    api_key: str | None = None,
) -> None:
    """The plans of a job on several clusters, shown and written."""
    from automap.service.cli.remote import service_of

    service = service_of(server, api_key, profiles=profiles)
    numbers, types = _numbers("--nodes", nodes), _names("--gpu", gpus)
    others = [catalogue.gpu_type(name, field="--gpu").name for name in types]
    spec = read_spec(source, profiles=profiles, others=others)
    if service is None:
        need_pools(spec)
    need_folder(output)
    if not numbers and not types:
        raise BadInputError("nothing is varied", ["give --nodes N,N,... or --gpu TYPE,... or both"])
    options = {"nodes": "--nodes", "gpus": "--gpu", "pool": "--pool"}
    with naming_options(options), console.progress("What if", quiet=quiet) as tell:
        asked = {"nodes": numbers, "gpus": types, "pool": pool}
        found, answer = (
            _what_if(spec, asked, profiles, tell)
            if service is None
            else _what_if_on(service, spec, asked)
        )
    if not _as_json(answer, output=output, as_json=as_json):
        out = console.stdout_console()
        out.print(what_if_view(found, width=out.width, brief=quiet), soft_wrap=quiet)


def _front(spec: JobSpec, tolerance: float, tell: Callable[[str], None]) -> tuple[Front, BaseModel]:
    """The front, and what is written of it."""
    from automap.planner.studies.pareto import pareto

    front = pareto(spec, tolerance=tolerance, tell=tell)
    return front, front


def _front_on(service: "Service", spec: JobSpec, tolerance: float) -> tuple[Front, BaseModel]:
    from automap.service.schemas.studies import FrontRecord

    asked = {"spec": spec.model_dump(mode="json", exclude_unset=True), "tolerance": tolerance}
    record = service.answer("plans/pareto", asked, FrontRecord)
    plans = [each.plan for each in record.plans if each.plan is not None]
    same = {name: getattr(record, name) for name in FrontRecord.model_fields if name != "plans"}
    return Front(spec=spec, plans=plans, **same), record


def _what_if(
    spec: JobSpec, asked: dict[str, Any], profiles: Sequence[str], tell: Callable[[str], None]
) -> tuple[WhatIf, BaseModel]:
    """The plans, and what is written of them."""
    from automap.planner.studies.what_if import what_if

    found = what_if(spec, **asked, profiles=by_gpu_type(profiles), tell=tell)
    return found, found


def _what_if_on(
    service: "Service", spec: JobSpec, asked: dict[str, Any]
) -> tuple[WhatIf, BaseModel]:
    from automap.service.schemas.studies import WhatIfRecord

    given = {"spec": spec.model_dump(mode="json", exclude_unset=True), **asked}
    started = time.perf_counter()
    record = service.answer("plans/what-if", given, WhatIfRecord)
    variants = [
        Variant(
            plan=None if each.plan is None else each.plan.plan,
            **{name: getattr(each, name) for name in Variant.model_fields if name != "plan"},
        )
        for each in record.variants
    ]
    seconds = time.perf_counter() - started
    return WhatIf(spec=spec, variants=variants, seconds=seconds), record


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
