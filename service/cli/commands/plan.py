"""The subcommands that make plans and compare them."""

from typing import Annotated

import typer

from automap.service.cli.terminal.options import (
    STRATEGY_NAMES,
    JsonOption,
    KeyOption,
    MaybeServerOption,
    OutputOption,
    ProfileOption,
    QuietOption,
    SpecArgument,
)
from automap.service.cli.terminal.usage import SHARE


def plan(
    spec: SpecArgument,
    json: JsonOption = False,
    output: OutputOption = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Plan and store on a running service."),
    ] = None,
    api_key: KeyOption = None,
    profile: ProfileOption = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="NAME",
            help=f"Place it as this strategy would. {STRATEGY_NAMES}",
        ),
    ] = None,
    explain_infeasible: Annotated[
        bool,
        typer.Option(
            "--explain-infeasible",
            help="Where nothing fits, plan the smallest changes with which something does.",
        ),
    ] = False,
    gap: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Stop when no plan can be better by more than this share, 0.01 for 1 %.",
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Find the best placement for a job and show it.

    With --strategy nothing is searched: the plan is a published system's, to compare with. With
    --server, --json prints the stored record: its id, the spec and the plan.
    """
    from automap.service.cli.plan.command import read_job, run_plan, run_plan_on_server

    job = read_job(
        spec,
        profiles=profile or [],
        strategy=strategy,
        explain_infeasible=explain_infeasible,
        optimality_gap=gap,
    )
    if server is None:
        run_plan(job, profiles=profile or [], as_json=json, output=output, quiet=quiet)
    elif profile:
        raise typer.BadParameter("a service plans with its own tables", param_hint="--profile")
    else:
        run_plan_on_server(
            job, server=server, api_key=api_key, as_json=json, output=output, quiet=quiet
        )


def compare(
    spec: SpecArgument,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="NAME",
            help=f"Only this one; may be repeated. {STRATEGY_NAMES}",
        ),
    ] = None,
    profile: ProfileOption = None,
    server: MaybeServerOption = None,
    api_key: KeyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Plan a job, then show what well-known placement strategies would cost beside the plan."""
    from automap.service.cli.plan.command import run_compare

    run_compare(
        spec,
        strategies=strategy or [],
        profiles=profile or [],
        as_json=json,
        quiet=quiet,
        server=server,
        api_key=api_key,
    )


def pareto(
    spec: SpecArgument,
    tolerance: Annotated[
        float,
        typer.Option(
            parser=SHARE,
            metavar="SHARE",
            help="Leave out what others beat up to this share.",
        ),
    ] = 0.0,
    picture: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw seconds against price; .png, .svg or .pdf."),
    ] = None,
    output: OutputOption = None,
    profile: ProfileOption = None,
    server: MaybeServerOption = None,
    api_key: KeyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find all plans that no other beats in both time and price, over the numbers of nodes.

    Each is proven the fastest on its nodes. A tolerance of 0.02 saves most searches of a large
    cluster: then no plan beats those shown by more than 2 %.
    """
    from automap.service.cli.study.several_plans import run_pareto

    run_pareto(
        spec,
        tolerance=tolerance,
        picture=picture,
        output=output,
        profiles=profile or [],
        as_json=json,
        quiet=quiet,
        server=server,
        api_key=api_key,
    )


def what_if(
    spec: SpecArgument,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Numbers of nodes to try, separated by commas."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="TYPE,...", help="GPU types to try; `automap gpus` lists them."),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which pool; needed where there are several.")
    ] = None,
    output: OutputOption = None,
    profile: ProfileOption = None,
    server: MaybeServerOption = None,
    api_key: KeyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Plan a job on several clusters: other numbers of nodes, other GPUs.

    A pool with another GPU keeps its name and nodes; all else is then the catalogue's.
    """
    from automap.service.cli.study.several_plans import run_what_if

    run_what_if(
        spec,
        nodes=nodes,
        gpus=gpu,
        pool=pool,
        output=output,
        profiles=profile or [],
        as_json=json,
        quiet=quiet,
        server=server,
        api_key=api_key,
    )


def estimate(
    spec: SpecArgument,
    placement: Annotated[
        str, typer.Argument(metavar="PLACEMENT", help="A placement or a whole plan, JSON or YAML.")
    ],
    json: JsonOption = False,
    output: OutputOption = None,
    profile: ProfileOption = None,
    quiet: QuietOption = False,
) -> None:
    """Price a placement of your own with the planner's cost model."""
    from automap.service.cli.plan.command import run_estimate

    run_estimate(spec, placement, profiles=profile or [], as_json=json, output=output, quiet=quiet)
