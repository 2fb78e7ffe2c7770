"""Reads a script from top to bottom: which commands it would start, with which words.

Nothing is run and no file is opened. What the script sets, expands and decides by what it says
itself is followed; a command whose outcome only a machine knows leaves both ways open, and what
depends on it is unknown.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from automap.planner.imports.shell.conditions import holds, pattern, without_unset
from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.parser import parse
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
    Substitution,
    Test,
    Word,
)
from automap.planner.imports.shell.values import Budget, Field, Unknown, Value, field_of

MAX_CALLS = 12
"""Functions and read texts inside one another."""
MAX_DEPTH = 120
"""Commands inside one another, over all functions and texts."""
MAX_HEAD = 200
"""Lines in which a script asks its scheduler for nodes."""
_ASKED = re.compile(
    r"#SBATCH\s+(--nodes|-N|--gpus-per-node|--gres)[=\s]\s*(?:gpu:)?(?:\w+:)?(\d+)\b"
)
_SET_BY_NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_SET_BY_GPUS = ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_QUIET = frozenset({"set", "shopt", "cd", "echo", "printf", "mkdir", "exit", "return", "true", ":"})
"""Commands that set nothing that a launch reads."""
_LOOKS_LIKE_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w@/]*\.[\w.@/]+$")


@dataclass(frozen=True, slots=True)
class Started:
    """A command that a script starts."""

    words: tuple[Field, ...]
    line: int
    source: str
    open_lines: tuple[int, ...] = ()
    """Lines of the conditions of which it is not known whether they hold."""


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
    texts: dict[str, str] = field(default_factory=dict)
    """Functions by name → how they are written."""


class Interpreter:
    """Follows the scripts that the user named."""

    def __init__(
        self,
        scripts: Mapping[str, str],
        given: Mapping[str, str],
        substitutions: Callable[[str, "Interpreter", Expander], str | None],
    ) -> None:
        """What `substitutions` does not know of a command's output is unknown."""
        self.reading = Reading()
        self._scripts = scripts
        self._given = given
        self._substitutions = substitutions
        self._budget = Budget()
        self._functions: dict[str, tuple[Function, str]] = {}
        self._open: list[int] = []
        self._calls = 0
        self._depth = 0

    def read(self, source: str) -> Reading:
        """Read a script, and those that it reads itself and that are named.

        Raises:
            ShellError: it is no script, or has no end.
        """
        expander = self._expander(source)
        self._read(self._scripts[source], expander)
        self.reading.unset = dict(expander.unset)
        self.reading.passed_on = expander.passed_on
        return self.reading

    def _expander(self, source: str) -> Expander:
        environment: dict[str, Value] = {
            name: Field((value,), line, source)
            for name, (value, line) in _by_scheduler(self._scripts[source]).items()
        }

        def printed(part: Substitution, expander: Expander) -> str | None:
            return self._substitutions(part.text, self, expander)

        return Expander(environment, self._given, source, self._budget, printed)

    def _read(self, text: str, expander: Expander, *, first_line: int = 1) -> None:
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise ShellError("scripts that read one another without an end", first_line)
        script: Script = parse(text, first_line=first_line)
        for line, what in script.unread:
            self._remark(expander, line, f"{what} is not read")
        self._run(script.commands, expander)
        self._calls -= 1

    def _remark(self, expander: Expander, line: int, what: str) -> None:
        remark = (expander.source, line, what)
        if remark not in self.reading.remarks:
            self.reading.remarks.append(remark)

    def _run(self, commands: Sequence[Command], expander: Expander) -> None:
        self._depth += 1
        for command in commands:
            if self._depth > MAX_DEPTH:
                raise ShellError("commands too deep inside one another", command.line)
            self._budget.step(command.line)
            self._follow(command, expander)
        self._depth -= 1

    def _follow(self, command: Command, expander: Expander) -> None:
        match command:
            case Simple():
                self._simple(command, expander)
            case If():
                self._if(command, expander)
            case Case():
                self._case(command, expander)
            case Loop():
                self._loop(command, expander)
            case Function():
                self._functions[command.name] = (command, expander.source)
                self.reading.texts[command.name] = command.text
            case Group():
                self._run(command.body, expander)
            case AndOr():
                self._and_or(command, expander)
            case Test():
                self._forget_counted(command, expander)

    def _and_or(self, command: Command, expander: Expander) -> bool | None:
        """Follow commands joined by && and ||; whether the last one that runs succeeds."""
        if not isinstance(command, AndOr):
            self._follow(command, expander)
            held = holds(command, expander)
            # What is started is taken to succeed.
            return True if held is None and not _is_test(command) else held
        held = self._and_or(command.left, expander)
        if held is None:
            self._perhaps([(command.right,)], expander, command.line)
        elif held == (command.operator == "&&"):
            return self._and_or(command.right, expander)
        return held

    def _if(self, command: If, expander: Expander) -> None:
        for place, (condition, body) in enumerate(command.branches):
            if not condition:
                self._run(body, expander)
                return
            held = self._condition(condition, expander)
            if held:
                self._run(body, expander)
                return
            if held is None:
                rest = [each for _, each in command.branches[place:]]
                self._perhaps(rest, expander, command.line)
                return

    def _condition(self, commands: Sequence[Command], expander: Expander) -> bool | None:
        """Whether the last command succeeds; those of others are followed as well."""
        *before, last = commands
        self._run(before, expander)
        if isinstance(last, AndOr):
            left = self._condition([last.left], expander)
            right = self._condition([last.right], expander)
            decided = last.operator == "||"
            if decided in (left, right):
                return decided
            return None if None in (left, right) else not decided
        return holds(last, expander)

    def _perhaps(self, bodies: Sequence[Sequence[Command]], expander: Expander, line: int) -> None:
        """Follow every way from here; what they leave different is unknown afterwards."""
        before = dict(expander.variables)
        outcomes = [before]
        self._open.append(line)
        for body in bodies:
            expander.variables = dict(before)
            self._run(body, expander)
            outcomes.append(expander.variables)
        self._open.pop()
        names = dict.fromkeys(name for outcome in outcomes for name in outcome)
        expander.variables = {}
        for name in names:
            values = [outcome.get(name) for outcome in outcomes]
            kept = values[0]
            if any(_differ(value, kept) for value in values):
                why = f"set under a condition in line {line}"
                unknown = Unknown(name, why, line, expander.source)
                kept = Field((unknown,), line, expander.source)
            if kept is not None:
                expander.variables[name] = kept

    def _case(self, command: Case, expander: Expander) -> None:
        subject = without_unset(expander.one(command.subject)).text
        bodies = [body for _, body in command.branches]
        if subject is None:
            self._perhaps(bodies, expander, command.line)
            return
        for patterns, body in command.branches:
            for each in patterns:
                text = without_unset(expander.one(each)).text
                if text is None:
                    self._perhaps(bodies, expander, command.line)
                    return
                if fnmatch.fnmatchcase(subject, pattern(each, text)):
                    self._run(body, expander)
                    return

    def _loop(self, command: Loop, expander: Expander) -> None:
        if command.words is None or command.name is None:
            self._perhaps([command.body], expander, command.line)
            return
        for value in [each for word in command.words for each in expander.fields(word)]:
            self._budget.step(command.line)
            expander.variables[command.name] = value
            self._run(command.body, expander)

    def _forget_counted(self, command: Test, expander: Expander) -> None:
        """Variables that `((…))` may have changed."""
        if not command.arithmetic:
            return
        for word in command.words:
            for name in re.findall(r"[A-Za-z_]\w*", expander.one(word).shown):
                if name in expander.variables:
                    why = f"counted in line {command.line}"
                    unknown = Unknown(name, why, command.line, expander.source)
                    expander.variables[name] = Field((unknown,), command.line, expander.source)

    def _simple(self, command: Simple, expander: Expander) -> None:
        if not command.words:
            for each in command.assignments:
                self._assign(each, expander)
            return
        first = command.words[0]
        name = first.plain if isinstance(first, Word) else None
        if name in _DECLARES:
            for argument in command.words[1:]:
                if isinstance(argument, Assignment):
                    self._assign(argument, expander)
            return
        fields = [field for word in command.words for field in self._argument(word, expander)]
        if not fields:
            return
        self._start(fields, command.line, expander)

    def _argument(self, word: Word | Assignment, expander: Expander) -> list[Field]:
        if isinstance(word, Word):
            return expander.fields(word)
        if not isinstance(word.value, Word):
            return []
        sign = f"[{word.index}]" if word.index is not None else ""
        name = f"{word.name}{sign}{'+' if word.append else ''}="
        found = expander.fields(word.value)
        if not found:
            return [Field((name,), word.line, expander.source)]
        first = field_of([name, *found[0].parts], word.line, expander.source)
        return [first, *found[1:]]

    def _start(self, fields: Sequence[Field], line: int, expander: Expander) -> None:
        name = fields[0].text
        if name in self._functions:
            self._call(self._functions[name], fields[1:], line, expander)
        elif name in ("source", "."):
            self._source(fields[1:], line, expander)
        elif name == "eval":
            self._text(" ".join(each.text or "\0" for each in fields[1:]), name, line, expander)
        elif (inner := _inner_script(fields)) is not None:
            self._text(inner.text or "\0", "bash -c", line, expander)
        elif name == "shift":
            self._shift(fields[1:], expander)
        elif name == "unset":
            for each in fields[1:]:
                expander.variables.pop(each.text or "", None)
        elif name == "read" or name == "mapfile":
            self._forget(fields[1:], name, line, expander)
        elif name not in _QUIET:
            self._stray(fields[0], line, expander)
            started = Started(tuple(fields), line, expander.source, tuple(self._open))
            self.reading.commands.append(started)

    def _stray(self, first: Field, line: int, expander: Expander) -> None:
        """A setting where a command should be: the line before it does not go on."""
        key, equals, _ = (first.text or first.shown).partition("=")
        if equals and _LOOKS_LIKE_SETTING.match(key):
            what = f"{key[:60]} is no part of the command: the line before it does not go on"
            self._remark(expander, line, what)

    def _shift(self, fields: Sequence[Field], expander: Expander) -> None:
        """Drop the first arguments; of the script's own none are known."""
        count = fields[0].text if fields else "1"
        if expander.positional is not None and count is not None and count.isdigit():
            expander.positional = expander.positional[int(count[:6]) :]

    def _forget(self, names: Sequence[Field], by: str, line: int, expander: Expander) -> None:
        for each in names:
            if each.text and each.text.isidentifier():
                unknown = Unknown(each.text, f"{by} in line {line}", line, expander.source)
                expander.variables[each.text] = Field((unknown,), line, expander.source)

    def _call(
        self,
        called: tuple[Function, str],
        arguments: Sequence[Field],
        line: int,
        expander: Expander,
    ) -> None:
        function, source = called
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise ShellError(f"the function {function.name[:40]} calls itself without an end", line)
        before = expander.positional, expander.source
        expander.positional, expander.source = tuple(arguments), source
        self._run(function.body, expander)
        expander.positional, expander.source = before
        self._calls -= 1

    def _source(self, fields: Sequence[Field], line: int, expander: Expander) -> None:
        """Read a file in place of the line, if it is one that the user named."""
        wanted = fields[0].shown if fields else ""
        name = wanted.rpartition("/")[2]
        found = [each for each in self._scripts if each.rpartition("/")[2] == name and name]
        if len(found) != 1:
            what = f"{wanted[:80]} is not read: name it beside this file, if it sets anything"
            self._remark(expander, line, what)
            return
        before, expander.source = expander.source, found[0]
        self._read(self._scripts[found[0]], expander)
        expander.source = before

    def _text(self, text: str, by: str, line: int, expander: Expander) -> None:
        """Read a text that the script would have run."""
        if "\0" in text:
            self._remark(expander, line, f"{by} of what is not known is not read")
            return
        self._read(text, expander, first_line=line)

    def _assign(self, assignment: Assignment, expander: Expander) -> None:
        name, value = assignment.name, assignment.value
        if name in self._given:
            return
        if not isinstance(value, Word):
            found = [each for word in value for each in expander.fields(word)]
            before = expander.variables.get(name) if assignment.append else None
            kept = (before,) if isinstance(before, Field) else before or ()
            expander.variables[name] = (*kept, *found)
            return
        new = expander.one(value).named(name)
        if assignment.index is not None:
            self._assign_element(name, assignment.index, new, expander)
        elif assignment.append:
            self._append(name, new, expander)
        else:
            expander.variables[name] = new

    def _append(self, name: str, new: Field, expander: Expander) -> None:
        before = expander.variables.get(name)
        if isinstance(before, tuple):
            first = before[0].parts if before else ()
            joined = field_of([*first, *new.parts], new.line, new.source)
            expander.variables[name] = (joined, *before[1:])
            return
        parts = [*before.parts, *new.parts] if before is not None else list(new.parts)
        self._budget.take(sum(len(part) for part in parts if isinstance(part, str)), new.line)
        expander.variables[name] = field_of(parts, new.line, new.source)

    def _assign_element(self, name: str, index: str, new: Field, expander: Expander) -> None:
        before = expander.variables.get(name)
        elements = list(before) if isinstance(before, tuple) else [before] if before else []
        if index.isdigit() and int(index[:6]) < len(elements):
            elements[int(index[:6])] = new
        elif index.isdigit() and int(index[:6]) == len(elements):
            elements.append(new)
        else:
            why = f"an element set in line {new.line}"
            elements = [Field((Unknown(name, why, new.line, new.source),), new.line, new.source)]
        expander.variables[name] = tuple(elements)


