"""A standard output for our own lines alone: what libraries print goes to the standard error."""

import os
from typing import TextIO


def reserved_stdout() -> TextIO:
    """The standard output; from now on file descriptor 1 is the standard error."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own
