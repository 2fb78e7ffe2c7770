"""The arguments of one slime job: of its command, and what the user gave beside it."""

from collections.abc import Mapping, Sequence

from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.shell.syntax import Place
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Reading, Started

PROGRAMS = ("train.py", "train_async.py")
"""Iterations in turn, and rollouts one iteration ahead."""


def jobs_of(reading: Reading) -> list[tuple[Started, int]]:
    """Commands that start slime, and the number of the word that names the program."""
    found = []
    for command in reading.commands:
        place = _program(command.words)
        if place is not None:
            found.append((command, place))
    return found


def _program(words: Sequence[Field]) -> int | None:
    """The number of the word that names one of slime's programs, which Python runs."""
    for place, word in enumerate(words[1:], start=1):
        runner = words[place - 1].shown.rpartition("/")[2].rstrip(".0123456789")
        if runner == "python" and _file(word) in PROGRAMS:
            return place
    return None


def _file(word: Field) -> str:
    return word.shown.rpartition("/")[2]


def of_command(command: Started, place: int, framework: Framework) -> Overrides:
    """The arguments that follow a command's program; a flag is True."""
    types = {key: each.type for each in framework.settings for key in each.keys.values()}
    found = Overrides(command.source, command.line, end=command.end)
    found.entry = _file(command.words[place])
    words = list(command.words[place + 1 :])
    while words:
        word = words.pop(0)
        key, equals, _ = word.shown.partition("=")
        if not key.startswith("--"):
            why = "is not known" if word.unknown else "is the value of no argument"
            text = f"{word.shown[:80]} {why}: it is not read"
            found.remark("not read", text, Given(key, "", word.source, word.line))
            continue
        most = 0 if equals or types.get(key) == "flag" else 1 if key in types else len(words)
        values = list[Field]()
        while len(values) < most and words and _is_value(words[0], first=not values):
            values.append(words.pop(0))
        found.set(_given(key, word, values))
    return found


def _is_value(word: Field, *, first: bool) -> bool:
    """Whether a word is a value of the argument before it; what is unknown may be arguments."""
    return not word.shown.startswith("--") and (first or word.unknown is None)


def _given(key: str, word: Field, values: Sequence[Field]) -> Given:
    """An argument with the words of its value; what is unknown of these is unknown of it."""
    if "=" in word.shown:
        value = word.shown[len(key) + 1 :]
        return Given(key, value, word.source, word.line, word.unknown, place=word.place)
    unknown = next((each.unknown for each in values if each.unknown), None)
    value = " ".join(each.shown for each in values) if values else "True"
    return Given(key, value, word.source, word.line, unknown, place=_place([word, *values]))


def _place(words: Sequence[Field]) -> Place | None:
    """Where words stand one after another in a file; None: they do not."""
    known = [each.place for each in words if each.place and each.source == words[0].source]
    if len(known) < len(words) or known != sorted(known):
        return None
    return known[0][0], known[-1][1]


def take(values: Mapping[str, str], overrides: Overrides, framework: Framework) -> None:
    """Set the arguments that the user gave, with or without dashes; None and False take away."""
    described = {key for each in framework.settings for key in each.keys.values()}
    for name, value in values.items():
        key = name if name.startswith("--") else f"--{name}"
        if name.startswith("--") or key in described:
            overrides.given.pop(key, None)
            if value not in ("None", "False"):
                overrides.set(Given(key, value, "--set", 0), over=True)
