"""Words to what they come to, with the variables as they are at that place."""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from automap.planner.imports.shell import arithmetic
from automap.planner.imports.shell.arithmetic import ExpressionError
from automap.planner.imports.shell.patterns import glob
from automap.planner.imports.shell.syntax import (
    Arithmetic,
    Parameter,
    Part,
    ShellError,
    Substitution,
    Text,
    Word,
)
from automap.planner.imports.shell.values import Budget, Field, Unknown, Value, field_of, split

Piece = tuple[str | Unknown, bool]
"""A part of a word, and whether blanks in it separate words."""
MAX_TRIMMED = 2048
"""Characters of a value whose beginning or end is cut off."""
MAX_LOOKUPS = 8
"""Variables whose value is the name of another, in arithmetic."""
ARGUMENTS = "@"
"""Where the arguments of a function stand among the variables."""
_NAMES = re.compile(r"[A-Za-z_]\w*")
_ON_TEXT = ("%", "%%", "#", "##", "/", "//", ",,", "^^", "indirect", ":")
"""Operators that change a text, which are not followed on each element of an array."""


@dataclass(slots=True)
class Expander:
    """Expands words of one file; unknown text stays unknown."""

    variables: dict[str, Value]
    given: Mapping[str, str]
    """Values that the user gave: they win over what the script sets."""
    source: str
    budget: Budget
    substitutions: Callable[[Substitution, "Expander"], str | None]
    """What a command substitution would print; None: that is not known."""
    unset: dict[str, int] = field(default_factory=dict)
    """Variables that were read and that nothing sets → the first line that reads them."""
    passed_on: list[int] = field(default_factory=list)
    """Lines at which the script's own arguments are passed on."""

    @property
    def positional(self) -> tuple[Field, ...] | None:
        """Arguments; None: those of the script itself, which are not known."""
        found = self.variables.get(ARGUMENTS)
        return (found,) if isinstance(found, Field) else found

    def forget(self, name: str, why: str, line: int) -> None:
        """Take the value of a variable as unknown from here on."""
        if name not in self.given:
            self.variables[name] = Field(
                (Unknown(name, why, line, self.source),), line, self.source
            )

    def forget_counted(self, text: str, line: int) -> None:
        """Variables that an expression sets, or may set."""
        if arithmetic.changes(text):
            for name in _NAMES.findall(text):
                self.forget(name, f"counted in line {line}", line)

    def pattern(self, word: Word) -> str | None:
        """A pattern as fnmatch takes it; None: it is not known, or not read.

        What is quoted stands for itself; a variable that nothing sets is empty.
        """
        pieces: list[tuple[str, bool]] = []
        for part in word.parts:
            if isinstance(part, Text):
                pieces.append((part.text, part.quoted))
                continue
            for piece, loose in self._pieces(part):
                if isinstance(piece, str):
                    pieces.append((piece, not loose))
                elif not piece.unset:
                    return None
        return glob(pieces)

    def fields(self, word: Word) -> list[Field]:
        """The words that a word becomes where a command takes it."""
        if _has_braces(word):
            return [self._one(Unknown("", "braces that make several words", word.line), word.line)]
        single = _single(word)
        if single is not None and single.name in "@*" and self.positional is None:
            self.passed_on.append(single.line)
            return []
        if single is not None and single.index == "@" and not single.operator:
            return self._elements(single)
        if single is not None and single.index == "@" and single.operator.endswith("+"):
            assert single.operand is not None
            return self.fields(single.operand) if self._array(single) else []
        if single is not None and single.index == "@" and single.operator == ":":
            return self._slice(single)
        if any(self._several(part) for part in word.parts):
            return [self._one(Unknown("", "elements beside other text", word.line), word.line)]
        pieces = [piece for part in word.parts for piece in self._pieces(part)]
        if self.value("IFS") is not None and any(each and loose for each, loose in pieces):
            return [self._one(Unknown("", "words split by IFS", word.line), word.line)]
        found = split(pieces, word.line, self.source)
        if len(found) == 1:
            found = [replace(found[0], place=word.place)]
        quoted = any(part.quoted for part in word.parts)
        return found or ([Field((), word.line, self.source)] if quoted else [])

    def one(self, word: Word) -> Field:
        """The text of a word where it is not split: in assignments, tests and inside quotes."""
        pieces = [part for each in word.parts for part, _ in self._pieces(each)]
        return field_of(pieces, word.line, self.source)

    def value(self, name: str) -> Value | None:
        """The value of a variable; None: nothing sets it."""
        if name in self.given:
            return Field((self.given[name],) if self.given[name] else (), 0, "--set")
        return self.variables.get(name)

    def number(self, text: str, depth: int = 0) -> int:
        """The value of an expression.

        Raises:
            ExpressionError: it is not read, or rests on what is unknown.
        """
        if depth > MAX_LOOKUPS:
            raise ExpressionError("variables that name one another")

        def variable(name: str) -> int:
            found = self.value(name)
            if found is None:
                self.unset.setdefault(name, 0)
                raise _RestsOnError(Unknown(name, "nothing sets it", 0, self.source, unset=True))
            found = found[0] if isinstance(found, tuple) and found else found
            if isinstance(found, tuple):
                return 0
            if found.text is None:
                assert found.unknown is not None
                raise _RestsOnError(found.unknown)
            return self.number(found.text, depth + 1)

        return arithmetic.evaluate(text, variable) if text.strip() else 0

    def _one(self, part: str | Unknown, line: int) -> Field:
        return field_of([part], line, self.source)

    def _elements(self, part: Parameter) -> list[Field]:
        """What `"${A[@]}"` becomes: its elements, each as it is."""
        found = self._array(part)
        if found is None:
            return [self._one(self._unset(part), part.line)]
        self.budget.take(sum(len(each.text or "") + 1 for each in found), part.line)
        return self._split_elements(found, quoted=part.quoted)

    def _several(self, part: Part) -> bool:
        """Whether a part of a word makes several words of it, as `"a${A[@]}"` does."""
        if not isinstance(part, Parameter) or part.index != "@" or part.operator == "length":
            return False
        found = self._array(part)
        return found is not None and (len(found) != 1 or found[0].unknown is not None)

    def _slice(self, part: Parameter) -> list[Field]:
        """`"${A[@]:1:2}"` and `"${@:2}"`: some of the elements."""
        found = self._array(part)
        if found is None:
            return [self._one(self._unset(part), part.line)]
        operand = self.one(part.operand).text if part.operand is not None else None
        piece = re.fullmatch(r" ?(\d{1,6})(?::(\d{1,6}))?", operand or "")
        first = int(piece[1]) - (part.name == "@") if piece is not None else -1
        if piece is None or first < 0 or any(each.unknown for each in found):
            why = f"${{{part.name}:{(operand or '…')[:20]}}}"
            return [self._one(Unknown("", why, part.line, self.source), part.line)]
        last = len(found) if piece[2] is None else first + int(piece[2])
        return self._split_elements(found[first:last], quoted=part.quoted)

    def _split_elements(self, found: Sequence[Field], *, quoted: bool) -> list[Field]:
        if quoted:
            return list(found)
        if found and self.value("IFS") is not None:
            line = found[0].line
            return [self._one(Unknown("", "words split by IFS", line), line)]
        pieces: list[Field] = []
        for each in found:
            words = split([(piece, True) for piece in each.parts], each.line, each.source)
            pieces += [replace(words[0], place=each.place)] if len(words) == 1 else words
        return pieces

    def _array(self, part: Parameter) -> tuple[Field, ...] | None:
        if part.name in "@*":
            return self.positional
        found = self.value(part.name)
        if found is None:
            self.unset.setdefault(part.name, part.line)
            return None
        return (found,) if isinstance(found, Field) else found

    def _unset(self, part: Parameter) -> Unknown:
        self.unset.setdefault(part.name, part.line)
        return Unknown(part.name, "nothing sets it", part.line, self.source, unset=True)

    def _pieces(self, part: Part) -> list[Piece]:
        """What a part comes to."""
        if isinstance(part, Text):
            return [(part.text, False)]
        if isinstance(part, Substitution):
            printed = self.substitutions(part, self)
            if printed is not None:
                self.budget.take(len(printed), part.line)
                return [(printed, not part.quoted)]
            why = f"$({part.text.strip()[:40]})"
            return [(Unknown("", why, part.line, self.source), False)]
        if isinstance(part, Arithmetic):
            return [(self._arithmetic(part), not part.quoted)]
        found = self._parameter(part)
        if isinstance(found, Word):
            return [piece for each in found.parts for piece in self._operand_pieces(each, part)]
        self.budget.take(sum(len(each) for each in found if isinstance(each, str)), part.line)
        return [(each, not part.quoted) for each in found]

    def _operand_pieces(self, part: Part, of: Parameter) -> list[Piece]:
        """What stands in an expansion: its text is split as the expansion itself is."""
        if isinstance(part, Text):
            return [(part.text, not of.quoted and not part.quoted)]
        return [(piece, splits and not of.quoted) for piece, splits in self._pieces(part)]

    def _arithmetic(self, part: Arithmetic) -> str | Unknown:
        expression = self.one(part.expression)
        self.forget_counted(expression.shown, part.line)
        if expression.unknown is not None:
            return expression.unknown
        try:
            return str(self.number(expression.text or ""))
        except _RestsOnError as error:
            return error.unknown
        except ExpressionError as error:
            return Unknown("", f"$(({(expression.text or '')[:40]})): {error}", part.line)

    def _parameter(self, part: Parameter) -> tuple[str | Unknown, ...] | Word:
        """The value of a variable, or the word that stands for it."""
        if part.name in "@*" and self.positional is None:
            self.passed_on.append(part.line)
            return ()
        if (why := self._not_followed(part)) is not None:
            return (Unknown("", why, part.line, self.source),)
        if part.operator == "indirect":
            return self._indirect(part)
        if part.operator == "length":
            return (self._length(part),)
        found = self._plain(part)
        if part.operator.lstrip(":") in ("-", "=", "+", "?") and part.operand is not None:
            return self._chosen(part, part.operand, found)
        if found is None and self.value(part.name) is None and not part.name.isdigit():
            return (self._unset(part),)
        if found is None:
            return self._beyond(part)
        if not part.operator or part.operand is None:
            return found
        return (self._operated(part, part.operand, found),)

    def _not_followed(self, part: Parameter) -> str | None:
        """What of an array's elements is not followed; None: nothing."""
        if part.index in ("@", "*") and part.operator in _ON_TEXT:
            return f"${{{part.name}…{part.operator}}}"
        if part.index == "*" and self.value("IFS") is not None:
            return "words joined by IFS"
        return None

    def _indirect(self, part: Parameter) -> tuple[str | Unknown, ...] | Word:
        """`${!A}`: the variable that another one names."""
        named = self._plain(part)
        text = None if named is None else field_of(named, part.line, "").text
        if named is not None and (text is None or not _NAMES.fullmatch(text)):
            return (Unknown("", f"${{!{part.name}}}", part.line, self.source),)
        if text is None:
            return (self._unset(part),)
        return self._parameter(Parameter(text, part.quoted, part.line))

    def _operated(
        self, part: Parameter, operand: Word, found: tuple[str | Unknown, ...]
    ) -> str | Unknown:
        """A value that is cut, or in which something is replaced."""
        whole = field_of(found, part.line, self.source)
        if whole.text is None:
            # What it would come to is unknown, by the name of what is.
            assert whole.unknown is not None
            return whole.unknown
        trims = part.operator in ("%", "%%", "#", "##")
        text = self.pattern(operand) if trims else self.one(operand).text
        if text is None:
            why = f"${{{part.name}{part.operator}…}}"
            return Unknown("", why, part.line, self.source)
        return _changed(part, whole.text, text)

    def _beyond(self, part: Parameter) -> tuple[str | Unknown, ...]:
        """An element or an argument that is not there: nothing, unless it is the script's own."""
        return (self._unset(part),) if part.name.isdigit() and self.positional is None else ()

    def _plain(self, part: Parameter) -> tuple[str | Unknown, ...] | None:
        """The value as it is; None: there is none."""
        if part.name in "@*" or part.name.isdigit():
            return self._argument(part)
        known = self.positional is not None and not any(each.unknown for each in self.positional)
        if part.name == "#" and known and self.positional is not None:
            return (str(len(self.positional)),)
        if part.name in "#?$!-":
            return (Unknown("", f"${part.name}", part.line, self.source),)
        found = self.value(part.name)
        if found is None or isinstance(found, Field):
            if (
                found is not None
                and found.unknown is None
                and part.index not in (None, "0", "@", "*")
            ):
                return None
            return None if found is None else found.parts
        if part.index in ("@", "*"):
            return _joined(found)
        try:
            index = self.number(part.index or "0")
        except ExpressionError:
            return (Unknown("", f"{part.name}[{part.index}]", part.line, self.source),)
        if any(each.unknown for each in (found if index < 0 else found[: index + 1])):
            return (Unknown("", f"{part.name}[{part.index}]", part.line, self.source),)
        return found[index].parts if -len(found) <= index < len(found) else None

    def _argument(self, part: Parameter) -> tuple[str | Unknown, ...] | None:
        if self.positional is None:
            if part.name in "@*":
                self.passed_on.append(part.line)
                return ()
            if part.name == "0":
                return (Unknown("", "$0", part.line, self.source),)
            given = self.given.get(part.name)
            return None if given is None else (given,)
        if part.name in "@*":
            return _joined(self.positional)
        index = int(part.name[:4]) - 1
        if any(each.unknown for each in self.positional[:index]):
            return (Unknown("", f"${part.name}", part.line, self.source),)
        return self.positional[index].parts if 0 <= index < len(self.positional) else None

    def _length(self, part: Parameter) -> str | Unknown:
        if part.index in ("@", "*"):
            found = self._array(part)
            if found is not None and any(each.unknown for each in found):
                return Unknown("", f"${{#{part.name}[@]}}", part.line, self.source)
            return self._unset(part) if found is None else str(len(found))
        plain = self._plain(part)
        whole = None if plain is None else field_of(plain, part.line, self.source)
        if whole is not None and whole.unknown is not None:
            return Unknown("", f"${{#{part.name}}}", part.line, self.source)
        return self._unset(part) if whole is None else str(len(whole.text or ""))

    def _chosen(
        self, part: Parameter, operand: Word, found: tuple[str | Unknown, ...] | None
    ) -> tuple[str | Unknown, ...] | Word:
        """`${A:-b}` and its like: the value or the other, by whether there is one."""
        kind, also_empty = part.operator[-1], part.operator[0] == ":"
        absent = found is None or (also_empty and not found)
        if kind == "+":
            return () if absent else operand
        if found is not None and not absent:
            return found
        if kind == "?":
            return (self._unset(part),)
        if found is None and part.name not in self.variables:
            self.unset.setdefault(part.name, part.line)
        if kind == "=":
            self.variables[part.name] = value = self.one(operand)
            return value.parts
        return operand