def _by_scheduler(text: str) -> dict[str, tuple[str, int]]:
    """Variables that Slurm sets by what the head of a script asks of it → value and line."""
    found: dict[str, tuple[str, int]] = {}
    for line, each in enumerate(text.splitlines()[:MAX_HEAD], start=1):
        asked = _ASKED.match(each)
        if asked is not None:
            nodes = asked[1] in ("--nodes", "-N")
            for name in _SET_BY_NODES if nodes else _SET_BY_GPUS:
                found[name] = (asked[2], line)
    return found


def _inner_script(fields: Sequence[Field]) -> Field | None:
    """What `bash -c` is given, also where another command starts the shell; None: no shell is."""
    for place, each in enumerate(fields[:-2]):
        shell = (each.text or "").rpartition("/")[2] in ("bash", "sh")
        if shell and re.fullmatch(r"-[a-z]*c", fields[place + 1].text or ""):
            return fields[place + 2]
    return None


def _differ(one: Value | None, other: Value | None) -> bool:
    return one != other


def _is_test(command: Command) -> bool:
    """Whether a command only says yes or no."""
    if isinstance(command, Simple) and command.words:
        first = command.words[0]
        return isinstance(first, Word) and first.plain in ("[", "test", "grep", "command", "which")
    return isinstance(command, Test)
