"""Where the command line writes: results on stdout, progress and errors on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

MAX_WIDTH = 160


def stdout_console() -> Console:
    """The console for results; no colour in a pipe or under NO_COLOR, never wider than a page."""
    console = Console(highlight=False, soft_wrap=False, emoji=False)
    console.width = min(console.width, MAX_WIDTH)
    return console


def stderr_console() -> Console:
    """The console for progress and errors."""
    return Console(stderr=True, highlight=False, emoji=False)


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
