"""What words of a script come to: text, as far as it is known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from automap.planner.imports.shell.syntax import Place, ShellError

MAX_EXPANDED = 2**20
"""Characters that the words of one script may come to, all together."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A piece of text that the script alone does not say."""

    name: str
    """The variable that gives it; empty: none does."""
    why: str
    line: int
    source: str = ""
    unset: bool = False
    """True: nothing in the script sets the variable."""


@dataclass(frozen=True, slots=True)
class Field:
    """One word as a command gets it, and where it is written."""

    parts: tuple[str | Unknown, ...]
    line: int
    source: str = ""
    place: Place | None = None
    """Where the whole word stands in that file; None: it is a part of one, or of several."""

    @property
    def text(self) -> str | None:
        """The word; None: a piece of it is unknown."""
        known = [part for part in self.parts if isinstance(part, str)]
        return "".join(known) if len(known) == len(self.parts) else None

    @property
    def unknown(self) -> Unknown | None:
        """The first piece that is unknown."""
        return next((part for part in self.parts if isinstance(part, Unknown)), None)

    @property
    def shown(self) -> str:
        """The word for people, with what is unknown by its name."""
        return "".join(
            part if isinstance(part, str) else f"${{{part.name or part.why}}}"
            for part in self.parts
        )

    def named(self, name: str) -> "Field":
        """The field as the value of a variable, by whose name it is asked for."""
        parts = tuple(
            replace(part, name=name) if isinstance(part, Unknown) and not part.name else part
            for part in self.parts
        )
        return replace(self, parts=parts)


Value = Field | tuple[Field, ...]


def field_of(parts: Iterable[str | Unknown], line: int, source: str) -> Field:
    """A field of these parts, those of text joined."""
    found: list[str | Unknown] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return Field(tuple(found), line, source)


def split(parts: Sequence[tuple[str | Unknown, bool]], line: int, source: str) -> list[Field]:
    """Words of (part, whether blanks in it separate words), as the shell splits them."""
    fields: list[list[str | Unknown]] = []
    open_field = False
    for part, splits in parts:
        if isinstance(part, Unknown) or not splits:
            if not open_field:
                fields.append([])
            fields[-1].append(part)
            open_field = True
            continue
        pieces = part.split()
        if not part:
            continue
        if part[0].isspace():
            open_field = False
        for piece in pieces:
            if not open_field:
                fields.append([])
            fields[-1].append(piece)
            open_field = False
        open_field = bool(pieces) and not part[-1].isspace()
    return [field_of(each, line, source) for each in fields]


@dataclass(slots=True)
class Budget:
    """Bounds of reading one set of files: however they are written, it ends soon."""

    characters: int = MAX_EXPANDED
    commands: int = 20_000

    def take(self, characters: int, line: int) -> None:
        """Count text that an expansion came to.

        Raises:
            ShellError: it is too much.
        """
        self.characters -= characters
        if self.characters < 0:
            raise ShellError(f"it expands to more than {MAX_EXPANDED} characters", line)

    def step(self, line: int) -> None:
        """Count a command.

        Raises:
            ShellError: there are too many.
        """
        self.commands -= 1
        if self.commands < 0:
            raise ShellError("too many commands, or a loop without an end", line)
