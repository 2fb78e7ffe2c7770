"""What a part of the check finds, and when a part cannot run."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Literal

State = Literal["passed", "rehearsed", "failed", "not run"]
"""`rehearsed`: on CPU cores every line of the part ran, which shows nothing of a GPU."""
MARK = "finding: "


class NotRunError(Exception):
    """A part needs what is not here; says what."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, and the limit that it is held to where there is one."""

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it is inside its limits; a value that is not a number is not."""
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return self.value == self.value and above and below


@dataclass(frozen=True, slots=True)
class Finding:
    """One part: how it ended, why, and what it measured."""

    part: str
    state: State
    reason: str = ""
    seconds: float = 0.0
    figures: tuple[Figure, ...] = field(default=())

    def written(self) -> str:
        """One line that `read` takes back."""
        return MARK + json.dumps(asdict(self))


def read(output: str) -> Finding | None:
    """The finding in what a part printed; None where there is none."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    document = json.loads(lines[-1].removeprefix(MARK))
    figures = tuple(Figure(**each) for each in document.pop("figures"))
    return Finding(**document, figures=figures)


class Figures:
    """Collects the figures of a part."""

    def __init__(self) -> None:
        self.all: list[Figure] = []

    def add(
        self,
        what: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Keep a value; one outside its limit fails the part when it is done."""
        self.all.append(Figure(what, float(value), unit, at_most, at_least))


@contextmanager
def quiet() -> Iterator[None]:
    """Whatever is printed inside goes to stderr, so that the finding stands alone on stdout."""
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = stdout
