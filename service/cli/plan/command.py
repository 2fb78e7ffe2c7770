"""The commands that make or price one plan: plan, estimate."""

from collections.abc import Mapping
from typing import get_args

from pydantic import ValidationError
from rich.text import Text

from automap.planner import Plan, catalogue
from automap.planner.spec import JobSpec, SearchSpec, StrategyName, TargetName
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.inputs.files import read_placement
from automap.service.cli.options.plans import EstimateArguments, PlanArguments
from automap.service.cli.plan.headline import headline
from automap.service.cli.plan.inputs import make_plan, working
from automap.service.cli.plan.timeline_picture import draw_plan
from automap.service.cli.plan.view import print_plan
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError, naming_options, need_valid
from automap.service.cli.terminal.files import need_folder, write_file
from automap.service.cli.terminal.picture import need_picture


def run_plan(given: PlanArguments) -> None:
    """Plan a job; on a service the record names the plan's id."""
    backend = backend_of(given.where)
    others = tuple(catalogue.gpu_types()) if given.explain_infeasible else ()
    spec = _with_search(backend.read_spec(given.spec, others=others), given)
    need_folder(given.output)
    need_picture(given.picture)
    known = make_plan(backend, spec, given.show)
    write_file(given.output, known.document)
    if given.picture is not None:
        draw_plan(known.plan, given.picture, title=headline(known.plan).plain)
    _show(known.plan, known.document, given)
    if known.url and not given.show.json:
        console.stdout_console().print(Text(f"\nStored as {known.url}"), soft_wrap=True)


def run_estimate(given: EstimateArguments) -> None:
    """Price the caller's own placement."""
    backend = backend_of(given.where)
    spec = backend.read_spec(given.spec)
    placement = read_placement(given.placement, spec)
    need_folder(given.output)
    with (
        naming_options({"placement": given.placement}),
        working("Pricing the placement", given.show),
    ):
        plan = backend.estimate(spec, placement)
    document = plan.model_dump_json(indent=2, by_alias=True)
    write_file(given.output, document)
    _show(plan, document, given)


def _with_search(spec: JobSpec, given: PlanArguments) -> JobSpec:
    """The spec with what the command line says of its search."""
    said: dict[str, object] = {}
    if given.explain_infeasible:
        said["explain_infeasible"] = True
    if given.strategy is not None:
        need_valid("--strategy", [given.strategy], get_args(StrategyName))
        said["strategy"] = given.strategy
    if given.target is not None:
        need_valid("--target", [given.target], get_args(TargetName))
        said["target"] = given.target
    if given.gap is not None:
        said["optimality_gap"] = given.gap
        _need_allowed(spec.search, said, "--gap", given.gap)
    if given.simplicity_tolerance is not None:
        said["simplicity_tolerance"] = given.simplicity_tolerance
        _need_allowed(spec.search, said, "--simplicity-tolerance", given.simplicity_tolerance)
    return spec.model_copy(update={"search": spec.search.model_copy(update=said)})


def _need_allowed(
    search: SearchSpec, said: Mapping[str, object], option: str, value: float
) -> None:
    """Say so before the search when a share is out of range, or without a meaning."""
    try:
        SearchSpec.model_validate({**search.model_dump(exclude_unset=True), **said})
    except ValidationError as error:
        mistake = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadInputError(f"{option}: {mistake} (given: {value})") from None


def _show(plan: Plan, document: str, given: PlanArguments | EstimateArguments) -> None:
    out = console.stdout_console()
    if given.show.json:
        console.write_json(document)
    elif given.show.quiet:
        out.print(headline(plan), soft_wrap=True)
    else:
        unicode = console.unicode_output()
        print_plan(plan, out, unicode=unicode, with_details=given.details)
