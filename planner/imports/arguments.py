"""The arguments of one job: of its command, and what the user gave beside it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.shell.syntax import Place
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Started


def of_command(
    command: Started, place: int, framework: Framework, *, strict: bool = False
) -> Overrides:
    """The arguments that follow a command's program; a flag is True.

    Args:
        command: That starts the job.
        place: The number of the word that names the program.
        framework: What it starts.
        strict: It does not start with an argument that it lacks, and takes the beginning of one.
    """
    types = {key: each.type for each in framework.settings for key in each.keys.values()}
    types |= {key: each["type"] for key, each in framework.others.items()}
    found = Overrides(command.source, command.line, end=command.end)
    found.entry = command.words[place].shown.rpartition("/")[2]
    words = list(command.words[place + 1 :])
    while words:
        word = words.pop(0)
        key, equals, _ = word.shown.partition("=")
        if not key.startswith("--"):
            why = "is not known" if word.unknown else "is the value of no argument"
            text = f"{word.shown[:80]} {why}: it is not read"
            found.remark("not read", text, Given(key, "", word.source, word.line))
            continue
        key = _whole(key, types) if strict else key
        most = _most(types.get(key), len(words)) if not equals else 0
        values = list[Field]()
        while len(values) < most and words and _is_value(words[0], first=not values):
            values.append(words.pop(0))
        found.set(replace(_given(key, word, values), must_exist=strict))
    return found


def _whole(key: str, known: Collection[str]) -> str:
    """The argument that begins so, where it is one."""
    begun = [each for each in known if each.startswith(key)]
    return begun[0] if len(begun) == 1 else key


def _most(kind: str | None, left: int) -> int:
    """Most words of a value of a type; of an argument that is not known all that are left."""
    if kind == "flag":
        return 0
    return left if kind in (None, "numbers", "texts") else 1


def _is_value(word: Field, *, first: bool) -> bool:
    """Whether a word is a value of the argument before it; what is unknown may be arguments."""
    return not word.shown.startswith("--") and (first or word.unknown is None)


def _given(key: str, word: Field, values: Sequence[Field]) -> Given:
    """An argument with the words of its value; what is unknown of these is unknown of it."""
    if "=" in word.shown:
        value = word.shown.partition("=")[2]
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
    described |= framework.others.keys()
    for name, value in values.items():
        key = name if name.startswith("--") else f"--{name}"
        if name.startswith("--") or key in described:
            overrides.given.pop(key, None)
            if value not in ("None", "False"):
                overrides.set(Given(key, value, "--set", 0), over=True)
