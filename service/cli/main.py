"""The `automap` command: what each subcommand takes; the work is in the modules beside this one.

Planner, solver and service are imported inside the commands that need them, so that `--help` and
bad input are answered at once.
"""

import sys
from typing import Annotated

import typer

app = typer.Typer(
    name="automap",
    help="Plan where the models of an RL post-training job run: GPUs, parallelism, order. Run it.",
    epilog="Exit codes: 0 done, 2 bad input, 3 no feasible plan, 130 cancelled, 1 our fault or a "
    "run that failed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SpecArgument = Annotated[
    str, typer.Argument(metavar="SPEC", help="Job spec, YAML or JSON; - reads standard input.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
ServerOption = Annotated[str, typer.Option(metavar="URL", help="A running service.")]
KeyOption = Annotated[
    str | None,
    typer.Option(envvar="AUTOMAP_API_KEY", help="Key for --server.", show_default=False),
]
DatabaseOption = Annotated[
    str | None, typer.Option(help="sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.")
]
ProfileOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER",
        help="Price pools with what automap profile measured on their GPU type; may be repeated.",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress; one line of result.")
]
STRATEGY_NAMES = (
    "One of colocate_all, split, standalone, hybridflow, verl, deepspeed_chat, openrlhf, "
    "nemo_aligner, app_interleaving, app_separation, real_heuristic, real_mcmc, rlinf, "
    "one_step_off, fully_async."
)
"""Of planner.spec's StrategyName, which takes too long to import for --help."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure ends as a message and its exit code."""
    # A terminal or pipe that cannot show a character gets a question mark, not a crash.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        # --debug may stand anywhere; it belongs to the whole command.
        app(args=[argument for argument in given if argument != "--debug"], prog_name="automap")
    except Exception as error:
        from service.cli.failures import report

        sys.exit(report(error, debug=debug))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"automap {metadata.version('automap')}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure.")
    ] = False,
) -> None:
    """Plan where the models of an RL post-training job run: GPUs, parallelism, order. Run it."""


@app.command()
def plan(
    spec: SpecArgument,
    json: JsonOption = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON here too.")
    ] = None,
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
    quiet: QuietOption = False,
) -> None:
    """Find the best placement for a job and show it.

    With --strategy nothing is searched: the plan is a published system's, to compare with. With
    --server, --json prints the stored record: its id, the spec and the plan.
    """
    from service.cli.planning import read_job, run_plan, run_plan_on_server

    job = read_job(
        spec, profiles=profile or [], strategy=strategy, explain_infeasible=explain_infeasible
    )
    if server is None:
        run_plan(job, as_json=json, output=output, quiet=quiet)
    elif profile:
        raise typer.BadParameter("a service plans with its own tables", param_hint="--profile")
    else:
        run_plan_on_server(
            job, server=server, api_key=api_key, as_json=json, output=output, quiet=quiet
        )


@app.command()
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
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Plan a job, then show what well-known placement strategies would cost beside the plan."""
    from service.cli.planning import run_compare

    run_compare(spec, strategies=strategy or [], profiles=profile or [], as_json=json, quiet=quiet)


@app.command()
def pareto(
    spec: SpecArgument,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, metavar="SHARE", help="Leave out what others beat up to this share."
        ),
    ] = 0.0,
    picture: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw seconds against price; .png, .svg or .pdf."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON here too.")
    ] = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find all plans that no other beats in both time and price, over the numbers of nodes.

    Each is proven the fastest on its nodes. A tolerance of 0.02 saves most searches of a large
    cluster: then no plan beats those shown by more than 2 %.
    """
    from service.cli.studies import run_pareto

    run_pareto(
        spec,
        tolerance=tolerance,
        picture=picture,
        output=output,
        profiles=profile or [],
        as_json=json,
        quiet=quiet,
    )


@app.command("what-if")
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
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON here too.")
    ] = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Plan a job on several clusters: other numbers of nodes, other GPUs.

    A pool with another GPU keeps its name and nodes; all else is then the catalogue's.
    """
    from service.cli.studies import run_what_if

    run_what_if(
        spec,
        nodes=nodes,
        gpus=gpu,
        pool=pool,
        output=output,
        profiles=profile or [],
        as_json=json,
        quiet=quiet,
    )


@app.command()
def estimate(
    spec: SpecArgument,
    placement: Annotated[
        str, typer.Argument(metavar="PLACEMENT", help="A placement or a whole plan, JSON or YAML.")
    ],
    json: JsonOption = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON here too.")
    ] = None,
    profile: ProfileOption = None,
    quiet: QuietOption = False,
) -> None:
    """Price a placement of your own with the planner's cost model."""
    from service.cli.planning import run_estimate

    run_estimate(spec, placement, profiles=profile or [], as_json=json, output=output, quiet=quiet)


