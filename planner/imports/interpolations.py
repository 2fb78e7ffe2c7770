"""References between keys: `${key}`, `${mul:${key}, 2}` and variables of the environment."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import add, mul, sub, truediv

from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.shell.values import Unknown

_OPERATIONS: Mapping[str, Callable[[float, float], float]] = {
    "mul": mul,
    "div": truediv,
    "max": max,
    "min": min,
    "add": add,
    "sub": sub,
}
MAX_DEPTH = 20
"""References that lead to one another."""
MAX_LENGTH = 2000
_ENVIRONMENT = re.compile(r"(?:\$\{oc\.decode:)?\$\{oc\.env:(\w+)(?:,([^{}]*))?\}\}?")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def interpolate(overrides: Overrides, framework: Framework, values: Mapping[str, str]) -> None:
    """Put what references come to in their place; what only a machine knows is unknown."""
    defaults = _defaults(framework)
    for key, given in list(overrides.given.items()):
        text = given.value.strip().strip("'\"")
        if "${" not in text or given.unknown is not None or len(text) > MAX_LENGTH:
            continue
        found = _ENVIRONMENT.fullmatch(text)
        if found is not None:
            value = values.get(found[1], found[2])
            why = "a variable of the environment"
            unknown = Unknown(found[1], why, given.line, given.file) if value is None else None
            overrides.given[key] = replace(given, value=value or text, unknown=unknown)
            continue
        result = _result(text, overrides.given, defaults, 0)
        if result is not None:
            overrides.given[key] = replace(given, value=result)


def _defaults(framework: Framework) -> dict[str, str]:
    found = {}
    for setting in framework.settings:
        for role, key in setting.keys.items():
            followed = setting.follows.get(role)
            found[key] = setting.default if followed is None else f"${{{followed}}}"
    return {key: value for key, value in found.items() if value and " " not in value}


def _result(
    text: str, given: Mapping[str, Given], defaults: Mapping[str, str], depth: int
) -> str | None:
    """What a value comes to; None: it is not known here."""
    text = text.strip().strip("'\"")
    if "${" not in text:
        return text
    if depth > MAX_DEPTH or not (text.startswith("${") and text.endswith("}")):
        return None
    inner = text[2:-1]
    name, colon, rest = inner.partition(":")
    if not colon:
        before = given.get(inner)
        if before is not None and before.unknown is not None:
            return None
        found = defaults.get(inner) if before is None else before.value
        return None if found is None else _result(found, given, defaults, depth + 1)
    operation = _OPERATIONS.get(name)
    if operation is None:
        return None
    numbers = [_number(_result(each, given, defaults, depth + 1)) for each in _parts(rest)]
    known = [each for each in numbers if each is not None]
    if len(known) != len(numbers) or not known or (name == "div" and 0 in known[1:]):
        return None
    return f"{reduce(operation, known):.15g}"


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text.strip()) else None


def _parts(text: str) -> Iterator[str]:
    """A text at the commas that are in no braces."""
    depth, start = 0, 0
    for place, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]
