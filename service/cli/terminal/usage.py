"""How the command line is read: options once, numbers finite, mistakes reported like all others.

Nothing of the planner is imported here, so that a mistake is answered at once.
"""

from collections.abc import Callable
from math import isfinite, nan
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperCommand

from automap.service.cli.terminal.console import stderr_console


class OnceCommand(TyperCommand):
    """A command that refuses an option given twice, of which parsing would take the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        parsed: Any = self.make_parser(ctx).parse_args(args=list(args))
        order = parsed[2]
        for param in order:
            many = getattr(param, "multiple", False) or getattr(param, "is_flag", False)
            if param.param_type_name == "option" and not many and order.count(param) > 1:
                raise typer.BadParameter(
                    f"is given {order.count(param)} times; give it once", ctx=ctx, param=param
                )
        return super().parse_args(ctx, args)


def finite_number(wanted: str, valid: Callable[[float], bool]) -> Callable[[str | float], float]:
    """A parser of an option's number: finite, and valid; `wanted` says so in words."""

    def number(given: str | float) -> float:
        try:
            value = float(given)
        except ValueError:
            value = nan
        if not (isfinite(value) and valid(value)):
            raise typer.BadParameter(f"{str(given)!r}: give a finite number {wanted}")
        return value

    return number


SHARE = finite_number("from 0 to 1", lambda value: 0 <= value <= 1)
SECONDS = finite_number("from 0 to 1e7", lambda value: 0 <= value <= 1e7)
SEARCH_SECONDS = finite_number("above 0, at most 600", lambda value: 0 < value <= 600)
POSITIVE = finite_number("above 0", lambda value: value > 0)


def report_usage(error: Exception) -> int:
    """Say on stderr what cannot be parsed, and where help is; return the exit code."""
    context = getattr(error, "ctx", None)
    message = _message(error)
    if message:  # empty: the help is shown instead
        from automap.service.cli.terminal import formats  # brings the planner's documents in

        console = stderr_console()
        line = Text.assemble(("error: ", "bold red"), formats.printable(message))
        console.print(line, soft_wrap=True)
        if context is not None:
            help_line = f"  `{context.command_path} --help` shows what it takes"
            console.print(Text(_of_the_spec(error) + help_line), soft_wrap=True)
    return 2


def _of_the_spec(error: Any) -> str:
    """A line that names the field of the spec which an unknown option would set, if one does."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    if not name:
        return ""
    from automap.service.errors.valid_fields import field_of_spec  # brings the planner's in

    field = field_of_spec(name)
    return f"  the spec says it: {field}\n" if field else ""


def _message(error: Any) -> str:
    """`--option: what is wrong` where it is about one; typer's words for the rest."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    if isinstance(error, typer.BadParameter) and error.message:
        hint = error.param_hint
        if hint is None and error.param is not None:
            hint = max(error.param.opts, key=len)
        return f"{hint}: {error.message}" if hint else error.message
    return str(error.format_message()).rstrip(".")
