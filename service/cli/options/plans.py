"""What the commands take that make plans, list what a spec can name, or look closer at a plan."""

from dataclasses import dataclass
from typing import Annotated

import typer

from automap.service.cli.options.shared import (
    STRATEGY_NAMES,
    DetailsOption,
    JsonOption,
    KeyOption,
    OutputOption,
    PlanOrSpecArgument,
    Show,
    SpecArgument,
    Where,
    argument,
    flag,
    option,
    target_of,
)
from automap.service.cli.terminal.usage import SEARCH_SECONDS, SECONDS, SHARE

LaunchFilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="The script that starts it, and what it reads: scripts, YAML. - reads a script.",
    ),
]


@dataclass(frozen=True)
class ExamplesArguments:
    name: str | None = argument("Copy this one; default: list them all.", metavar="NAME")
    to: str | None = option("Where it goes; default: NAME.yaml, here.", metavar="FILE")
    force: bool = flag("Overwrite files.")
    json: JsonOption = False


@dataclass(frozen=True)
class ListingArguments:
    name: str | None = argument(
        "Only this one, or those with this in a name; default: all.", metavar="NAME"
    )
    json: JsonOption = False


@dataclass(frozen=True)
class TargetsArguments:
    show: Show
    spec: str | None = argument("A job spec: what would each target cost it?", metavar="SPEC")
    target: list[str] | None = option(
        "Only this one; may be repeated.", metavar="NAME", parser=target_of
    )
    brief: bool = flag("Do not plan without each limit in turn.")


@dataclass(frozen=True)
class LeversArguments:
    spec: SpecArgument
    show: Show
    target: list[str] | None = option(
        "Only this one; may be repeated. Default: the spec's, or all that run plans.",
        metavar="NAME",
        parser=target_of,
    )


@dataclass(frozen=True)
class SchemaArguments:
    what: Annotated[
        str, typer.Argument(metavar="job-spec|placement|run-settings", help="Which document.")
    ]
    json: bool = flag("Accepted for symmetry: a schema is JSON anyway.")


@dataclass(frozen=True)
class PlanArguments:
    spec: SpecArgument
    where: Where
    show: Show
    output: OutputOption = None
    details: DetailsOption = False
    picture: str | None = option(
        "Draw what runs when on which GPUs: .svg, .png or .pdf.", metavar="FILE"
    )
    strategy: str | None = option(
        f"Place it as this strategy would. {STRATEGY_NAMES}", short="-s", metavar="NAME"
    )
    target: str | None = option(
        "What is to run it: automap, a framework (automap targets), or any (what can be priced).",
        metavar="NAME",
        parser=target_of,
    )
    explain_infeasible: bool = flag(
        "Where nothing fits, plan the smallest changes with which something does."
    )
    gap: float | None = option(
        "Stop when no plan can be better by more than this share, 0.01 for 1 %.", metavar="SHARE"
    )
    simplicity_tolerance: float | None = option(
        "Share by which a simpler plan, or one that leaves more memory free, may miss the optimum; "
        "0: always the optimum.",
        metavar="SHARE",
    )


@dataclass(frozen=True)
class EstimateArguments:
    spec: SpecArgument
    placement: Annotated[
        str, typer.Argument(metavar="PLACEMENT", help="A placement or a whole plan, JSON or YAML.")
    ]
    where: Where
    show: Show
    output: OutputOption = None
    details: DetailsOption = False


@dataclass(frozen=True)
class CompareArguments:
    spec: SpecArgument
    where: Where
    show: Show
    strategy: list[str] | None = option(
        f"Only this one; may be repeated. {STRATEGY_NAMES}", short="-s", metavar="NAME"
    )
    targets: str | None = option(
        "Instead of strategies, the best plan inside each target: all, or names with commas.",
        metavar="all|NAME,NAME",
    )
    details: bool = flag("With --targets, also every limit that each of them has.")
    schedules: bool = flag(
        "Instead of strategies, the best plan that waits for every batch, for the one before, and "
        "for none."
    )


