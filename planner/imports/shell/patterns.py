"""Patterns of the shell as Python matches them."""

import re
from collections.abc import Sequence

_NOT_READ = re.compile(r"\\|[@?*+!]\(|\[\[?[:.=]|\[\^?\]")
"""Escapes and groups of a pattern, and classes by name or with a bracket of their own."""


def glob(pieces: Sequence[tuple[str, bool]]) -> str | None:
    """A pattern for fnmatch of (text, whether it is quoted); None: it is not read."""
    loose = "".join(text for text, quoted in pieces if not quoted)
    literal = "".join(text for text, quoted in pieces if quoted)
    if _NOT_READ.search(loose) or ("[" in loose and re.search(r"[\[\]!^*?-]", literal)):
        return None
    return "".join(
        _escaped(text) if quoted else text.replace("[^", "[!") for text, quoted in pieces
    )


def _escaped(text: str) -> str:
    return "".join(f"[{each}]" if each in "*?[" else each for each in text)
