"""What the commands take that run plans, serve, measure hardware, or learn from runs."""

from dataclasses import dataclass
from typing import Annotated

import typer

from automap.service.cli.options.shared import (
    Account,
    DetailsOption,
    FollowOption,
    JsonOption,
    KeyOption,
    PlanOrSpecArgument,
    SettingsOption,
    Show,
    argument,
    flag,
    option,
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
    output: str | None = option("Where the run writes; resumes it.", short="-o", metavar="FOLDER")
    ray_address: str | None = option("A Ray cluster; default: one of its own on this machine.")
    iterations: int | None = option("Default: as the settings or the spec say.", min=1)


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
    name: str | None = option("What it is called; default: as the spec.", metavar="TEXT")
    label: list[str] | None = option("Put on this label; may be repeated.", metavar="KEY=VALUE")
    notes: str | None = option("What to remember of it.", metavar="TEXT")
    priority: int | None = option(
        "Jobs with more are run first; default: 0.", metavar="N", min=-1000, max=1000
    )
    follow: FollowOption = False
    json: JsonOption = False


@dataclass(frozen=True)
class Chosen:
    """Which plans or jobs a list shows; all that is given holds together."""

    find: str | None = option(
        "List those with these words in name, labels, notes, owner, algorithm or models.",
        metavar="TEXT",
    )
    label: list[str] | None = option("List those with this label.", metavar="KEY[:VALUE]")
    owner: str | None = option("List those of this owner.", metavar="NAME")
    status: str | None = option(
        "List those that are queued, running, succeeded, failed or cancelled.", metavar="STATUS"
    )
    limit: int | None = option("List so many; default: 50, at most 200.", metavar="N")


@dataclass(frozen=True)
class PlansArguments:
    account: Account
    chosen: Chosen
    plan_id: str | None = argument("Show this plan; default: list the latest.", metavar="ID")
    sort: str | None = option(
        "By created_at, name, iteration_seconds, price_per_iteration or gpus_used; from the "
        "largest after a -. Default: -created_at.",
        metavar="COLUMN",
    )
    details: DetailsOption = False
    delete: bool = flag("Delete it with the records of its jobs, also while it is being made.")
    cancel: bool = flag("End it while it is being made, and keep its record.")
    json: JsonOption = False


@dataclass(frozen=True)
class JobsArguments:
    account: Account
    chosen: Chosen
    job_id: str | None = argument("Show this job; default: list the latest.", metavar="ID")
    follow: FollowOption = False
    logs: bool = flag("Show the end of its output.")
    cancel: bool = flag("Cancel it.")
    retry: bool = flag("Queue it again, as it was, now that it is over.")
    json: JsonOption = False


@dataclass(frozen=True)
class CostsArguments:
    show: Show
    plan: str | None = argument(
        "What this will cost: a plan's file, with --server its id, or a job spec to plan first; "
        "default: what runs of the service have cost.",
        metavar="PLAN|SPEC",
    )
    server: str | None = option("A running service.", metavar="URL")
    api_key: KeyOption = None
    by: str | None = option(
        "Of runs: day (UTC; the default), owner, model (the actor's), plan, or label:KEY.",
        metavar="GROUP",
    )
    after: str | None = option(
        "Of runs: time from then on, for example 2026-01-31T00:00Z.", metavar="TIME"
    )
    before: str | None = option("Of runs: time until then.", metavar="TIME")


@dataclass(frozen=True)
class BudgetsArguments:
    account: Account
    action: Annotated[str, typer.Argument(metavar="list|set|remove", help="What to do.")]
    # Not in the text: there Rich takes :KEY: for the name of a picture.
    of: str | None = argument("Whose it is.", metavar="owner:NAME|label:KEY:VALUE")
    amount: float | None = option("What may be used in a month (UTC).", metavar="NUMBER")
    unit: str = option(
        "price (by the plans' clusters) or gpu_hours.", metavar="UNIT", default="price"
    )
    json: JsonOption = False


@dataclass(frozen=True)
class DiffArguments:
    before: Annotated[
        str, typer.Argument(metavar="PLAN", help="A plan's file, or with --server its id.")
    ]
    after: Annotated[str, typer.Argument(metavar="PLAN", help="The other plan, likewise.")]
    server: str | None = option("A running service that has them.", metavar="URL")
    api_key: KeyOption = None
    json: JsonOption = False


@dataclass(frozen=True)
class LabelArguments:
    account: Account
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a stored plan or job.")]
    labels: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE|KEY-", help="Put on a label, or take it off."),
    ] = None
    name: str | None = option("Another name; '': the spec's.", metavar="TEXT")
    notes: str | None = option("What to remember of it; '': nothing.", metavar="TEXT")
    owner: str | None = option(
        "Give it to somebody else, which needs a key with the scope admin.", metavar="NAME"
    )
    priority: int | None = option(
        "Of a queued job: those with more are run first.", metavar="N", min=-1000, max=1000
    )


