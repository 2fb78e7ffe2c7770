"""The `automap` command: its subcommands, and how each failure ends it."""

import gc
import sys
from typing import Annotated

import typer

from automap.service.cli.commands import COMMANDS, DATABASE_COMMANDS
from automap.service.cli.options.shared import command
from automap.service.cli.terminal.usage import OnceCommand, report_usage

_YOUNG_OBJECTS = 50_000
"""New objects before garbage is looked for. Python's own 700 cost a tenth of the time to import,
which makes much and throws away little."""

app = typer.Typer(
    name="automap",
    help="Plan where the models of an RL post-training job run: GPUs, parallelism, order. Run it.",
    epilog="Exit codes: 0 done, 2 bad input, 3 no feasible plan, 130 cancelled, 1 our fault or a "
    "run that failed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure ends as a message and its exit code."""
    gc.set_threshold(_YOUNG_OBJECTS)
    # A terminal or pipe that cannot show a character gets a question mark, not a crash.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        # --debug may stand anywhere; it belongs to the whole command.
        arguments = [argument for argument in given if argument != "--debug"]
        code = app(args=arguments, prog_name="automap", standalone_mode=False)
    except typer.TyperException as error:
        sys.exit(report_usage(error))
    except Exception as error:
        # Brings the planner's documents in.
        from automap.service.cli.failure_report import report

        sys.exit(report(error, debug=debug))
    sys.exit(code or 0)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"automap {metadata.version('automap')}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure.")
    ] = False,
) -> None:
    """Plan where the models of an RL post-training job run: GPUs, parallelism, order. Run it."""


for _work in COMMANDS:
    app.command(cls=OnceCommand)(command(_work))
_database = typer.Typer(
    name="db",
    help="The database of the service: upgrade, downgrade, back up, restore, check.",
    no_args_is_help=True,
)
for _part in DATABASE_COMMANDS:
    _database.command(cls=OnceCommand)(command(_part))
app.add_typer(_database)


if __name__ == "__main__":
    main()
