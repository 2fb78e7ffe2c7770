"""Characters of a shell script to tokens: words with their parts, operators and line ends."""

import re
from bisect import bisect_right
from dataclasses import dataclass

from automap.planner.imports.shell.syntax import (
    Arithmetic,
    Assignment,
    Parameter,
    Part,
    Place,
    ShellError,
    Substitution,
    Text,
    Word,
)

MAX_DEPTH = 40
"""Expansions inside expansions."""
_OPERATORS = re.compile(r"&&|\|\||;;&|;;|;&|&>>?|<<<|<<-?|[0-9]*(?:>>|>&|<&|>\||<>|[<>])|[;&|()\n]")
_BLANK = " \t"
_ENDS = frozenset(" \t\n;&|()<>")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]{0,200})\])?(\+?)=")
_SPECIAL = re.compile(r"[0-9@*#?$!-]")
_NUMBERED = re.compile(r"[0-9]+|[@*#?$!-]")
_EXPANSIONS = re.compile(r":[-=+?]|[-=+?]|%%|##|[%#]|//|/|,,|\^\^|:")


@dataclass(frozen=True, slots=True)
class Token:
    """A word, an assignment, or an operator as its text."""

    value: Word | Assignment | str
    line: int
    start: int
    end: int


class Scanner:
    """Reads one script from its start to its end, each character once."""

    def __init__(self, text: str, *, first_line: int = 1, is_file: bool = False) -> None:
        self._text = text
        self._is_file = is_file
        self._at = 0
        self._depth = 0
        self._first_line = first_line
        self._breaks = [each.start() for each in re.finditer("\n", text)]
        self._heredocs: list[tuple[str, bool]] = []
        self.unread: list[tuple[int, str]] = []

    def tokens(self) -> list[Token]:
        """All tokens.

        Raises:
            ShellError: a quote or an expansion that never ends, or too many inside one another.
        """
        found: list[Token] = []
        while self._skip_blanks():
            start, line = self._at, self._line()
            operator = _OPERATORS.match(self._text, self._at)
            process = operator and operator[0] in ("<", ">") and self._peek(1) == "("
            if operator and not process:
                self._at = operator.end()
                found.append(Token(operator[0], line, start, self._at))
                self._after_operator(operator[0], line)
            else:
                value = self._assignment() or self._word(_ENDS)
                found.append(Token(value, line, start, self._at))
        return found

    def _place(self, start: int) -> Place | None:
        """From there to here, in a file."""
        return (start, self._at) if self._is_file else None

    def _line(self) -> int:
        return self._first_line + bisect_right(self._breaks, self._at - 1)

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._text[place] if place < len(self._text) else ""

    def _skip_blanks(self) -> bool:
        """Go to the next token, past comments and joined lines; False: there is none."""
        while self._at < len(self._text):
            if self._peek() in _BLANK:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._peek() == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return True
        return False

    def _after_operator(self, operator: str, line: int) -> None:
        if operator in ("<<", "<<-"):
            self._skip_blanks()
            end = self._word(_ENDS)
            ending = "".join(part.text for part in end.parts if isinstance(part, Text))
            self._heredocs.append((ending, operator == "<<-"))
            self.unread.append((line, f"a here-document up to {ending[:40]}"))
        elif operator == "\n":
            for ending, indented in self._heredocs:
                self._skip_heredoc(ending, indented=indented)
            self._heredocs.clear()

    def _skip_heredoc(self, ending: str, *, indented: bool) -> None:
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            end = len(self._text) if end < 0 else end
            line = self._text[self._at : end]
            self._at = end + 1
            if (line.lstrip("\t") if indented else line) == ending:
                return

    def _assignment(self) -> Assignment | None:
        """An assignment, where the next word is one."""
        found = _ASSIGNS.match(self._text, self._at)
        if found is None:
            return None
        line, start = self._line(), self._at
        self._at = found.end()
        name, index, plus = found[1], found[2], found[3]
        if self._peek() == "(" and index is None:
            self._at += 1
            return Assignment(name, self._elements(line), line, append=bool(plus))
        value = self._word(_ENDS)
        place = self._place(start)
        return Assignment(name, value, line, append=bool(plus), index=index, place=place)

    def _elements(self, line: int) -> tuple[Word, ...]:
        """The words of an array, up to its closing parenthesis."""
        found: list[Word] = []
        while self._skip_blanks():
            if self._peek() == "\n":
                self._at += 1
            elif self._peek() == ")":
                self._at += 1
                return tuple(found)
            elif self._peek() in _ENDS and not self._text.startswith(("<(", ">("), self._at):
                raise ShellError(f"{self._peek()!r} inside an array", self._line())
            else:
                found.append(self._word(_ENDS))
        raise ShellError("an array that never ends", line)

    def _word(self, ends: frozenset[str]) -> Word:
        """Parts up to one of the ends, which is left."""
        line, parts, plain = self._line(), list[Part](), list[str]()
        start = self._at

        def keep() -> None:
            if plain:
                parts.append(Text("".join(plain), quoted=False))
                plain.clear()

        while self._at < len(self._text):
            char = self._peek()
            if self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "\\":
                keep()
                parts.append(Text(self._peek(1), quoted=True))
                self._at += 2
            elif char in "'\"" or self._text.startswith(("$'", '$"'), self._at):
                keep()
                parts.extend(self._quotation())
            elif char in "$`" or (char in "<>" and self._peek(1) == "("):
                keep()
                parts.append(self._expansion(quoted=False))
            elif char in ends:
                break
            else:
                plain.append(char)
                self._at += 1
        keep()
        return Word(tuple(parts), line, self._place(start))

    def _quotation(self) -> list[Part]:
        """A quoted stretch, with its quotes; an empty one is a part of no characters."""
        line = self._line()
        if self._peek() == "$":
            self._at += 1
            if self._peek() == "'":
                return [self._escaped_quotation(line)]
        if self._peek() == "'":
            end = self._text.find("'", self._at + 1)
            if end < 0:
                raise ShellError("a quote that never ends", line)
            text = self._text[self._at + 1 : end]
            self._at = end + 1
            return [Text(text, quoted=True)]
        self._at += 1
        parts = self._double_quoted('"', line)
        self._at += 1
        return parts

    def _escaped_quotation(self, line: int) -> Part:
        """`$'…'`, whose escapes are not read: it is a command's business what they are."""
        start = self._at
        self._at += 1
        while self._at < len(self._text) and self._peek() != "'":
            self._at += 2 if self._peek() == "\\" else 1
        if self._at >= len(self._text):
            raise ShellError("a quote that never ends", line)
        self._at += 1
        text = self._text[start + 1 : self._at - 1]
        if "\\" in text:
            return Substitution("$" + self._text[start : self._at], True, line)
        return Text(text, quoted=True)

    def _double_quoted(self, end: str, line: int) -> list[Part]:
        """Parts up to the character that ends them, which is left; blanks are part of them.

        The end is a quote, or the brace of an expansion inside quotes, in which further quotes may
        stand.
        """
        parts, plain = list[Part](), list[str]()
        while self._peek() != end:
            if self._at >= len(self._text):
                what = "a quote that never ends" if end == '"' else "braces that never end"
                raise ShellError(what, line)
            char = self._peek()
            if char == "\\" and self._peek(1) in f'$`"\\\n{end}':
                plain.append("" if self._peek(1) == "\n" else self._peek(1))
                self._at += 2
            elif char in '"$`':
                parts.append(Text("".join(plain), quoted=True))
                plain.clear()
                parts += self._quotation() if char == '"' else [self._expansion(quoted=True)]
            else:
                plain.append(char)
                self._at += 1
        parts.append(Text("".join(plain), quoted=True))
        return parts

    def _expansion(self, *, quoted: bool) -> Part:
        """What a dollar sign, a backtick or a process substitution begins."""
        line = self._line()
        if self._peek() == "`":
            return self._backticks(quoted=quoted, line=line)
        if self._text.startswith("$((", self._at):
            found = self._arithmetic(quoted=quoted, line=line)
            if found is not None:
                return found
        if self._peek(1) == "(":
            return self._substitution(quoted=quoted, line=line)
        if self._peek(1) == "{":
            return self._braced(quoted=quoted, line=line)
        if self._peek(1) == "[" and (end := self._text.find("]", self._at)) > 0:
            # The old form of arithmetic.
            start, self._at = self._at, end + 1
            return Substitution(self._text[start : end + 1], quoted, line)
        self._at += 1
        found_name = _NAME.match(self._text, self._at) or _SPECIAL.match(self._text, self._at)
        if found_name is None:
            return Text("$", quoted=quoted)
        self._at = found_name.end()
        index = found_name[0] if found_name[0] in "@*" else None
        return Parameter(found_name[0], quoted, line, index=index)

    def _backticks(self, *, quoted: bool, line: int) -> Part:
        end = self._at + 1
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        if end >= len(self._text):
            raise ShellError("a command between backticks that never ends", line)
        text = self._text[self._at + 1 : end]
        self._at = end + 1
        return Substitution(text, quoted, line)

    def _arithmetic(self, *, quoted: bool, line: int) -> Arithmetic | None:
        """`$((…))`; None: it is a command that begins with a parenthesis."""
        start, self._at = self._at, self._at + 1
        end = self._closing(line)
        if self._text[end - 2 : end] != "))":
            self._at = start
            return None
        self._deeper(line)
        word = expression_of(self._text[start + 3 : end - 2], line, depth=self._depth + 1)
        self._at = end
        return Arithmetic(word, quoted, line)

    def _substitution(self, *, quoted: bool, line: int) -> Part:
        start = self._at
        self._at += 1
        end = self._closing(line)
        text = self._text[start + 2 : end - 1]
        self._at = end
        return Substitution(text, quoted, line)

    def _closing(self, line: int) -> int:
        """Just after the parenthesis that closes the one here; quotes may hold others."""
        inside: list[str] = []
        place = self._at
        while place < len(self._text):
            char = self._text[place]
            quoted = bool(inside) and inside[-1] == '"'
            if char == "\\":
                place += 1
            elif char == '"':
                inside.pop() if quoted else inside.append(char)
            elif char == "'" and not quoted:
                place = self._text.find("'", place + 1)
                if place < 0:
                    break
            elif char == "(" and (not quoted or self._text[place - 1] == "$"):
                inside.append(char)
            elif char == ")" and not quoted:
                inside.pop()
                if not inside:
                    return place + 1
            place += 1
        raise ShellError("parentheses that never end", line)

    def _deeper(self, line: int) -> bool:
        if self._depth >= MAX_DEPTH:
            raise ShellError(f"more than {MAX_DEPTH} expansions inside one another", line)
        return True

    def _braced(self, *, quoted: bool, line: int) -> Part:
        """`${…}`."""
        start = self._at
        self._at += 2
        prefix = ""
        if self._peek() in "#!" and self._peek(1) not in ("}", ""):
            prefix = "length" if self._peek() == "#" else "indirect"
            self._at += 1
        name = _NAME.match(self._text, self._at) or _NUMBERED.match(self._text, self._at)
        if name is None:
            return self._unread_braces(start, quoted=quoted, line=line)
        self._at = name.end()
        index = name[0] if name[0] in "@*" else None
        if self._peek() == "[":
            end = self._text.find("]", self._at)
            if end < 0:
                raise ShellError("brackets that never end", line)
            index = self._text[self._at + 1 : end].strip("\"'")
            self._at = end + 1
        if self._peek() == "}":
            self._at += 1
            return Parameter(name[0], quoted, line, operator=prefix, index=index)
        operator = _EXPANSIONS.match(self._text, self._at)
        if operator is None or prefix:
            return self._unread_braces(start, quoted=quoted, line=line)
        self._at = operator.end()
        # Of a pattern, single quotes are quotes even inside double ones.
        chooses = operator[0].lstrip(":") in "-=+?" and operator[0] != ":"
        operand = self._operand(quoted=quoted and chooses, line=line)
        return Parameter(name[0], quoted, line, operator[0], operand, index)

    def _operand(self, *, quoted: bool, line: int) -> Word:
        """What follows an operator inside braces, with the closing one."""
        self._deeper(line)
        self._depth += 1
        if quoted:
            parts = self._double_quoted("}", line)
        else:
            word = self._word(frozenset("}"))
            parts = list(word.parts)
        self._depth -= 1
        if self._peek() != "}":
            raise ShellError("braces that never end", line)
        self._at += 1
        return Word(tuple(parts), line)

    def _unread_braces(self, start: int, *, quoted: bool, line: int) -> Part:
        """An expansion that is not read: its value is unknown."""
        end = self._text.find("}", start)
        if end < 0:
            raise ShellError("braces that never end", line)
        self._at = end + 1
        return Substitution(self._text[start : self._at], quoted, line)


def expression_of(text: str, line: int, *, depth: int = 0) -> Word:
    """An arithmetic expression, in which variables are expanded and quotes mean nothing."""
    scanner = Scanner(text.replace('"', "") + '"', first_line=line)
    scanner._depth = depth
    return Word(tuple(scanner._double_quoted('"', line)), line)