@dataclass(frozen=True)
class ParetoArguments:
    spec: SpecArgument
    where: Where
    show: Show
    tolerance: float = option(
        "Leave out what others beat up to this share.", parser=SHARE, metavar="SHARE", default=0.0
    )
    picture: str | None = option("Draw seconds against price; .png, .svg or .pdf.", metavar="FILE")
    output: OutputOption = None


@dataclass(frozen=True)
class WhatIfArguments:
    spec: SpecArgument
    where: Where
    show: Show
    nodes: str | None = option("Numbers of nodes to try, separated by commas.", metavar="N,N,...")
    gpu: str | None = option("GPU types to try; `automap gpus` lists them.", metavar="TYPE,...")
    pool: str | None = option("Which pool; needed where there are several.", metavar="NAME")
    output: OutputOption = None


@dataclass(frozen=True)
class ExplainArguments:
    plan_or_spec: PlanOrSpecArgument
    where: Where
    show: Show
    part: list[str] | None = option(
        "Only this of alternatives, sensitivity, regret; may be repeated.", metavar="NAME"
    )
    fewer_gpus: int | None = option(
        "Ask for N fewer GPUs; default: a node fewer, and half.", metavar="N", min=1
    )
    scenarios: int | None = option(
        "How many sets of seconds to draw for the regret.", metavar="N", min=1, max=1000
    )
    search_seconds: float | None = option(
        "Limit of every search; default: 2.", parser=SEARCH_SECONDS, metavar="SECONDS"
    )


@dataclass(frozen=True)
class SimulateArguments:
    plan_or_spec: PlanOrSpecArgument
    where: Where
    show: Show
    iterations: int = option("How many.", short="-n", min=1, max=1000, default=100)
    seed: int = option("Seed of the lengths that are drawn.", min=0, default=0)
    trace: str | None = option(
        "Write the timeline for chrome://tracing or Perfetto.", metavar="FILE"
    )
    picture: str | None = option("Draw the timeline (.png, .svg, .pdf).", metavar="FILE")


@dataclass(frozen=True)
class ExportArguments:
    plan_or_spec: PlanOrSpecArgument
    where: Where
    show: Show
    target: str = option(
        "What runs it; `automap targets` lists them.",
        metavar="NAME",
        default="verl@0.9.1",
        parser=target_of,
    )
    out: str = option(
        "Where the script goes; with --into a file. -: standard output.",
        short="-o",
        metavar="DIR|FILE|-",
        default="-",
    )
    into: list[str] | None = option(
        "Write the plan into this launch: only the settings that it decides otherwise change. "
        "Repeated for what the script reads; the file itself stays unless --out names it.",
        metavar="FILE",
    )
    set: list[str] | None = option(
        "With --into, a variable that the script does not set; may be repeated.",
        metavar="NAME=VALUE",
    )
    job: int | None = option("With --into, which job, where the files start several.", min=1)
    nearest: bool = flag(
        "Where the plan cannot be exported, plan its job inside the target and export that; "
        "every change is shown."
    )


@dataclass(frozen=True)
class LaunchAnswers:
    """What no launch says, or one leaves open."""

    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="GPU type that it runs on; automap gpus.")
    ]
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Framework that it is for (automap targets); default: the one that it starts.",
            parser=target_of,
        ),
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A variable that the script does not set, or a key; may be repeated.",
        ),
    ] = None
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="mean=N,…|FILE",
            help="Lengths of responses in tokens: mean, or p50, p90, p99; or a YAML file of it.",
        ),
    ] = None
    prompt_lengths: Annotated[
        str | None,
        typer.Option(metavar="mean=N,…|FILE", help="Lengths of prompts, likewise."),
    ] = None
    log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The framework's log of a run, for both lengths."),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=NAME|PATH",
            help="What a model is: of the catalogue, or a config.json; may be repeated.",
        ),
    ] = None
    job: Annotated[
        int | None, typer.Option(min=1, help="Which job, where the files start several.")
    ] = None
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            metavar="N",
            help="GPUs of a node, where launches do not say it (OpenRLHF, SkyRL).",
        ),
    ] = None


