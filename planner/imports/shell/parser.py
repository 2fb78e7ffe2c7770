"""Tokens of a shell script to commands."""

from collections.abc import Callable

from automap.planner.imports.shell.scanner import Scanner, Token, expression_of
from automap.planner.imports.shell.syntax import (
    AndOr,
    Assignment,
    Case,
    Command,
    Function,
    Group,
    If,
    Loop,
    Script,
    ShellError,
    Simple,
    Test,
    Text,
    Word,
)

MAX_SCRIPT_BYTES = 2**20
MAX_NESTING = 50
"""Commands inside commands."""
MAX_JOINED = 200
"""Commands joined by && and ||."""
_SEPARATORS = (";", "\n", "&")


def parse(text: str, *, first_line: int = 1, is_file: bool = False) -> Script:
    """The commands of a script; those of a file know where they stand.

    Raises:
        ShellError: it is larger than a script is, is binary, or is no shell script.
    """
    if len(text) > MAX_SCRIPT_BYTES:
        raise ShellError(f"larger than a script may be ({MAX_SCRIPT_BYTES} characters)", 1)
    if "\0" in text:
        raise ShellError("it is a binary file", text.count("\n", 0, text.index("\0")) + 1)
    text = text.replace("\r\n", "\n")
    scanner = Scanner(text, first_line=first_line, is_file=is_file)
    parser = _Parser(text, scanner.tokens())
    commands = parser.commands(until=())
    parser.expect_end()
    return Script(commands, scanner.unread)


