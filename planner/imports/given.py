"""The settings that a launch gives, by key, and where each is written."""

from dataclasses import dataclass, field

from automap.planner.errors import Reason
from automap.planner.imports.launch import Remark
from automap.planner.imports.shell.syntax import Place
from automap.planner.imports.shell.values import Unknown


@dataclass(frozen=True, slots=True)
class Given:
    """A key, and what the launch gives it."""

    key: str
    value: str
    """How it is written."""
    file: str
    line: int
    unknown: Unknown | None = None
    """What of the value is unknown."""
    must_exist: bool = False
    """True on a command line without +: a key that the configuration lacks ends the start."""
    place: Place | None = None
    """Where the whole override stands in the file; None: it is no word of it."""


@dataclass(slots=True)
class Overrides:
    """All keys of a job; of a key that comes twice the last counts."""

    file: str
    line: int
    entry: str = ""
    """The program that it starts, by the end of its name; empty: the framework's own."""
    implied: set[str] = field(default_factory=set)
    """Keys that the program sets by itself."""
    end: int | None = None
    """Where in the file the command's words end; None: the file has them in no such way."""
    given: dict[str, Given] = field(default_factory=dict)
    composed: int = 0
    """Configurations that were taken so far, each as often as it was."""
    remarks: list[Remark] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)

    def set(self, new: Given, *, over: bool = False) -> None:
        """Give a key a value; `over`: it is meant to replace another."""
        before = self.given.get(new.key)
        if before is not None and not over:
            same = (
                "with the same value" if before.value == new.value else f"not {before.value[:60]}"
            )
            text = f"{new.key} comes twice, before in line {before.line}: {new.value[:60]} counts"
            self.remark("contradiction", f"{text}, {same}", new)
        self.given[new.key] = new

    def remark(self, kind: str, text: str, at: Given) -> None:
        """Note something about a setting."""
        self.remarks.append(
            Remark.model_validate({"kind": kind, "text": text, "file": at.file, "line": at.line})
        )
