"""What the commands take that run plans, serve, measure hardware, or learn from runs."""

from dataclasses import dataclass
from typing import Annotated

import typer

from automap.service.cli.options.shared import (
    Account,
    FollowOption,
    JsonOption,
    KeyOption,
    PlanOrSpecArgument,
    SettingsOption,
    Show,
)
from automap.service.cli.terminal.usage import POSITIVE

DatabaseOption = Annotated[
    str | None, typer.Option(help="sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.")
]


@dataclass(frozen=True)
class RunArguments:
    plan_or_spec: PlanOrSpecArgument
    show: Show
    settings: SettingsOption = None
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where the run writes; resumes it."),
    ] = None
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster; default: one of its own on this machine.")
    ] = None
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Default: as the settings or the spec say.")
    ] = None


@dataclass(frozen=True)
class SubmitArguments:
    plan_or_spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|PLAN",
            help="A job spec; or a plan stored on the service: its id, or its record in a file.",
        ),
    ]
    account: Account
    settings: SettingsOption = None
    follow: FollowOption = False
    json: JsonOption = False


@dataclass(frozen=True)
class JobsArguments:
    account: Account
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Show this job; default: list the latest."),
    ] = None
    follow: FollowOption = False
    logs: Annotated[bool, typer.Option("--logs", help="Show the end of its output.")] = False
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it.")] = False
    json: JsonOption = False


@dataclass(frozen=True)
class HistoryArguments:
    account: Account
    plan_id: Annotated[
        str | None,
        typer.Argument(metavar="[PLAN]", help="Id of a stored plan; default: runs of all plans."),
    ] = None
    json: JsonOption = False


@dataclass(frozen=True)
class ServeArguments:
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None
    database_url: DatabaseOption = None
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Start a worker too, if Ray is installed.")
    ] = False


@dataclass(frozen=True)
class WorkerArguments:
    database_url: DatabaseOption = None
    ray_address: Annotated[
        str | None,
        typer.Option(help="Where to submit runs, http://HOST:8265; default: a local Ray."),
    ] = None
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False


@dataclass(frozen=True)
class ProfileArguments:
    show: Show
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Measure the shapes of these models first: catalogue names or config.json files, "
            "separated by commas; may be repeated.",
        ),
    ] = None
    budget: Annotated[
        float,
        typer.Option(parser=POSITIVE, metavar="SECONDS", help="Measure for about this long."),
    ] = 300.0
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where the tables go; continues it."),
    ] = None
    tables: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Measure only these tables (host_work, collectives, ...), separated by commas; "
            "default: all that the budget is long enough for.",
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(metavar="cpu|cuda", help="Default: CUDA where there is a device."),
    ] = None
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most processes of a collective; default: every device."),
    ] = None
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Ray cluster: measure one node of each kind, and the link between two.",
        ),
    ] = None
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Store it on a running service, too."),
    ] = None
    api_key: KeyOption = None
    make_default: Annotated[
        bool,
        typer.Option(
            "--make-default", help="On the service, price pools with it that name no profile."
        ),
    ] = False
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse devices that others use, instead of marking that."),
    ] = False
    on_cluster: Annotated[
        bool,
        typer.Option("--on-cluster", help="Have the --server measure the cluster it runs jobs on."),
    ] = False
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="With --on-cluster: stay and show what happens.")
    ] = False


@dataclass(frozen=True)
class ProfilesArguments:
    account: Account
    version: Annotated[
        str | None, typer.Argument(help="A stored profile; default: list them all.")
    ] = None
    store: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Store the profile in this folder."),
    ] = None
    diff: Annotated[
        str | None,
        typer.Option(metavar="OTHER", help="How the other profile differs from it."),
    ] = None
    fetch: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Write it to a new folder."),
    ] = None
    make_default: Annotated[
        bool,
        typer.Option("--make-default", help="Price pools that name no profile with it."),
    ] = False
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete it; plans made with it stay.")
    ] = False
    json: JsonOption = False


@dataclass(frozen=True)
class CalibrateArguments:
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Folders that automap run wrote, or their reports; with --server ids of jobs.",
        ),
    ]
    show: Show
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|shipped",
            help="The profile to correct, measured on the runs' GPUs, or the shipped tables; "
            "default: what priced the plan.",
        ),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where its new version goes; with several GPU types, a folder each in there.",
        ),
    ] = None
    plan: Annotated[
        str | None,
        typer.Option(metavar="PLAN", help="What was run; default: plan.json beside the report."),
    ] = None
    spec: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="A job spec that takes over the lengths of responses."),
    ] = None
    output_spec: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Where the spec with these lengths goes.")
    ] = None
    format: Annotated[
        str,
        typer.Option(
            metavar="automap|verl|openrlhf|nemo-rl",
            help="Which framework's runs: for others than automap, logs of metrics as JSON lines "
            "or TensorBoard's event files, with --plan.",
        ),
    ] = "automap"
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A service whose jobs RUN names by id."),
    ] = None
    api_key: KeyOption = None
