"""The commands that plan and price: plan, compare, estimate."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, get_args

from pydantic import ValidationError
from rich.text import Text

from automap.planner import catalogue
from automap.planner.errors import InfeasibleError
from automap.planner.infeasible.changes import NO_PROFILES
from automap.planner.plan.types import Infeasible, Plan, Strategy
from automap.planner.spec import JobSpec, SearchSpec, StrategyName
from automap.planner.studies.result import ExplainedInfeasibleError
from automap.service.cli.inputs.files import read_placement, read_runnable, read_spec
from automap.service.cli.inputs.profile_folders import by_gpu_type, with_profiles
from automap.service.cli.plan.view import headline, print_plan, strategy_lines, strategy_table
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError, naming_options
from automap.service.cli.terminal.files import need_folder, write_file

if TYPE_CHECKING:
    from automap.service.cli.remote import Service

Answer = TypeVar("Answer")


def read_job(
    source: str,
    *,
    profiles: Sequence[str],
    strategy: str | None,
    explain_infeasible: bool = False,
    optimality_gap: float | None = None,
) -> JobSpec:
    """A spec, with what the command line says of its search."""
    spec = read_spec(source)
    said: dict[str, object] = {"explain_infeasible": True} if explain_infeasible else {}
    if profiles:
        # Remedies may be of any type of GPU.
        remedies = explain_infeasible or spec.search.explain_infeasible
        others = tuple(catalogue.gpu_types()) if remedies else ()
        spec = with_profiles(spec, by_gpu_type(profiles), others=others)
    if strategy is not None:
        _need_known([strategy])
        said["strategy"] = strategy
    if optimality_gap is not None:
        said["optimality_gap"] = optimality_gap
        _need_allowed(spec.search, said)
    return spec.model_copy(update={"search": spec.search.model_copy(update=said)})


def run_plan(
    spec: JobSpec, *, profiles: Sequence[str], as_json: bool, output: str | None, quiet: bool
) -> None:
    """Plan here, in this process."""
    need_folder(output)
    plan = make_plan_here(spec, profiles=by_gpu_type(profiles), as_json=as_json, quiet=quiet)
    _show(plan, as_json=as_json, output=output, quiet=quiet)


def make_plan_here(
    spec: JobSpec, *, profiles: Mapping[str, str] = NO_PROFILES, as_json: bool, quiet: bool
) -> Plan:
    """Search in this process, with a spinner; remedies with other GPUs take their `profiles`."""
    need_pools(spec)
    with console.progress(_planning_message(spec), quiet=quiet) as tell:
        return telling_reasons(lambda: _make_plan(spec, profiles, tell), as_json=as_json)


def run_plan_on_server(
    spec: JobSpec,
    *,
    server: str,
    api_key: str | None,
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Plan and store on a service; the record names the plan's id."""
    from automap.service.cli.remote import post_plan

    need_folder(output)
    with console.progress(_planning_message(spec), quiet=quiet):
        stored = telling_reasons(
            lambda: post_plan(spec, server=server, api_key=api_key), as_json=as_json
        )
    write_file(output, stored.text)
    if as_json:
        console.write_json(stored.text)
        return
    _show(stored.plan, as_json=False, output=None, quiet=quiet)
    console.stdout_console().print(Text(f"\nStored as {stored.url}"), soft_wrap=True)


def run_compare(
    source: str,
    *,
    strategies: Sequence[str],
    profiles: Sequence[str],
    as_json: bool,
    quiet: bool,
    server: str | None = None,
    api_key: str | None = None,
) -> None:
    """Plan, then price the named strategies, or all but those that take long."""
    from automap.service.cli.remote import service_of

    service = service_of(server, api_key, profiles=profiles)
    spec = read_spec(source, profiles=profiles)
    _need_known(strategies)
    if service is None:
        need_pools(spec)
    with console.progress(_planning_message(spec), quiet=quiet):
        plan, compared = telling_reasons(
            lambda: (
                _plan_and_compare(spec, strategies)
                if service is None
                else _compare_on(service, spec, strategies)
            ),
            as_json=as_json,
        )
    if as_json:
        document = {
            "plan": plan.model_dump(mode="json", by_alias=True),
            "strategies": [item.model_dump(mode="json", by_alias=True) for item in compared],
        }
        console.write_json(json.dumps(document, indent=2))
        return
    out = console.stdout_console()
    if quiet:
        for line in strategy_lines([_as_strategy(plan), *compared]):
            out.print(line, soft_wrap=True)
        return
    out.print(headline(plan))
    out.print()
    out.print(strategy_table([_as_strategy(plan), *compared], claims=True))
    _describe([item.name for item in compared])