class _Parser:
    """Recursive descent over the tokens; words are keywords where a command begins."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._compound: dict[str, Callable[[Token], Command]] = {
            "if": self._if,
            "case": self._case,
            "for": self._for,
            "select": self._for,
            "while": self._while,
            "until": self._while,
            "function": self._function,
            "{": self._braces,
            "[[": self._test,
            "!": self._negated,
        }

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            raise ShellError(f"{self._shown(token)!r} where no command ends", token.line)

    def commands(self, *, until: tuple[str, ...]) -> tuple[Command, ...]:
        """Commands up to one of these keywords or operators, which is left."""
        found: list[Command] = []
        while True:
            while self._operator() in _SEPARATORS:
                self._at += 1
            if self._at >= len(self._tokens) or self._word() in until or self._operator() in until:
                break
            if self._operator() == ")":
                break
            made = self._and_or()
            aside = self._operator() == "&"
            found.append(Group((made,), made.line, subshell=True) if aside else made)
        return tuple(found)

    def _operator(self) -> str | None:
        if self._at >= len(self._tokens):
            return None
        value = self._tokens[self._at].value
        return value if isinstance(value, str) else None

    def _word(self) -> str | None:
        if self._at >= len(self._tokens):
            return None
        value = self._tokens[self._at].value
        return value.plain if isinstance(value, Word) else None

    def _shown(self, token: Token) -> str:
        return self._text[token.start : token.end][:20]

    def _next(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, *wanted: str, begun: Token) -> str:
        found = self._word() or self._operator()
        if found not in wanted:
            what = self._shown(begun)
            raise ShellError(f"{what!r} without {' or '.join(map(repr, wanted))}", begun.line)
        self._at += 1
        assert found is not None
        return found

    def _skip_lines(self) -> None:
        while self._operator() == "\n":
            self._at += 1

    def _and_or(self) -> Command:
        left, joined = self._pipeline(), 0
        while self._operator() in ("&&", "||"):
            token, joined = self._next(), joined + 1
            if joined > MAX_JOINED:
                raise ShellError(f"more than {MAX_JOINED} commands joined", token.line)
            self._skip_lines()
            left = AndOr(left, str(token.value), self._pipeline(), token.line)
        return left

    def _pipeline(self) -> Command:
        first = self._command()
        found = [first]
        while self._operator() == "|":
            token = self._next()
            self._skip_lines()
            found.append(self._command())
        if len(found) == 1:
            return first
        return Group(tuple(Group((each,), each.line, subshell=True) for each in found), token.line)

    def _command(self) -> Command:
        if self._at >= len(self._tokens):
            raise ShellError("a command is missing at the end", self._tokens[-1].line)
        token = self._tokens[self._at]
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ShellError(f"more than {MAX_NESTING} commands inside one another", token.line)
        made = self._command_at(token)
        self._depth -= 1
        return made

    def _command_at(self, token: Token) -> Command:
        if self._operator() == "(":
            self._at += 1
            if self._adjacent_parenthesis(token):
                return self._arithmetic(token)
            body = self.commands(until=())
            self._expect(")", begun=token)
            self._redirections()
            return Group(body, token.line, subshell=True)
        keyword = self._word()
        if keyword in self._compound:
            self._at += 1
            made = self._compound[keyword](token)
            self._redirections()
            return made
        return self._simple(token)

    def _adjacent_parenthesis(self, token: Token) -> bool:
        if self._at >= len(self._tokens):
            return False
        after = self._tokens[self._at]
        return after.value == "(" and after.start == token.end

    def _arithmetic(self, token: Token) -> Command:
        depth, start = 1, self._tokens[self._at].end
        while self._at < len(self._tokens):
            found = self._next()
            value = found.value
            depth += {"(": 1, ")": -1}.get(value, 0) if isinstance(value, str) else 0
            if depth == 0:
                end = found.end - 2
                expression = expression_of(self._text[start:end], token.line)
                return Test((expression,), token.line, arithmetic=True)
        raise ShellError("parentheses that never end", token.line)

    def _negated(self, token: Token) -> Command:
        return Group((self._command(),), token.line, negated=True)

    def _braces(self, token: Token) -> Command:
        body = self.commands(until=("}",))
        self._expect("}", begun=token)
        return Group(body, token.line)

    def _if(self, token: Token) -> Command:
        branches = []
        condition = self.commands(until=("then",))
        while True:
            self._expect("then", begun=token)
            body = self.commands(until=("elif", "else", "fi"))
            branches.append((condition, body))
            ended = self._expect("elif", "else", "fi", begun=token)
            if ended == "elif":
                condition = self.commands(until=("then",))
                continue
            if ended == "else":
                branches.append(((), self.commands(until=("fi",))))
                self._expect("fi", begun=token)
            return If(tuple(branches), token.line)

    def _while(self, token: Token) -> Command:
        condition = self.commands(until=("do",))
        self._expect("do", begun=token)
        body = self.commands(until=("done",))
        self._expect("done", begun=token)
        until = isinstance(token.value, Word) and token.value.plain == "until"
        return Loop(None, None, body, token.line, condition, until)

    def _for(self, token: Token) -> Command:
        name, words, counting = self._word(), None, tuple[Command, ...]()
        if name is None:  # for ((…))
            counting = (self._until_do(token),)
        else:
            self._at += 1
            self._skip_lines()
            if self._word() == "in":
                self._at += 1
                words = self._list()
            while self._operator() in _SEPARATORS:
                self._at += 1
            self._expect("do", begun=token)
        body = self.commands(until=("done",))
        self._expect("done", begun=token)
        return Loop(name, words, body, token.line, counting, counts=bool(counting))

    def _until_do(self, token: Token) -> Command:
        """What `for ((…))` counts, as one text."""
        while self._at < len(self._tokens):
            found = self._next()
            if isinstance(found.value, Word) and found.value.plain == "do":
                counted = self._text[token.end : found.start]
                return Test((_written(counted, token.line),), token.line, arithmetic=True)
        raise ShellError("'for' without 'do'", token.line)

    def _list(self) -> tuple[Word, ...]:
        found = []
        while self._at < len(self._tokens):
            value = _as_word(self._tokens[self._at].value)
            if value is None:
                break
            found.append(value)
            self._at += 1
        return tuple(found)

    def _case(self, token: Token) -> Command:
        subject = _as_word(self._next().value) if self._at < len(self._tokens) else None
        if subject is None:
            raise ShellError("'case' without a word", token.line)
        self._skip_lines()
        self._expect("in", begun=token)
        branches: list[tuple[tuple[Word, ...], tuple[Command, ...], str]] = []
        while True:
            self._skip_lines()
            if self._word() == "esac":
                self._at += 1
                return Case(subject, tuple(branches), token.line)
            if self._at >= len(self._tokens):
                raise ShellError("'case' without 'esac'", token.line)
            if self._operator() == "(":
                self._at += 1
            patterns = list(self._list())
            while self._operator() == "|":
                self._at += 1
                patterns += self._list()
            self._expect(")", begun=token)
            body = self.commands(until=(";;", ";&", ";;&", "esac"))
            ended = ";;"
            if self._word() != "esac":
                ended = self._expect(";;", ";&", ";;&", begun=token)
            branches.append((tuple(patterns), body, ended))

    def _function(self, token: Token) -> Command:
        name = self._word()
        if name is None:
            raise ShellError("'function' without a name", token.line)
        self._at += 1
        if self._operator() == "(":
            self._at += 1
            self._expect(")", begun=token)
        return self._body_of(name, token)

    def _body_of(self, name: str, token: Token) -> Command:
        self._skip_lines()
        if self._at >= len(self._tokens):
            raise ShellError(f"the function {name[:40]} has no body", token.line)
        body = self._command()
        text = self._text[token.start : self._tokens[self._at - 1].end]
        whole = isinstance(body, Group) and not body.subshell and not body.negated
        commands = body.body if isinstance(body, Group) and whole else (body,)
        return Function(name, commands, token.line, text)

    def _test(self, token: Token) -> Command:
        words: list[Word] = []
        while self._at < len(self._tokens):
            found = self._next()
            value = found.value
            if isinstance(value, Word):
                if value.plain == "]]":
                    return Test(tuple(words), token.line)
                words.append(value)
            else:
                words.append(_written(self._text[found.start : found.end], found.line))
        raise ShellError("'[[' without ']]'", token.line)

    def _simple(self, token: Token) -> Command:
        begun = self._at
        assignments: list[Assignment] = []
        words: list[Word | Assignment] = []
        while self._at < len(self._tokens):
            value = self._tokens[self._at].value
            if isinstance(value, str):
                if value == "(" and len(words) == 1 and not assignments:
                    return self._definition(token)
                if not self._redirection(value):
                    break
                continue
            self._at += 1
            if isinstance(value, Assignment) and not words:
                assignments.append(value)
            else:
                words.append(value)
        if self._at == begun:  # an operator that begins no command
            self.expect_end()
        return Simple(tuple(assignments), tuple(words), token.line)

    def _definition(self, token: Token) -> Command:
        name = token.value.plain if isinstance(token.value, Word) else None
        self._at += 1
        if name is None or self._operator() != ")":
            raise ShellError(f"'(' after {self._shown(token)!r}", token.line)
        self._at += 1
        return self._body_of(name, token)

    def _redirection(self, operator: str) -> bool:
        """Go past a redirection and what it is from or to; False: the operator is none."""
        if not any(each in operator for each in "<>"):
            return False
        self._at += 1
        if operator.startswith("<<") and operator != "<<<":
            return True
        if self._at < len(self._tokens) and not isinstance(self._tokens[self._at].value, str):
            self._at += 1
        return True

    def _redirections(self) -> None:
        while (operator := self._operator()) is not None and self._redirection(operator):
            pass


def _as_word(value: Word | Assignment | str) -> Word | None:
    """A word, also where it looks like an assignment; None: it is an operator or an array."""
    if isinstance(value, Assignment) and isinstance(value.value, Word):
        index = "" if value.index is None else f"[{value.index}]"
        name = Text(f"{value.name}{index}{'+' if value.append else ''}=", quoted=False)
        return Word((name, *value.value.parts), value.line)
    return value if isinstance(value, Word) else None


def _written(text: str, line: int) -> Word:
    """An operator or an assignment of a test, which has a meaning of its own there."""
    return Word((Text(text, quoted=False),), line)
