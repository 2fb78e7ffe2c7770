"""Options that several commands have, and how a command takes all of its own as one value."""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
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
    typer.Option("--output", "-o", metavar="FILE", help="Write the JSON to this file too."),
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


@dataclass(frozen=True)
class Show:
    """How results are shown."""

    json: JsonOption = False
    quiet: QuietOption = False


@dataclass(frozen=True)
class Where:
    """What plans and prices: this process with these profiles, or a running service."""

    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="Price GPUs of a type with what automap profile measured on it; may be repeated.",
        ),
    ] = None
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Have a running service do it, which stores plans."),
    ] = None
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
    # A command that is called as a word of Python is has an underscore behind its name.
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


def _parameter(field: Field[Any]) -> Parameter:
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


def _built(group: Any, typed: dict[str, Any]) -> Any:
    return group(
        **{
            each.name: _built(each.type, typed) if is_dataclass(each.type) else typed[each.name]
            for each in fields(group)
        }
    )
