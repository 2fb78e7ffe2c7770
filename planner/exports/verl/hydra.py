"""Names that people gave, as Hydra reads them."""

import re


def hydra_quoted(text: str) -> str:
    """Any text as a quoted value: on one line, and neither an interpolation nor a second setting.

    Backslashes count only before a quote and at the end, where they are doubled.
    """
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    doubled = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), line)
    return "'" + doubled.replace("${", "\\${") + "'"
