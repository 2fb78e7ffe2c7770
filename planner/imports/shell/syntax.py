"""A shell script as data: words made of parts, and commands made of words."""

from collections.abc import Sequence
from dataclasses import dataclass, field


class ShellError(Exception):
    """A script that cannot be read; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


Place = tuple[int, int]
"""(first character, the one after the last), counted with line ends of one character."""


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that stand for themselves."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$NAME` or `${NAME…}`: a variable, and what is done with its value."""

    name: str
    quoted: bool
    line: int
    operator: str = ""
    """`:-`, `%` and the like; `#` before a name is `length`, `!` is `indirect`."""
    operand: "Word | None" = None
    index: str | None = None
    """`@`, `*` or a number between the brackets of an array's element."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(…)` or backticks: a command, which is never run."""

    text: str
    quoted: bool
    line: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`$((…))`: an expression over integers."""

    expression: "Word"
    quoted: bool
    line: int


Part = Text | Parameter | Substitution | Arithmetic


@dataclass(frozen=True, slots=True)
class Word:
    """Parts without blanks between them, and where they begin."""

    parts: tuple[Part, ...]
    line: int
    place: "Place | None" = None
    """Where it stands in its file; None: in a text that no file has as it is."""

    @property
    def plain(self) -> str | None:
        """The word where nothing in it is quoted or expanded; None: something is."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text) and not self.parts[0].quoted:
            return self.parts[0].text
        return None


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=word`, `NAME+=word`, `NAME=(words)` or `NAME[index]=word`."""

    name: str
    value: Word | tuple[Word, ...]
    line: int
    append: bool = False
    index: str | None = None
    place: Place | None = None
    """Where all of it stands, as of a word."""


@dataclass(frozen=True, slots=True)
class Simple:
    """A command: assignments before it, and its words; arguments may be assignments (export)."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word | Assignment, ...]
    line: int


@dataclass(frozen=True, slots=True)
class If:
    """Conditions with what each leads to; the last condition is empty where there is an else."""

    branches: tuple[tuple[tuple["Command", ...], tuple["Command", ...]], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """A word, and what each of its patterns leads to, with the operator that ends it."""

    subject: Word
    branches: tuple[tuple[tuple[Word, ...], tuple["Command", ...], str], ...]
    line: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`for`, `while`, `until`; words are None where it is not known what it goes over."""

    name: str | None
    words: tuple[Word, ...] | None
    body: tuple["Command", ...]
    line: int
    condition: tuple["Command", ...] = ()
    until: bool = False
    counts: bool = False
    """True: it is `for ((…))`, and the condition is what it counts."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function's definition."""

    name: str
    body: tuple["Command", ...]
    line: int
    text: str = ""
    """How it is written."""


@dataclass(frozen=True, slots=True)
class Group:
    """Commands between braces or parentheses, of a pipeline, or behind `!`."""

    body: tuple["Command", ...]
    line: int
    subshell: bool = False
    """True: what they set ends with them."""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AndOr:
    """Two commands joined by `&&` or `||`."""

    left: "Command"
    operator: str
    right: "Command"
    line: int


@dataclass(frozen=True, slots=True)
class Test:
    """`[[ … ]]` or `(( … ))`; the words are as they are written."""

    words: tuple[Word, ...]
    line: int
    arithmetic: bool = False


Command = Simple | If | Case | Loop | Function | Group | AndOr | Test


@dataclass(frozen=True, slots=True)
class Script:
    """What a file says, and where it says something that is not read."""

    commands: Sequence[Command]
    unread: list[tuple[int, str]] = field(default_factory=list)
    """(line, what is there) of here-documents."""