@dataclass(frozen=True)
class ImportArguments:
    files: LaunchFilesArgument
    where: Where
    show: Show
    said: LaunchAnswers
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Write spec.yaml and placement.json there."
        ),
    ] = None
    details: DetailsOption = False


@dataclass(frozen=True)
class ConvertArguments:
    files: LaunchFilesArgument
    where: Where
    show: Show
    said: LaunchAnswers
    target: Annotated[
        str, typer.Option("--to", metavar="NAME", help="What it is to be for.", parser=target_of)
    ]
    out: str = option(
        "Where the new launch goes. -: standard output.", short="-o", metavar="DIR|-", default="-"
    )
    exact: bool = flag(
        "Refuse a launch that the other framework cannot be told as it is; default: write the plan "
        "inside that which keeps the most of it, and show every change."
    )


@dataclass(frozen=True)
class AdviseArguments:
    files: LaunchFilesArgument
    show: Show
    said: LaunchAnswers
    allow_learning_changes: bool = flag(
        "Also offer what changes what is learned: optimizer steps, epochs, staleness, 8-bit "
        "rollouts."
    )
    at_least: float = option(
        "Share of an iteration that a change must save.",
        parser=SHARE,
        metavar="SHARE",
        default=0.01,
    )
    search_seconds: float | None = option(
        "Limit of the search; default: as for a plan.", parser=SEARCH_SECONDS, metavar="SECONDS"
    )
    write: str | None = option(
        "Write the launch with all changes there; every other byte of it stays.", metavar="FILE"
    )


@dataclass(frozen=True)
class ReplanArguments:
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="The plan that runs.")]
    show: Show
    measured: str | None = option("The report of its run.", metavar="REPORT.json")
    call: list[str] | None = option(
        "What a call (or ROLE.sync) takes; may be repeated.", metavar="NAME=SECONDS"
    )
    lose_node: list[str] | None = option("A node, or N, of the pool is gone.", metavar="POOL[:N]")
    add_nodes: list[str] | None = option("N nodes have come to the pool.", metavar="POOL:N")
    iterations_left: int | None = option("Iterations left; default: those of the spec.", min=1)
    startup_seconds: float | None = option(
        "What a restart takes; default: as the spec says, or an estimate.",
        parser=SECONDS,
        metavar="SECONDS",
    )
    checkpoint_seconds: float | None = option(
        "How long a restart waits for a checkpoint; default: likewise.",
        parser=SECONDS,
        metavar="SECONDS",
    )
    search_seconds: float | None = option(
        "Limit of the search; default: 0.15.", parser=SEARCH_SECONDS, metavar="SECONDS"
    )
    move_by: str = option("How a move would be done.", metavar="restart|reshard", default="restart")
    output: str | None = option("Write the new plan here, if any.", short="-o", metavar="FILE")
    server: str | None = option("Have a running service do it.", metavar="URL")
    api_key: KeyOption = None


@dataclass(frozen=True)
class ValidateArguments:
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE.csv...", help="Tables of measurements; docs: accuracy.md."),
    ]
    quality: str = option("Only rows of these grades, any of A, B and C.", default="A,B")
    by: str | None = option(
        "Group by some of source, gpu, precision, model, project, load, year; --details and --json "
        "group by the first three."
    )
    details: bool = flag("Show groups, slopes, what was skipped and what assumed.")
    json: JsonOption = False
    rows: str | None = option(
        "Write every prediction with its interval and parts here.", metavar="OUT.csv"
    )
    plot: str | None = option("Draw predicted against measured here.", metavar="OUT.png")