@app.command()
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
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say why this plan and no other: solved alternatives, and how wrong estimates may be."""
    from service.cli.explaining import run_explain

    run_explain(
        plan_or_spec,
        parts=part or [],
        fewer_gpus=fewer_gpus,
        scenarios=scenarios,
        as_json=json,
        quiet=quiet,
    )


@app.command()
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
        float | None, typer.Option(min=0, help="Of a restart; default: those of the spec.")
    ] = None,
    move_by: Annotated[
        str, typer.Option(metavar="restart|reshard", help="How a move would be done.")
    ] = "restart",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the new plan here, if any."),
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Keep a running plan, or move: with measured seconds, or on a changed cluster."""
    from service.cli.replanning import Situation, run_replan

    given = Situation(
        report=measured,
        calls=call or [],
        lose_nodes=lose_node or [],
        add_nodes=add_nodes or [],
        iterations_left=iterations_left,
        startup_seconds=startup_seconds,
        move_by=move_by,
    )
    run_replan(plan, given, output=output, as_json=json, quiet=quiet)


@app.command()
def validate(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE.csv...", help="Tables of measurements; docs/accuracy.md."),
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
    from service.cli.validation import Outputs, run_validate

    run_validate(tables, quality=quality, by=by, as_json=json, outputs=Outputs(rows, plot))


@app.command()
def profile(
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Measure the shapes of these models first: catalogue names or config.json files, "
            "separated by commas; may be repeated.",
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Measure for about so long.")
    ] = 300.0,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where the tables go; continues it."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="cpu|cuda", help="Default: CUDA where there is a device."),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most processes of a collective; default: every device."),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Ray cluster: measure one node of each kind, and the link between two.",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Store it on a running service, too."),
    ] = None,
    api_key: KeyOption = None,
    make_default: Annotated[
        bool,
        typer.Option("--make-default", help="There it prices pools that name no profile."),
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure this machine's operators and collectives, for plans with --profile FOLDER.

    A profile that was interrupted goes on where it was when started again with its --output.
    """
    from service.cli.profiling import ProfileOptions, run_profile

    run_profile(
        ProfileOptions(
            models=models or [],
            budget_seconds=budget,
            output=output,
            device=device,
            ranks=ranks,
            as_json=json,
            quiet=quiet,
            ray_address=ray_address,
            server=server,
            api_key=api_key,
            make_default=make_default,
        )
    )


@app.command()
def profiles(
    server: ServerOption,
    version: Annotated[
        str | None, typer.Argument(help="A stored profile; default: list them all.")
    ] = None,
    api_key: KeyOption = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="FOLDER", help="Store the profile in this folder."),
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="OTHER", help="How the other profile differs from it."),
    ] = None,
    make_default: Annotated[
        bool,
        typer.Option("--make-default", help="Price pools that name no profile with it."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the profiles that a service has stored, store one, compare two, choose the default."""
    from service.cli.stored_profiles import show_profiles

    show_profiles(
        server,
        api_key,
        version=version,
        store=store,
        diff=diff,
        make_default=make_default,
        as_json=json,
    )


@app.command()
def calibrate(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders that automap run wrote, or their reports."),
    ],
    profile: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="The profile to correct, of what the runs were on."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where its new version goes."),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="PLAN", help="What was run; default: plan.json beside the report."),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="A job spec that takes over the lengths of responses."),
    ] = None,
    output_spec: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Where the spec with these lengths goes.")
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            metavar="automap|verl|openrlhf|nemo-rl",
            help="Whose runs: of the others, logs of metrics as JSON lines, with --plan.",
        ),
    ] = "automap",
    json: JsonOption = False,
) -> None:
    """Learn from runs: correct a measured profile, and the response lengths of a spec.

    The profile that is given stays as it is; earlier evidence in it counts on.
    """
    from service.cli.calibrating import CalibrateOptions, run_calibrate

    run_calibrate(
        CalibrateOptions(
            runs=runs,
            profile=profile,
            output=output,
            plan=plan,
            spec=spec,
            output_spec=output_spec,
            format=format,
            as_json=json,
        )
    )


