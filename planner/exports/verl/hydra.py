"""Values of overrides as Hydra reads them."""

import re

from automap.planner.exports.lines import Value


def hydra_value(value: Value) -> str:
    """A value as Hydra reads it: null, True, numbers, lists, and words without special characters.

    Raises:
        ValueError: a word needs quotes; names that people give are for `hydra_quoted`.
    """
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(hydra_value, value))}]"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value):
        raise ValueError(f"{value!r} needs quotes")
    return str(value)


def hydra_quoted(text: str) -> str:
    """Any text as a quoted value: on one line, and neither an interpolation nor a second setting.

    Backslashes count only before a quote and at the end, where they are doubled.
    """
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    doubled = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), line)
    return "'" + doubled.replace("${", "\\${") + "'"
