"""`automap serve` and `automap worker`: settings from environment and options, then the process."""

import os
from collections.abc import Collection

from pydantic import ValidationError
from rich.text import Text

from automap.service.cli.options.runs import ServeArguments, WorkerArguments
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, ServerError
from automap.service.environment import hide_environment
from automap.service.settings import Settings, misspelt_settings

_SECRET = ("database_url", "api_keys")
"""Settings that are not repeated, as they may hold a password or a key."""


def run_server(given: ServeArguments) -> None:
    """Migrate and serve until a signal; an option given here wins over its AUTOMAP_ variable."""
    hide_environment()
    settings = settings_from(host=given.host, port=given.port, database_url=given.database_url)
    # The web framework and the database, only once the settings are right.
    from sqlalchemy.exc import SQLAlchemyError

    from automap.service.api.sockets import AddressError
    from automap.service.server import OpenServiceError, serve
    from automap.service.worker.process import WorkerProcess

    worker = WorkerProcess(settings) if given.with_worker else None
    try:
        serve(settings, worker)
    except AddressError as error:
        raise BadInputError(str(error), ["choose another one with --host and --port"]) from None
    except OpenServiceError as error:
        raise BadInputError(str(error)) from None
    except SQLAlchemyError as error:
        raise unusable_database(error) from error


def run_worker(given: WorkerArguments) -> None:
    """Migrate and work until a signal; an option given here wins over its AUTOMAP_ variable."""
    hide_environment()
    settings = settings_from(database_url=given.database_url, ray_address=given.ray_address)
    from sqlalchemy.exc import SQLAlchemyError

    from automap.service.server import migrate
    from automap.service.worker.main import can_submit, work

    if not can_submit():
        raise BadInputError(
            "a worker needs Ray, which is not installed here",
            ["pip install '.[executor-cpu]', or '.[executor-gpu]' on a machine with GPUs"],
        )
    try:
        migrate(settings)
        work(settings, until_stdin_closes=given.until_stdin_closes)
    except SQLAlchemyError as error:
        raise unusable_database(error) from error


def settings_from(**options: object) -> Settings:
    """The settings, with options in place of their variables where they are given.

    Raises:
        BadInputError: one is wrong.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise BadInputError("the settings are wrong", _setting_lines(error, options)) from None


def database_url_from(option: str | None) -> str:
    """The database of a command, by its option or else the settings; warns of misspelt ones.

    Raises:
        BadInputError: a setting is wrong.
    """
    settings = settings_from(database_url=option)
    for line in misspelt_settings(os.environ, settings.job_environment):
        console.stderr_console().print(Text(f"warning: {formats.printable(line)}"), soft_wrap=True)
    return settings.database_url


def need_database(url: str) -> None:
    """Refuse an SQLite database that is not there: to open it would make an empty one.

    Raises:
        BadInputError: there is no such file.
    """
    from automap.service.storage.database import sqlite_file

    file = sqlite_file(url)
    if file is not None and not file.exists():
        raise BadInputError(
            f"--database-url (AUTOMAP_DATABASE_URL): there is no database {file}",
            ["give the path of one that is there, or make one: automap db upgrade"],
        )


def unusable_database(error: Exception) -> ServerError:
    """Why nothing can be done: the database's own words, whose further lines have a tab."""
    lines = str(getattr(error, "orig", None) or error).splitlines()
    why = "\n  ".join(line.strip() for line in lines)
    return ServerError(f"the database cannot be used: {why}")


def _setting_lines(error: ValidationError, options: Collection[str]) -> list[str]:
    """One line per setting, named by its variable and its option, where the command has one."""
    lines = []
    for detail in error.errors(include_url=False):
        name = str(detail["loc"][0])
        variable = f"AUTOMAP_{name.upper()}"
        named = f"--{name.replace('_', '-')} ({variable})" if name in options else variable
        message = detail["msg"].removeprefix("Value error, ")
        given = "" if name in _SECRET else f" (given: {detail['input']!r})"
        lines.append(f"{named}: {message}{given}")
    return lines
