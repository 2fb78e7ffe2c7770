"""The commands that start a slime job."""

from collections.abc import Sequence

from automap.planner.imports.shell.values import Field

PROGRAMS = ("train.py", "train_async.py")
"""Iterations in turn, and rollouts one iteration ahead."""


def program_in(words: Sequence[Field]) -> int | None:
    """The number of the word that names one of slime's programs, which Python runs."""
    for place, word in enumerate(words[1:], start=1):
        runner = words[place - 1].shown.rpartition("/")[2].rstrip(".0123456789")
        if runner == "python" and _file(word) in PROGRAMS:
            return place
    return None


def _file(word: Field) -> str:
    return word.shown.rpartition("/")[2]