@app.command()
def simulate(
    plan_or_spec: Annotated[
        str, typer.Argument(metavar="PLAN|SPEC", help="A plan, or a job spec to plan first.")
    ],
    iterations: Annotated[
        int, typer.Option("--iterations", "-n", min=1, max=1000, help="How many.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the lengths that are drawn.")] = 0,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the timeline for chrome://tracing or Perfetto."),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the timeline (.png, .svg, .pdf)."),
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a plan's iterations as discrete events, with lengths drawn anew in each.

    Shows the median and the 95th percentile of an iteration, and which GPUs stand idle.
    """
    from service.cli.simulation import SimulateOptions, run_simulate

    run_simulate(
        plan_or_spec,
        SimulateOptions(
            iterations=iterations,
            seed=seed,
            trace=trace,
            picture=picture,
            as_json=json,
            quiet=quiet,
        ),
    )


@app.command()
def run(
    plan_or_spec: Annotated[
        str, typer.Argument(metavar="PLAN|SPEC", help="A plan, or a job spec to plan first.")
    ],
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings", "-s", metavar="FILE", help="Run settings; else NAME.run.yaml beside it."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where the run writes; resumes it."),
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster; else one of its own on this machine.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="So many, not the settings' or the spec's.")
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a plan here, without the service, and show what its calls take beside the prediction.

    Ctrl-C cancels it. With --json the run's report is printed.
    """
    from service.cli.running import RunOptions, run_here

    run_here(
        plan_or_spec,
        RunOptions(
            settings=settings,
            output=output,
            ray_address=ray_address,
            iterations=iterations,
            as_json=json,
            quiet=quiet,
        ),
    )


@app.command()
def submit(
    plan_or_spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|PLAN",
            help="A job spec; or a plan stored on the service: its id, or its record in a file.",
        ),
    ],
    server: ServerOption,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings", "-s", metavar="FILE", help="Run settings; else NAME.run.yaml beside it."
        ),
    ] = None,
    api_key: KeyOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay and show what happens.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Have a running service run a plan, after planning it if need be."""
    from service.cli.jobs import submit_job

    submit_job(
        plan_or_spec,
        settings_source=settings,
        server=server,
        api_key=api_key,
        follow=follow,
        as_json=json,
    )


@app.command()
def jobs(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this job; else list the latest.")
    ] = None,
    *,
    server: ServerOption,
    api_key: KeyOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay and show what happens.")
    ] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Show the end of its output.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it.")] = False,
    json: JsonOption = False,
) -> None:
    """List the jobs of a running service, or show, follow or cancel one."""
    from service.cli.jobs import JobAction, list_jobs, one_job

    if job_id is None:
        list_jobs(server=server, api_key=api_key, as_json=json)
        return
    action: JobAction = "cancel" if cancel else "logs" if logs else "follow" if follow else "show"
    one_job(job_id, action, server=server, api_key=api_key, as_json=json)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    database_url: DatabaseOption = None,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Start a worker too, if Ray is installed.")
    ] = False,
) -> None:
    """Migrate the database and run the HTTP service; AUTOMAP_… variables set what is left out."""
    from service.cli.serving import run_server

    run_server(host=host, port=port, database_url=database_url, with_worker=with_worker)


@app.command()
def worker(
    database_url: DatabaseOption = None,
    ray_address: Annotated[
        str | None,
        typer.Option(help="Where to submit runs, http://HOST:8265; else a local Ray on demand."),
    ] = None,
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the queued jobs of a service on Ray; AUTOMAP_… variables set what is left out."""
    from service.cli.serving import run_worker

    run_worker(
        database_url=database_url, ray_address=ray_address, until_stdin_closes=until_stdin_closes
    )


@app.command()
def models(json: JsonOption = False) -> None:
    """List the model architectures that a spec can name."""
    from service.cli.listings import list_models

    list_models(as_json=json)


@app.command()
def gpus(json: JsonOption = False) -> None:
    """List the GPU types that a pool can have."""
    from service.cli.listings import list_gpus

    list_gpus(as_json=json)


@app.command()
def schema(
    what: Annotated[str, typer.Argument(metavar="job-spec|placement", help="Which document.")],
    json: Annotated[
        bool, typer.Option("--json", help="Accepted for symmetry: a schema is JSON anyway.")
    ] = False,
) -> None:
    """Print the JSON Schema of a document, for editors and other programs."""
    from service.cli.listings import print_schema

    print_schema(what)


if __name__ == "__main__":
    main()
