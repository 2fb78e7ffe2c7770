"""Values of overrides as SkyRL reads them: OmegaConf's YAML."""

import re

from automap.planner.exports.lines import Value


def plain(value: Value) -> str:
    """A value as it is read: null, True, numbers, lists, and words without special characters.

    Raises:
        ValueError: a word needs quotes; names that people give are for `quoted`.
    """
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(plain, value))}]"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_+]*", value):
        raise ValueError(f"{value!r} needs quotes")
    return str(value)


def quoted(text: str) -> str:
    """Any text as a quoted value: on one line, and no interpolation.

    Backslashes count only before one, where they are doubled.
    """
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    doubled = re.sub(r"(\\*)\$\{", lambda m: 2 * m[1] + "\\${", line.replace("'", "''"))
    return f"'{doubled}'"


def label(text: str) -> str:
    """A name for people as a quoted value; what would end quotes is a prime."""
    return quoted(text.replace("'", "′"))
