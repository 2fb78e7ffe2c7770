"""Names that people gave, as SkyRL reads them: OmegaConf's YAML."""

import re


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
