"""`automap serve`: settings from the environment and the options, then the service itself."""

from pydantic import ValidationError

from service.cli.failures import BadInputError, ServerError
from service.settings import Settings


def run_server(*, host: str | None, port: int | None, database_url: str | None) -> None:
    """Migrate and serve until a signal; an option given here wins over its AUTOMAP_ variable."""
    options = {"host": host, "port": port, "database_url": database_url}
    given = {name: value for name, value in options.items() if value is not None}
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise BadInputError("the settings are wrong", _setting_lines(error)) from None
    # The web framework and the database, only once the settings are right.
    from sqlalchemy.exc import SQLAlchemyError

    from service.listening import AddressError
    from service.server import serve

    try:
        serve(settings)
    except AddressError as error:
        raise BadInputError(str(error), ["choose another one with --host and --port"]) from None
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise ServerError(f"the database cannot be used: {cause}") from error


def _setting_lines(error: ValidationError) -> list[str]:
    """One line per setting, named as option and as variable; a URL may hold a password."""
    lines = []
    for detail in error.errors(include_url=False, include_input=False):
        name = str(detail["loc"][0])
        message = detail["msg"].removeprefix("Value error, ")
        lines.append(f"--{name.replace('_', '-')} (AUTOMAP_{name.upper()}): {message}")
    return lines
