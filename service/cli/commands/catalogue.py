"""The subcommands that list what a spec can name."""

from typing import Annotated

import typer

from automap.service.cli.terminal.options import JsonOption


def models(json: JsonOption = False) -> None:
    """List the model architectures that a spec can name."""
    from automap.service.cli.listings import list_models

    list_models(as_json=json)


def gpus(json: JsonOption = False) -> None:
    """List the GPU types that a pool can have."""
    from automap.service.cli.listings import list_gpus

    list_gpus(as_json=json)


def examples(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Copy this one; else list them all.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="Where it goes; default: NAME.yaml, here."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
    json: JsonOption = False,
) -> None:
    """List job specs to begin with, or copy one to here with everything it needs."""
    from automap.service.cli.examples import copy_example, list_examples

    if name is not None:
        copy_example(name, to=to, force=force, as_json=json)
    elif to is not None or force:
        raise typer.BadParameter("say which example: automap examples NAME", param_hint="NAME")
    else:
        list_examples(as_json=json)


def schema(
    what: Annotated[str, typer.Argument(metavar="job-spec|placement", help="Which document.")],
    json: Annotated[
        bool, typer.Option("--json", help="Accepted for symmetry: a schema is JSON anyway.")
    ] = False,
) -> None:
    """Print the JSON Schema of a document, for editors and other programs."""
    from automap.service.cli.listings import print_schema

    print_schema(what)
