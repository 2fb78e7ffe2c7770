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


def schema(
    what: Annotated[str, typer.Argument(metavar="job-spec|placement", help="Which document.")],
    json: Annotated[
        bool, typer.Option("--json", help="Accepted for symmetry: a schema is JSON anyway.")
    ] = False,
) -> None:
    """Print the JSON Schema of a document, for editors and other programs."""
    from automap.service.cli.listings import print_schema

    print_schema(what)
