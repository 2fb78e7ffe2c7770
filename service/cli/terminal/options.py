"""Arguments and options that several subcommands share."""

from typing import Annotated

import typer

SpecArgument = Annotated[
    str, typer.Argument(metavar="SPEC", help="Job spec, YAML or JSON; - reads standard input.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
ServerOption = Annotated[str, typer.Option(metavar="URL", help="A running service.")]
MaybeServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Have a running service do it; plans are stored."),
]
KeyOption = Annotated[
    str | None,
    typer.Option(envvar="AUTOMAP_API_KEY", help="Key for --server.", show_default=False),
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the JSON here too."),
]
DatabaseOption = Annotated[
    str | None, typer.Option(help="sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.")
]
ProfileOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER",
        help="Price GPUs of a type with what automap profile measured on it; may be repeated.",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; a line per result.")]
STRATEGY_NAMES = (
    "One of colocate_all, split, standalone, hybridflow, verl, deepspeed_chat, openrlhf, "
    "nemo_aligner, app_interleaving, app_separation, real_heuristic, real_mcmc, rlinf, "
    "one_step_off, fully_async."
)
"""Of automap.planner.spec's StrategyName, which takes too long to import for --help."""
