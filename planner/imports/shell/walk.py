"""What a reader of scripts knows while it goes from command to command."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.flow import Frame
from automap.planner.imports.shell.syntax import (
    Command,
    Function,
    Script,
)
from automap.planner.imports.shell.values import Budget, Field

MAX_CALLS = 12
"""Functions and read texts inside one another."""


@dataclass(frozen=True, slots=True)
class Started:
    """A command that a script starts."""

    words: tuple[Field, ...]
    line: int
    source: str
    open_lines: tuple[int, ...] = ()
    """Lines of the conditions of which it is not known whether they hold."""
    end: int | None = None
    """Where in the file its words end, but for the script's own arguments; None: in no file."""


class Guard(NamedTuple):
    """Where a script would leave with an error."""

    source: str
    line: int
    status: int


@dataclass(slots=True)
class Reading:
    """What a script comes to."""

    commands: list[Started] = field(default_factory=list)
    remarks: list[tuple[str, int, str]] = field(default_factory=list)
    """(file, line, what was not read there)."""
    unset: dict[str, int] = field(default_factory=dict)
    """Variables that are read, and that nothing sets → the line of the first reading."""
    passed_on: list[int] = field(default_factory=list)
    """Lines at which the script passes its own arguments on."""
    guards: dict[Guard, int] = field(default_factory=dict)
    """Exits with an error, which are read over → how many commands were started before."""
    ended: tuple[str, int] | None = None
    """(file, line) at which the script leaves before its last line."""
    texts: dict[str, str] = field(default_factory=dict)
    """Functions by name → how they are written."""


class Walk(ABC):
    """Where a reader is in a script, and what it has found."""

    def __init__(
        self,
        scripts: Mapping[str, str],
        given: Mapping[str, str],
        substitutions: Callable[[str, "Walk", Expander], str | None],
    ) -> None:
        """What `substitutions` does not know of a command's output is unknown."""
        self.reading = Reading()
        self._scripts = scripts
        self._given = given
        self._substitutions = substitutions
        self._budget = Budget()
        self._functions: dict[str, tuple[Function, str]] = {}
        self._open: list[int] = []
        self._frames: list[Frame] = []
        self._subshells = 0
        self._unfollowed: set[str] = set()
        """Variables that are declared so that what they are set to is not what they hold."""
        self._parsed: dict[str, Script] = {}
        self._calls = 0
        self._depth = 0

    def _remark(self, expander: Expander, line: int, what: str) -> None:
        remark = (expander.source, line, what)
        if remark not in self.reading.remarks:
            self.reading.remarks.append(remark)

    @abstractmethod
    def _run(self, commands: Sequence[Command], expander: Expander) -> bool | None:
        """Follow commands; whether the last one succeeds."""

    @abstractmethod
    def _follow(self, command: Command, expander: Expander) -> bool | None:
        """Follow a command; whether it succeeds, as far as that is known."""

    @abstractmethod
    def _read(self, text: str, expander: Expander, *, within: int | None = None) -> bool | None:
        """Follow a file, or a text in a line of one; whether it succeeds."""