@dataclass(frozen=True)
class HistoryArguments:
    account: Account
    plan_id: str | None = argument(
        "Id of a stored plan; default: runs of all plans.", metavar="PLAN"
    )
    json: JsonOption = False


@dataclass(frozen=True)
class ServeArguments:
    host: str | None = option("Address to listen on.")
    port: int | None = option("Port to listen on.")
    database_url: DatabaseOption = None
    with_worker: bool = flag("Start a worker too, if Ray is installed.")


@dataclass(frozen=True)
class WorkerArguments:
    database_url: DatabaseOption = None
    ray_address: str | None = option(
        "Where to submit runs, http://HOST:8265; default: a local Ray."
    )
    until_stdin_closes: bool = flag(hidden=True)


@dataclass(frozen=True)
class ProfileArguments:
    show: Show
    models: list[str] | None = option(
        "Measure the shapes of these models first: catalogue names or config.json files, "
        "separated by commas; may be repeated.",
        metavar="NAME",
    )
    budget: float = option(
        "Measure for about this long.", parser=POSITIVE, metavar="SECONDS", default=300.0
    )
    output: str | None = option("Where the tables go; continues it.", short="-o", metavar="FOLDER")
    tables: list[str] | None = option(
        "Measure only these tables (host_work, collectives, ...), separated by commas; "
        "default: all that the budget is long enough for.",
        metavar="NAME",
    )
    device: str | None = option("Default: CUDA where there is a device.", metavar="cpu|cuda")
    ranks: int | None = option(
        "Most processes of a collective; default: every device.", metavar="N"
    )
    ray_address: str | None = option(
        "A Ray cluster: measure one node of each kind, and the link between two.", metavar="ADDRESS"
    )
    server: str | None = option("Store it on a running service, too.", metavar="URL")
    api_key: KeyOption = None
    make_default: bool = flag("On the service, price pools with it that name no profile.")
    strict: bool = flag("Refuse devices that others use, instead of marking that.")
    on_cluster: bool = flag("Have the --server measure the cluster it runs jobs on.")
    follow: bool = flag("With --on-cluster: stay and show what happens.", short="-f")


@dataclass(frozen=True)
class ProfilesArguments:
    account: Account
    version: str | None = argument("A stored profile; default: list them all.")
    store: str | None = option("Store the profile in this folder.", metavar="FOLDER")
    diff: str | None = option("How the other profile differs from it.", metavar="OTHER")
    fetch: str | None = option("Write it to a new folder.", metavar="FOLDER")
    make_default: bool = flag("Price pools that name no profile with it.")
    delete: bool = flag("Delete it; plans made with it stay.")
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
    profile: str | None = option(
        "The profile to correct, measured on the runs' GPUs, or the shipped tables; "
        "default: what priced the plan.",
        metavar="FOLDER|shipped",
    )
    output: str | None = option(
        "Where its new version goes; with several GPU types, a folder each in there.",
        short="-o",
        metavar="FOLDER",
    )
    plan: str | None = option("What was run; default: plan.json beside the report.", metavar="PLAN")
    spec: str | None = option(
        "A job spec that takes over the lengths of responses.", metavar="SPEC"
    )
    output_spec: str | None = option("Where the spec with these lengths goes.", metavar="SPEC")
    format: str = option(
        "Which framework's runs: for others than automap, logs of metrics as JSON lines "
        "or TensorBoard's event files, with --plan.",
        metavar="automap|verl|openrlhf|nemo-rl|slime|trl|skyrl|areal",
        default="automap",
    )
    server: str | None = option("A service whose jobs RUN names by id.", metavar="URL")
    api_key: KeyOption = None


@dataclass(frozen=True)
class UpgradeArguments:
    database_url: DatabaseOption = None
    revision: str | None = option("Default: the newest that this version knows.")


@dataclass(frozen=True)
class DowngradeArguments:
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="The older one; base removes everything.")
    ]
    database_url: DatabaseOption = None
    yes: bool = flag("Do it without asking.", short="-y")


@dataclass(frozen=True)
class BackupArguments:
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where it goes; must not exist.")]
    database_url: DatabaseOption = None


@dataclass(frozen=True)
class RestoreArguments:
    file: Annotated[str, typer.Argument(metavar="FILE", help="What automap db backup wrote.")]
    database_url: DatabaseOption = None
    replace: bool = flag(
        "Remove all that is in the database, in the same transaction; says what goes, and asks."
    )
    yes: bool = flag("With --replace: do it without asking.", short="-y")


@dataclass(frozen=True)
class CheckArguments:
    database_url: DatabaseOption = None
    json: JsonOption = False
