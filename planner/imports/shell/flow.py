"""Where a script goes on: what leaves a loop, a function or the script, and what ways have left."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from automap.planner.imports.shell.values import Field, Unknown, Value

LEAVING = ("return", "break", "continue", "exit")
State = dict[str, Value]
"""Variables by name."""


class LeaveError(Exception):
    """A command that leaves what it stands in."""

    def __init__(self, kind: str, levels: int, status: bool | None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.levels = levels
        """Loops that are left."""
        self.status = status
        """Whether what is left has succeeded; None: that is not known."""


@dataclass(slots=True)
class Frame:
    """A loop, a function or a script that is read, and ways that have perhaps left it."""

    kind: Literal["loop", "function"]
    left: list[State] = field(default_factory=list)
    turned: list[State] = field(default_factory=list)
    """Ways that have gone on with the next turn of the loop."""
    outside: dict[str, Value | None] = field(default_factory=dict)
    """Variables of the function's own → what they are outside."""


def keep(error: LeaveError, frames: Sequence[Frame], state: State) -> None:
    """Keep a way that has perhaps left, where it comes back; one that ends the script does not."""
    kind = "function" if error.kind == "return" else "loop"
    fitting = [frame for frame in frames if frame.kind == kind]
    if error.kind == "exit" or not fitting:
        return
    frame = fitting[-min(error.levels, len(fitting))]
    (frame.turned if error.kind == "continue" else frame.left).append(state)


def merged(outcomes: Sequence[State], why: str, line: int, source: str) -> State:
    """What several ways leave: where they differ, it is unknown."""
    found: State = {}
    first = outcomes[0]
    for name in dict.fromkeys(name for outcome in outcomes for name in outcome):
        kept = first.get(name)
        if any(outcome.get(name) != kept for outcome in outcomes):
            kept = Field((Unknown(name, why, line, source),), line, source)
        if kept is not None:
            found[name] = kept
    return found
