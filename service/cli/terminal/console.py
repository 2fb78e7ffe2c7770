"""Where the command line writes: results on stdout, progress and errors on stderr."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

MAX_WIDTH = 160


class WholeConsole(Console):
    """A pipe or a file, which has no width: text is folded at a page's, tables are whole."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*objects, **{"crop": False, **options})


def stdout_console() -> Console:
    """The console for results; no colour in a pipe or under NO_COLOR.

    On a terminal it is never wider than a page; elsewhere as wide as COLUMNS says, or whole.
    """
    if _has_no_width(sys.stdout):
        return WholeConsole(width=MAX_WIDTH, highlight=False, soft_wrap=False, emoji=False)
    console = Console(highlight=False, soft_wrap=False, emoji=False)
    console.width = min(console.width, MAX_WIDTH)
    return console


def stderr_console() -> Console:
    """The console for progress and errors; as whole as that for results."""
    if _has_no_width(sys.stderr):
        return WholeConsole(width=MAX_WIDTH, stderr=True, highlight=False, emoji=False)
    return Console(stderr=True, highlight=False, emoji=False)


def _has_no_width(stream: Any) -> bool:
    """Whether nothing says how wide lines may be.

    Not Rich's own `is_terminal`, which FORCE_COLOR sets, nor its width, for which it asks the other
    streams too.
    """
    said = os.environ.get("COLUMNS", "")
    return not stream.isatty() and not (said.isdigit() and int(said) > 0)


def write_json(text: str) -> None:
    """Print exactly this JSON on stdout."""
    write_text(text)


def write_text(text: str) -> None:
    """Print exactly this text on stdout, whatever the width."""
    sys.stdout.write(text.rstrip("\n") + "\n")


def write_exactly(text: str) -> None:
    """Print a file on stdout as it is, without a line end that it lacks."""
    sys.stdout.write(text)


def unicode_output() -> bool:
    """False where stdout cannot show box characters, as under LC_ALL=C."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")


@contextmanager
def progress(message: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner while something long runs; a plain pipe sees nothing of it.

    What is yielded takes how far the work is, and shows it behind the message.
    """
    console = stderr_console()
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status(message) as status:
        yield lambda done: status.update(f"{message}: {done}")
