"""The subcommands that look closer at a plan, or at the cost model."""

from typing import Annotated

import typer

from automap.service.cli.terminal.options import (
    JsonOption,
    KeyOption,
    MaybeServerOption,
    ProfileOption,
    QuietOption,
)
from automap.service.cli.terminal.usage import SEARCH_SECONDS, SECONDS


def explain(
    plan_or_spec: Annotated[
        str, typer.Argument(metavar="PLAN|SPEC", help="A plan, or a job spec to plan first.")
    ],
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this of alternatives, sensitivity, regret; may be repeated."
        ),
    ] = None,
    fewer_gpus: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Ask for N fewer GPUs, not one node and half."),
    ] = None,
    scenarios: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1000, help="True seconds drawn for the regret."),
    ] = None,
    search_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SEARCH_SECONDS, metavar="SECONDS", help="Limit of every search; default: 2."
        ),
    ] = None,
    profile: ProfileOption = None,
    server: MaybeServerOption = None,
    api_key: KeyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say why this plan and no other: solved alternatives, and how wrong estimates may be."""
    from automap.service.cli.study.explain import run_explain

    run_explain(
        plan_or_spec,
        parts=part or [],
        fewer_gpus=fewer_gpus,
        scenarios=scenarios,
        search_seconds=search_seconds,
        profiles=profile or [],
        as_json=json,
        quiet=quiet,
        server=server,
        api_key=api_key,
    )


def replan(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="The plan that runs.")],
    measured: Annotated[
        str | None,
        typer.Option("--measured", metavar="REPORT.json", help="The report of its run."),
    ] = None,
    call: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SECONDS", help="What a call (or ROLE.sync) takes; may be repeated."
        ),
    ] = None,
    lose_node: Annotated[
        list[str] | None,
        typer.Option(metavar="POOL[:N]", help="A node, or N, of the pool is gone."),
    ] = None,
    add_nodes: Annotated[
        list[str] | None, typer.Option(metavar="POOL:N", help="N nodes have come to the pool.")
    ] = None,
    iterations_left: Annotated[
        int | None, typer.Option(min=1, help="Of the run; default: those of the spec.")
    ] = None,
    startup_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SECONDS,
            metavar="SECONDS",
            help="Of a restart; default: those of the spec, or estimated.",
        ),
    ] = None,
    checkpoint_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SECONDS,
            metavar="SECONDS",
            help="That a restart waits for a checkpoint; default: likewise.",
        ),
    ] = None,
    search_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SEARCH_SECONDS, metavar="SECONDS", help="Limit of the search; default: 0.15."
        ),
    ] = None,
    move_by: Annotated[
        str, typer.Option(metavar="restart|reshard", help="How a move would be done.")
    ] = "restart",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the new plan here, if any."),
    ] = None,
    server: MaybeServerOption = None,
    api_key: KeyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Keep a running plan, or move: with measured seconds, or on a changed cluster."""
    from automap.service.cli.study.replan import Situation, run_replan

    given = Situation(
        report=measured,
        calls=call or [],
        lose_nodes=lose_node or [],
        add_nodes=add_nodes or [],
        iterations_left=iterations_left,
        startup_seconds=startup_seconds,
        checkpoint_seconds=checkpoint_seconds,
        search_seconds=search_seconds,
        move_by=move_by,
    )
    run_replan(
        plan,
        given,
        output=output,
        as_json=json,
        quiet=quiet,
        server=server,
        api_key=api_key,
    )


def simulate(
    plan_or_spec: Annotated[
        str, typer.Argument(metavar="PLAN|SPEC", help="A plan, or a job spec to plan first.")
    ],
    iterations: Annotated[
        int, typer.Option("--iterations", "-n", min=1, max=1000, help="How many.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the lengths that are drawn.")] = 0,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the timeline for chrome://tracing or Perfetto."),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the timeline (.png, .svg, .pdf)."),
    ] = None,
    profile: ProfileOption = None,
    server: MaybeServerOption = None,
    api_key: KeyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a plan's iterations as discrete events, with lengths drawn anew in each.

    Shows the median and the 95th percentile of an iteration, and which GPUs stand idle.
    """
    from automap.service.cli.study.simulate import SimulateOptions, run_simulate

    run_simulate(
        plan_or_spec,
        SimulateOptions(
            iterations=iterations,
            seed=seed,
            trace=trace,
            picture=picture,
            as_json=json,
            quiet=quiet,
            profiles=profile or [],
            server=server,
            api_key=api_key,
        ),
    )


def validate(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE.csv...", help="Tables of measurements; docs: accuracy.md."),
    ],
    quality: Annotated[str, typer.Option(help="Only rows of these grades, of A, B and C.")] = "A,B",
    by: Annotated[
        str, typer.Option(help="Group by some of source, gpu, precision, model.")
    ] = "source,gpu,precision",
    json: JsonOption = False,
    rows: Annotated[
        str | None,
        typer.Option(metavar="OUT.csv", help="Write every prediction with its parts here."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="OUT.png", help="Draw predicted against measured here."),
    ] = None,
) -> None:
    """Predict published measurements with the cost model and show how wrong it is.

    Rows with a mistake are named and left out; then the exit code is 2.
    """
    from automap.service.cli.study.validate import Outputs, run_validate

    run_validate(tables, quality=quality, by=by, as_json=json, outputs=Outputs(rows, plot))
