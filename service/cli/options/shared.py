"""Options that several commands have, and how a command takes all of its own as one value.

What one command alone takes is a field that `option`, `flag` or `argument` makes; what several take
has a type of its own here.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

SpecArgument = Annotated[
    str, typer.Argument(metavar="SPEC", help="Job spec, YAML or JSON; - reads standard input.")
]
PlanOrSpecArgument = Annotated[
    str, typer.Argument(metavar="PLAN|SPEC", help="A plan, or a job spec to plan first.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; a line per result.")]
DetailsOption = Annotated[
    bool,
    typer.Option("--details", help="Also what was searched, software, bytes, strategies."),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output", "--out", "-o", metavar="FILE", help="Write the JSON to this file too."
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(envvar="AUTOMAP_API_KEY", help="Key for --server.", show_default=False),
]
ServerOption = Annotated[str, typer.Option(metavar="URL", help="A running service.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Stay and show what happens.")]
SettingsOption = Annotated[
    str | None,
    typer.Option(
        "--settings",
        "-s",
        metavar="FILE",
        help="Run settings; default: NAME.run.yaml beside NAME.yaml.",
    ),
]
STRATEGY_NAMES = (
    "One of colocate_all, split, standalone, hybridflow, verl, deepspeed_chat, openrlhf, "
    "nemo_aligner, app_interleaving, app_separation, real_heuristic, real_mcmc, rlinf, "
    "one_step_off, fully_async."
)
"""The names in automap.planner.spec's StrategyName, which takes too long to import for --help."""
DECLARED = "declared"
"""Where a field's metadata have what typer is told of it: a function of its name."""


def option(
    text: str | None = None, *, short: str | None = None, default: Any = None, **settings: Any
) -> Any:
    """A field that is an option, named as the field is; `settings` are those of typer.Option."""

    def declared(name: str) -> Any:
        names = [f"--{name.replace('_', '-')}", *([short] if short else [])]
        return typer.Option(*names, help=text, **settings)

    return field(default=default, metadata={DECLARED: declared})


def flag(text: str | None = None, *, short: str | None = None, **settings: Any) -> Any:
    """A field that is an option without a value: False unless it is given."""
    return option(text, short=short, default=False, **settings)


def argument(text: str, *, metavar: str | None = None) -> Any:
    """A field that is an argument which may be left out."""
    declared = typer.Argument(help=text, metavar=metavar)
    return field(default=None, metadata={DECLARED: lambda _: declared})


def target_of(name: str) -> str:
    """A target as typed; of a framework without a version the one that is known."""
    from automap.planner.spec import with_version  # the command line starts without the planner

    return str(with_version(name))


@dataclass(frozen=True)
class Show:
    """How results are shown."""

    json: JsonOption = False
    quiet: QuietOption = False


@dataclass(frozen=True)
class Where:
    """What plans and prices: this process with these profiles, or a running service."""

    profile: list[str] | None = option(  # noqa: RUF009 - it makes a field
        "Price GPUs of a type with what automap profile measured on it; may be repeated.",
        metavar="FOLDER",
    )
    server: str | None = option("Have a running service do it, which stores plans.", metavar="URL")
    api_key: KeyOption = None


@dataclass(frozen=True)
class Account:
    """A running service and the key to it."""

    server: ServerOption
    api_key: KeyOption = None


def command(work: Callable[[Any], None]) -> Callable[..., None]:
    """A command as typer reads it: each field of the dataclass that it takes is a parameter.

    A field that is a dataclass itself, a group of options, stands for its own fields.
    """
    [taken] = signature(work).parameters.values()

    def run(**typed: Any) -> None:
        work(_built(taken.annotation, typed))

    parameters = [_parameter(each) for each in _leaves(taken.annotation)]
    # A command named as a word of Python, or a module, is has an underscore behind its name.
    run.__name__, run.__doc__ = work.__name__.rstrip("_"), work.__doc__
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _leaves(group: Any) -> list[Field[Any]]:
    return [
        leaf
        for each in fields(group)
        for leaf in (_leaves(each.type) if is_dataclass(each.type) else [each])
    ]


def _parameter(each: Field[Any]) -> Parameter:
    default = Parameter.empty if each.default is MISSING else each.default
    annotation: Any = each.type
    if declared := each.metadata.get(DECLARED):
        annotation = Annotated[annotation, declared(each.name)]
    return Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _built(group: Any, typed: dict[str, Any]) -> Any:
    return group(
        **{
            each.name: _built(each.type, typed) if is_dataclass(each.type) else typed[each.name]
            for each in fields(group)
        }
    )
