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
)
from automap.service.cli.terminal.usage import SEARCH_SECONDS, SECONDS, SHARE


@dataclass(frozen=True)
class ExamplesArguments:
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Copy this one; default: list them all.")
    ] = None
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="Where it goes; default: NAME.yaml, here."),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False
    json: JsonOption = False


@dataclass(frozen=True)
class ListingArguments:
    json: JsonOption = False


@dataclass(frozen=True)
class TargetsArguments:
    show: Show
    spec: Annotated[
        str | None,
        typer.Argument(metavar="[SPEC]", help="A job spec: what would each target cost it?"),
    ] = None
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this one; may be repeated."),
    ] = None
    brief: Annotated[
        bool, typer.Option("--brief", help="Do not plan without each limit in turn.")
    ] = False


@dataclass(frozen=True)
class SchemaArguments:
    what: Annotated[
        str, typer.Argument(metavar="job-spec|placement|run-settings", help="Which document.")
    ]
    json: Annotated[
        bool, typer.Option("--json", help="Accepted for symmetry: a schema is JSON anyway.")
    ] = False


@dataclass(frozen=True)
class PlanArguments:
    spec: SpecArgument
    where: Where
    show: Show
    output: OutputOption = None
    details: DetailsOption = False
    picture: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw what runs when on which GPUs: .svg, .png or .pdf."),
    ] = None
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="NAME",
            help=f"Place it as this strategy would. {STRATEGY_NAMES}",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What is to run it: automap, verl@0.9.1, or any (what can be priced).",
        ),
    ] = None
    explain_infeasible: Annotated[
        bool,
        typer.Option(
            "--explain-infeasible",
            help="Where nothing fits, plan the smallest changes with which something does.",
        ),
    ] = False
    gap: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Stop when no plan can be better by more than this share, 0.01 for 1 %.",
        ),
    ] = None
    simplicity_tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share by which a simpler plan may miss the optimum; 0: always the optimum.",
        ),
    ] = None


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
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            metavar="NAME",
            help=f"Only this one; may be repeated. {STRATEGY_NAMES}",
        ),
    ] = None


@dataclass(frozen=True)
class ParetoArguments:
    spec: SpecArgument
    where: Where
    show: Show
    tolerance: Annotated[
        float,
        typer.Option(
            parser=SHARE, metavar="SHARE", help="Leave out what others beat up to this share."
        ),
    ] = 0.0
    picture: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw seconds against price; .png, .svg or .pdf."),
    ] = None
    output: OutputOption = None


@dataclass(frozen=True)
class WhatIfArguments:
    spec: SpecArgument
    where: Where
    show: Show
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Numbers of nodes to try, separated by commas."),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(metavar="TYPE,...", help="GPU types to try; `automap gpus` lists them."),
    ] = None
    pool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which pool; needed where there are several.")
    ] = None
    output: OutputOption = None


@dataclass(frozen=True)
class ExplainArguments:
    plan_or_spec: PlanOrSpecArgument
    where: Where
    show: Show
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this of alternatives, sensitivity, regret; may be repeated."
        ),
    ] = None
    fewer_gpus: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Ask for N fewer GPUs; default: a node fewer, and half."
        ),
    ] = None
    scenarios: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=1000, help="How many sets of seconds to draw for the regret."
        ),
    ] = None
    search_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SEARCH_SECONDS, metavar="SECONDS", help="Limit of every search; default: 2."
        ),
    ] = None


@dataclass(frozen=True)
class SimulateArguments:
    plan_or_spec: PlanOrSpecArgument
    where: Where
    show: Show
    iterations: Annotated[
        int, typer.Option("--iterations", "-n", min=1, max=1000, help="How many.")
    ] = 100
    seed: Annotated[int, typer.Option(min=0, help="Seed of the lengths that are drawn.")] = 0
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the timeline for chrome://tracing or Perfetto."),
    ] = None
    picture: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the timeline (.png, .svg, .pdf)."),
    ] = None


@dataclass(frozen=True)
class ExportArguments:
    plan_or_spec: PlanOrSpecArgument
    where: Where
    show: Show
    target: Annotated[
        str,
        typer.Option(metavar="NAME@VERSION", help="What runs it; `automap targets` lists them."),
    ] = "verl@0.9.1"
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="DIR|-", help="Where the script goes; -: standard output."
        ),
    ] = "-"
    nearest: Annotated[
        bool,
        typer.Option(
            "--nearest",
            help="Where the plan cannot be exported, plan its job inside the target and export "
            "that; every change is shown.",
        ),
    ] = False


@dataclass(frozen=True)
class ImportArguments:
    target: Annotated[
        str, typer.Argument(metavar="NAME@VERSION", help="What the launch is for: verl@0.9.1.")
    ]
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="The script that starts it, and what it reads: scripts, YAML. - reads a script.",
        ),
    ]
    where: Where
    show: Show
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="GPU type that it runs on; automap gpus.")
    ]
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
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Write spec.yaml and placement.json there."
        ),
    ] = None
    details: DetailsOption = False


@dataclass(frozen=True)
class ReplanArguments:
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="The plan that runs.")]
    show: Show
    measured: Annotated[
        str | None,
        typer.Option("--measured", metavar="REPORT.json", help="The report of its run."),
    ] = None
    call: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SECONDS", help="What a call (or ROLE.sync) takes; may be repeated."
        ),
    ] = None
    lose_node: Annotated[
        list[str] | None,
        typer.Option(metavar="POOL[:N]", help="A node, or N, of the pool is gone."),
    ] = None
    add_nodes: Annotated[
        list[str] | None, typer.Option(metavar="POOL:N", help="N nodes have come to the pool.")
    ] = None
    iterations_left: Annotated[
        int | None, typer.Option(min=1, help="Iterations left; default: those of the spec.")
    ] = None
    startup_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SECONDS,
            metavar="SECONDS",
            help="What a restart takes; default: as the spec says, or an estimate.",
        ),
    ] = None
    checkpoint_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SECONDS,
            metavar="SECONDS",
            help="How long a restart waits for a checkpoint; default: likewise.",
        ),
    ] = None
    search_seconds: Annotated[
        float | None,
        typer.Option(
            parser=SEARCH_SECONDS, metavar="SECONDS", help="Limit of the search; default: 0.15."
        ),
    ] = None
    move_by: Annotated[
        str, typer.Option(metavar="restart|reshard", help="How a move would be done.")
    ] = "restart"
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the new plan here, if any."),
    ] = None
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Have a running service do it.")
    ] = None
    api_key: KeyOption = None


@dataclass(frozen=True)
class ValidateArguments:
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE.csv...", help="Tables of measurements; docs: accuracy.md."),
    ]
    quality: Annotated[str, typer.Option(help="Only rows of these grades, any of A, B and C.")] = (
        "A,B"
    )
    by: Annotated[str, typer.Option(help="Group by some of source, gpu, precision, model.")] = (
        "source,gpu,precision"
    )
    json: JsonOption = False
    rows: Annotated[
        str | None,
        typer.Option(metavar="OUT.csv", help="Write every prediction with its parts here."),
    ] = None
    plot: Annotated[
        str | None,
        typer.Option(metavar="OUT.png", help="Draw predicted against measured here."),
    ] = None