class _RestsOnError(ExpressionError):
    """An expression that rests on what is unknown."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(f"{unknown.name or unknown.why} is not known")
        self.unknown = unknown


def _single(word: Word) -> Parameter | None:
    """The expansion that a word is, by itself or alone in quotes; None: it is something else."""
    parts = [part for part in word.parts if not (isinstance(part, Text) and not part.text)]
    if len(parts) != 1 or not isinstance(parts[0], Parameter):
        return None
    return parts[0] if parts[0].quoted or len(word.parts) == 1 else None


def _joined(found: tuple[Field, ...]) -> tuple[str | Unknown, ...]:
    parts: list[str | Unknown] = []
    for each in found:
        parts += [" ", *each.parts] if parts else each.parts
    return tuple(parts)


def _has_braces(word: Word) -> bool:
    """Whether the shell would make several words of it: {a,b} or {1..4} outside quotes."""
    text = "".join(
        part.text if isinstance(part, Text) and not part.quoted else "\0" for part in word.parts
    )
    return bool(re.search(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", text))


def _changed(part: Parameter, text: str, operand: str) -> str | Unknown:
    """A value without its beginning or end, or with a piece replaced."""
    operator = part.operator
    if operator in ("%", "%%", "#", "##"):
        return _trimmed(text, operand, operator)
    if operator == ":" and (piece := re.fullmatch(r" ?(\d+)(?::(\d+))?", operand)):
        start = int(piece[1])
        return text[start:] if piece[2] is None else text[start : start + int(piece[2])]
    if operator in (",,", "^^") and not operand:
        return text.lower() if operator == ",," else text.upper()
    if operator in ("/", "//") and not re.search(r"[*?\[\\]", operand):
        old, _, new = operand.partition("/")
        if old and old[0] not in "#%":
            return text.replace(old, new, -1 if operator == "//" else 1)
    return Unknown("", f"${{{part.name}{operator}…}}", part.line)


def _trimmed(text: str, pattern: str, operator: str) -> str | Unknown:
    """Without the shortest or longest beginning or end that the pattern matches."""
    if len(text) > MAX_TRIMMED:
        raise ShellError("a value too long to cut", 0)
    places = range(len(text) + 1)
    if operator.startswith("#"):
        for end in places if operator == "#" else reversed(places):
            if fnmatch.fnmatchcase(text[:end], pattern):
                return text[end:]
        return text
    for start in reversed(places) if operator == "%" else places:
        if fnmatch.fnmatchcase(text[start:], pattern):
            return text[:start]
    return text
