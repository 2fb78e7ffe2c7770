"""Failures that say all there is to know, and their exit codes."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pydantic import ValidationError

from automap.planner.errors import InfeasibleError, PlanCheckError, Reason, SpecError

EXIT_OUR_FAULT = 1
EXIT_BAD_INPUT = 2
EXIT_NO_PLAN = 3


class ReportedError(Exception):
    """What a headline, a line per thing to know, and the exit code say in full."""

    code = EXIT_OUR_FAULT

    def __init__(self, headline: str, lines: Sequence[str] = ()) -> None:
        super().__init__(headline)
        self.headline = headline
        self.lines = list(lines)


class UnpricedInfeasibleError(InfeasibleError):
    """A launch that does not fit by its price, and has settings that save memory and have none."""

    def __init__(self, reasons: Sequence[Reason], settings: Sequence[str]) -> None:
        super().__init__(reasons)
        self.settings = list(settings)


class BadInputError(ReportedError):
    """What the user gave is wrong; one line per thing to correct."""

    code = EXIT_BAD_INPUT


class RunFailedError(ReportedError):
    """A run did not end well; one line per thing to know."""

    def __init__(self, headline: str, lines: Sequence[str] = (), *, code: int = EXIT_OUR_FAULT):
        super().__init__(headline, lines)
        self.code = code


class ServerError(ReportedError):
    """A service or its database failed."""


class UnreachableError(ServerError):
    """Nothing answers at the address that was given."""

    code = EXIT_BAD_INPUT


def need_valid(option: str, given: Sequence[str], valid: Sequence[str]) -> None:
    """Refuse names that are not among the valid ones.

    Raises:
        BadInputError: with the closest valid name.
    """
    unknown = [name for name in given if name not in valid]
    if unknown:
        near = difflib.get_close_matches(unknown[0], valid, n=1)
        without_version = {name.partition("@")[0]: name for name in valid}
        close = difflib.get_close_matches(unknown[0], without_version, n=1)
        near = near or [without_version[name] for name in close]
        near = near or [name for name in valid if unknown[0] and name.startswith(unknown[0])]
        raise BadInputError(
            f"{option}: unknown {', '.join(unknown)} (valid: {', '.join(valid)})",
            [f"did you mean {near[0]}?"] if near else [],
        )


@contextmanager
def naming_options(
    options: Mapping[str, str], *, otherwise: str = "the spec cannot be planned"
) -> Iterator[None]:
    """Report what is wrong with a field by the option, or file, that the user gave it with.

    An option stands for all fields below its own: with `{"measured": "--call"}` what is wrong with
    `measured.actor.generate` is wrong with `--call actor.generate`. `otherwise` is the headline
    where the field came with none of them.

    Raises:
        BadInputError: in place of every SpecError.
    """
    try:
        yield
    except SpecError as error:
        if (option := typed(error.field, options)) is not None:
            raise of_option(error, option) from None
        if error.field.startswith("--"):
            raise
        raise of_spec(error, otherwise) from None


@contextmanager
def reporting_check(refusal: str) -> Iterator[None]:
    """Report a plan that fails the check with what the check found, a line each.

    Raises:
        BadInputError: in place of every PlanCheckError.
    """
    try:
        yield
    except PlanCheckError as error:
        raise BadInputError(
            f"{refusal}, it was {error.cause}",
            [*error.found, "plan the job again: automap plan SPEC --output PLAN.json"],
        ) from None


def typed(field: str, options: Mapping[str, str]) -> str | None:
    """The option that a field was given with, and which of its values."""
    if field in options:
        return options[field]
    for name, option in options.items():
        if field.startswith(f"{name}."):
            between = " " if option.startswith("-") else ": "
            return f"{option}{between}{field.removeprefix(f'{name}.')}"
    return None


def of_option(error: SpecError, option: str) -> BadInputError:
    return BadInputError(f"{option}: {error.message}", [error.remedy] if error.remedy else [])


def of_spec(error: SpecError, headline: str = "the spec cannot be planned") -> BadInputError:
    remedy = f" ({error.remedy})" if error.remedy else ""
    return BadInputError(headline, [f"{error.field}: {error.message}{remedy}"])


@contextmanager
def refusing_options(**arguments: str) -> Iterator[None]:
    """Report values that options cannot have, a line each.

    Args:
        arguments: Fields that are no options, each with the name of its argument.

    Raises:
        BadInputError: in place of every ValidationError.
    """
    try:
        yield
    except ValidationError as error:
        lines = [
            f"{arguments.get(field) or '--' + field.replace('_', '-')}: "
            f"{str(each['msg']).removeprefix('Value error, ')}"
            for each in error.errors(include_url=False, include_input=False)
            for field in [str(each["loc"][0])]
        ]
        raise BadInputError("options are wrong", lines) from None
