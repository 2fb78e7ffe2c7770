"""The subcommands that measure hardware, and learn from runs."""

from typing import Annotated

import typer

from automap.service.cli.terminal.options import JsonOption, KeyOption, QuietOption, ServerOption
from automap.service.cli.terminal.usage import POSITIVE


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
        float,
        typer.Option(parser=POSITIVE, metavar="SECONDS", help="Measure for about so long."),
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
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse devices that others use, instead of marking that."),
    ] = False,
    on_cluster: Annotated[
        bool,
        typer.Option("--on-cluster", help="Have the --server measure the cluster it runs jobs on."),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="With --on-cluster: stay and show what happens.")
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure this machine's operators and collectives, for plans with --profile FOLDER.

    A profile that was interrupted goes on where it was when started again with its --output.
    With --on-cluster a job of the service measures every kind of node, and stores the profiles.
    """
    from automap.service.cli.profile.command import ProfileOptions, run_profile
    from automap.service.cli.run.measure import run_measurement

    (run_measurement if on_cluster else run_profile)(
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
            strict=strict,
            follow=follow,
        )
    )


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
    fetch: Annotated[
        str | None,
        typer.Option("--fetch", metavar="FOLDER", help="Write it to a new folder."),
    ] = None,
    make_default: Annotated[
        bool,
        typer.Option("--make-default", help="Price pools that name no profile with it."),
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Forget it; plans made with it stay.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the profiles that a service has stored, store, fetch, compare, delete, make default."""
    from automap.service.cli.profile.stored import show_profiles

    show_profiles(
        server,
        api_key,
        version=version,
        store=store,
        diff=diff,
        fetch=fetch,
        make_default=make_default,
        delete=delete,
        as_json=json,
    )


def calibrate(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Folders that automap run wrote, or their reports; with --server ids of jobs.",
        ),
    ],
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|shipped",
            help="The profile to correct, of what the runs were on, or the shipped tables; "
            "default: what priced the plan.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where its new version goes; of several GPU types each to a folder in there.",
        ),
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
            help="Whose runs: of the others, logs of metrics as JSON lines or TensorBoard's event "
            "files, with --plan.",
        ),
    ] = "automap",
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="A service whose jobs RUN names by id."),
    ] = None,
    api_key: KeyOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Learn from runs: correct a measured profile or shipped tables, and lengths of responses.

    The profile that is given stays as it is; earlier evidence in it counts on.
    """
    from automap.service.cli.calibrate.command import CalibrateOptions, run_calibrate

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
            server=server,
            api_key=api_key,
            quiet=quiet,
        )
    )