def run_estimate(
    source: str,
    placement_source: str,
    *,
    profiles: Sequence[str],
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Price the caller's own placement."""
    spec = read_spec(source, profiles=profiles)
    need_pools(spec)
    placement = read_placement(placement_source, spec)
    need_folder(output)

    def estimated() -> Plan:
        from automap.planner.planning import estimate

        return estimate(spec, placement)

    given = {"placement": placement_source}
    with naming_options(given), console.progress("Pricing the placement", quiet=quiet):
        plan = telling_reasons(estimated, as_json=as_json)
    _show(plan, as_json=as_json, output=output, quiet=quiet)


def _make_plan(
    spec: JobSpec,
    profiles: Mapping[str, str] = NO_PROFILES,
    tell: Callable[[str], None] = lambda _: None,
) -> Plan:
    from automap.planner.studies.infeasibility_report import make_plan_or_explain

    return make_plan_or_explain(spec, profiles=profiles, tell=tell)


def _plan_and_compare(spec: JobSpec, strategies: Sequence[str]) -> tuple[Plan, list[Strategy]]:
    from automap.planner.planning import QUICK, compare

    plan = _make_plan(spec)
    return plan, compare(spec, plan, list(strategies or QUICK))


def _compare_on(
    service: "Service", spec: JobSpec, strategies: Sequence[str]
) -> tuple[Plan, list[Strategy]]:
    """The same on a service, which stores the plan."""
    from automap.planner.search.strategies import QUICK
    from automap.service.cli.remote import post_plan
    from automap.service.schemas.studies import Comparison

    stored = post_plan(spec, server=service.server, api_key=service.api_key)
    asked = {"strategies": list(strategies or QUICK)}
    found = service.answer(f"plans/{stored.id}/compare", asked, Comparison)
    return stored.plan, found.strategies


def _need_known(strategies: Sequence[str]) -> None:
    """Say so before the search when a strategy's name is wrong."""
    known = get_args(StrategyName)
    unknown = [name for name in strategies if name not in known]
    if unknown:
        raise BadInputError(f"--strategy: unknown {', '.join(unknown)} (valid: {', '.join(known)})")


def _need_allowed(search: SearchSpec, said: Mapping[str, object]) -> None:
    """Say so before the search when a gap is out of range, or without a meaning."""
    try:
        SearchSpec.model_validate({**search.model_dump(exclude_unset=True), **said})
    except ValidationError as error:
        told = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadInputError(f"--gap: {told} (given: {said['optimality_gap']})") from None


def _planning_message(spec: JobSpec) -> str:
    if spec.search.strategy is not None:
        return f"Placing as {spec.search.strategy} does"
    return f"Planning (about {spec.search.time_limit_seconds:g} s of search at most)"


def read_plan(source: str, *, profiles: Sequence[str], as_json: bool, quiet: bool) -> Plan:
    """The plan in a file, or that of the job spec in it."""
    given = read_runnable(source)
    if isinstance(given, JobSpec):
        spec = with_profiles(given, by_gpu_type(profiles)) if profiles else given
        return make_plan_here(spec, as_json=as_json, quiet=quiet)
    if profiles:
        raise BadInputError(
            f"--profile: {source} is a plan, which has its prices already",
            ["give the job spec, which is then planned with this profile"],
        )
    return given


def need_pools(spec: JobSpec) -> None:
    if isinstance(spec.cluster, str):
        raise BadInputError(
            f"cluster: {spec.cluster!r} names a cluster stored on a service",
            ["give the pools in the spec, or use --server URL with `automap plan`"],
        )


def telling_reasons(work: Callable[[], Answer], *, as_json: bool) -> Answer:
    """The work's answer; with --json an infeasible job's reasons go to stdout as well."""
    try:
        return work()
    except ExplainedInfeasibleError as error:
        if as_json:
            console.write_json(error.refusal.model_dump_json(indent=2, by_alias=True))
        raise
    except InfeasibleError as error:
        if as_json:
            console.write_json(Infeasible(reasons=error.reasons).model_dump_json(indent=2))
        raise


def _show(plan: Plan, *, as_json: bool, output: str | None, quiet: bool) -> None:
    text = plan.model_dump_json(indent=2, by_alias=True)
    write_file(output, text)
    if as_json:
        console.write_json(text)
        return
    out = console.stdout_console()
    if quiet:
        out.print(headline(plan), soft_wrap=True)
    else:
        print_plan(plan, out, unicode=console.unicode_output())


def _as_strategy(plan: Plan) -> Strategy:
    """The plan itself as the first row of a comparison."""
    return Strategy(
        name="automap",
        feasible=True,
        iteration_seconds=plan.iteration_seconds,
        times_slower=1.0,
        price_per_iteration=plan.price_per_iteration,
        reason="this plan",
    )


def _describe(names: Sequence[str]) -> None:
    from automap.planner.planning import STRATEGIES

    out = console.stdout_console()
    out.print()
    for name in names:
        info = STRATEGIES[name]
        reference = f" ({info.reference})" if info.reference else ""
        out.print(Text(f"{name}: {info.description}{reference}", style="dim"))
