"""Reads a script from top to bottom: which commands it would start, with which words.

Nothing is run and no file is opened. What the script sets, expands and decides by what it says
itself is followed; a command whose outcome only a machine knows leaves both ways open, and what
depends on it is unknown.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from automap.planner.imports.shell.conditions import holds, test_holds, without_unset
from automap.planner.imports.shell.expansion import ARGUMENTS, Expander
from automap.planner.imports.shell.flow import LEAVING, Frame, LeaveError, State, keep, merged
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
    Text,
    Word,
)
from automap.planner.imports.shell.values import Budget, Field, Unknown, Value, field_of

MAX_CALLS = 12
"""Functions and read texts inside one another."""
MAX_DEPTH = 120
"""Commands inside one another, over all functions and texts."""
MAX_TURNS = 1000
"""Turns of a loop whose condition is followed."""
MAX_HEAD = 200
"""Lines in which a script asks its scheduler for nodes."""
_ASKED = re.compile(
    r"#SBATCH\s+(--nodes|-N|--gpus-per-node|--gres)[=\s]\s*(?:gpu:)?(?:\w+:)?(\d+)\b"
)
_SET_BY_NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_SET_BY_GPUS = ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_QUIET = frozenset({"shopt", "cd", "echo", "printf", "mkdir", "true", ":", "false", "[", "test"})
"""Commands that set nothing that a launch reads."""
_SETS = frozenset({"set", "shift", "unset", "let", "read", "mapfile", "readarray", "getopts"})
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
    ended: tuple[str, int] | None = None
    """(file, line) at which the script leaves before its last line."""
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
        self._frames: list[Frame] = []
        self._subshells = 0
        self._unfollowed: set[str] = set()
        """Variables that are declared so that what they are set to is not what they hold."""
        self._parsed: dict[str, Script] = {}
        self._calls = 0
        self._depth = 0

    def read(self, source: str) -> Reading:
        """Read a script, and those that it reads itself and that are named.

        Raises:
            ShellError: it is no script, or has no end.
        """
        expander = self._expander(source)
        with suppress(LeaveError):
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

    def _read(self, text: str, expander: Expander, *, first_line: int = 1) -> bool | None:
        """Follow a text in place of a command; whether it succeeds."""
        if self._calls >= MAX_CALLS:
            raise ShellError("scripts that read one another without an end", first_line)
        self._budget.take(len(text), first_line)
        script = self._parsed.get(text) if first_line == 1 else None
        if script is None:
            script = parse(text, first_line=first_line)
            if first_line == 1:
                self._parsed[text] = script
        for line, what in script.unread:
            self._remark(expander, line, f"{what} is not read")
        self._calls += 1
        try:
            return self._run(script.commands, expander)
        finally:
            self._calls -= 1

    def _remark(self, expander: Expander, line: int, what: str) -> None:
        remark = (expander.source, line, what)
        if remark not in self.reading.remarks:
            self.reading.remarks.append(remark)

    def _run(self, commands: Sequence[Command], expander: Expander) -> bool | None:
        """Follow commands; whether the last one succeeds."""
        held: bool | None = True
        self._depth += 1
        try:
            for command in commands:
                if self._depth > MAX_DEPTH:
                    raise ShellError("commands too deep inside one another", command.line)
                self._budget.step(command.line)
                held = self._follow(command, expander)
        finally:
            self._depth -= 1
        return held

    def _follow(self, command: Command, expander: Expander) -> bool | None:
        """Follow a command; whether it succeeds, as far as that is known."""
        match command:
            case Simple():
                return self._simple(command, expander)
            case If():
                return self._if(command, expander)
            case Case():
                return self._case(command, expander)
            case Loop():
                return self._loop(command, expander)
            case Function():
                self._functions[command.name] = (command, expander.source)
                self.reading.texts[command.name] = command.text
                return True
            case Group():
                return self._group(command, expander)
            case AndOr():
                return self._and_or(command, expander, sure=False)
            case Test():
                return self._test(command, expander)

    def _test(self, command: Test, expander: Expander) -> bool | None:
        held = holds(command, expander)
        for word in command.words:
            if word.plain == "=~":
                expander.forget("BASH_REMATCH", f"matched in line {command.line}", command.line)
            if command.arithmetic:
                expander.forget_counted(expander.one(word).shown, command.line)
        return held

    def _group(self, command: Group, expander: Expander) -> bool | None:
        if not command.subshell:
            held = self._run(command.body, expander)
            if not command.negated:
                return held
            if held is None and not _is_test(command.body[-1]):
                return False
            return None if held is None else not held
        before, functions = dict(expander.variables), dict(self._functions)
        frames, self._frames = self._frames, []
        self._subshells += 1
        try:
            return self._run(command.body, expander)
        except LeaveError as error:
            return error.status
        finally:
            expander.variables, self._functions, self._frames = before, functions, frames
            self._subshells -= 1

    def _and_or(self, command: Command, expander: Expander, *, sure: bool) -> bool | None:
        """Follow commands joined by && and ||; whether the last one that runs succeeds.

        Unless it has to be `sure`, what is started is taken to succeed.
        """
        if not isinstance(command, AndOr):
            held = self._follow(command, expander)
            return True if held is None and not sure and not _is_test(command) else held
        held = self._and_or(command.left, expander, sure=sure)
        if held is None:
            [right] = self._perhaps([(command.right,)], expander, command.line)
            decided = command.operator == "||"
            return decided if right == decided else None
        if held == (command.operator == "&&"):
            return self._and_or(command.right, expander, sure=sure)
        return held

    def _if(self, command: If, expander: Expander) -> bool | None:
        for place, (condition, body) in enumerate(command.branches):
            if not condition:
                return self._run(body, expander)
            held = self._condition(condition, expander)
            if held:
                return self._run(body, expander)
            if held is None:
                rest = command.branches[place:]
                # The conditions after this one may set variables as well.
                ways = [
                    [*(each for other, _ in rest[1 : i + 1] for each in other), *body]
                    for i, (_, body) in enumerate(rest)
                ]
                if rest[-1][0]:
                    ways.append([each for other, _ in rest[1:] for each in other])
                self._perhaps(ways, expander, command.line)
                return None
        return True

    def _condition(self, commands: Sequence[Command], expander: Expander) -> bool | None:
        """Whether the last command succeeds; those of others are followed as well."""
        *before, last = commands
        self._run(before, expander)
        self._budget.step(last.line)
        return self._and_or(last, expander, sure=True)

    def _perhaps(
        self, bodies: Sequence[Sequence[Command]], expander: Expander, line: int
    ) -> list[bool | None]:
        """Follow every way from here; what they leave different is unknown afterwards.

        Returns whether each body succeeds.
        """
        before, functions = dict(expander.variables), dict(self._functions)
        outcomes, found = [before], list[bool | None]()
        changed = set[str]()
        for body in bodies:
            self._budget.take(len(before), line)
            expander.variables, self._functions = dict(before), dict(functions)
            self._open.append(line)
            try:
                found.append(self._run(body, expander))
                outcomes.append(expander.variables)
            except LeaveError as error:
                found.append(None)
                keep(error, self._frames, expander.variables)
            finally:
                self._open.pop()
            changed |= {
                name for name, each in self._functions.items() if functions.get(name) != each
            }
        self._functions = functions
        for name in sorted(changed):
            self._remark(expander, line, f"the function {name[:40]} is not read anew")
        why = f"set under a condition in line {line}"
        expander.variables = merged(outcomes, why, line, expander.source)
        return found

    def _case(self, command: Case, expander: Expander) -> bool | None:
        subject = without_unset(expander.one(command.subject)).text
        through = False
        for place, (patterns, body, ended) in enumerate(command.branches):
            held: bool | None = through
            for each in () if through else patterns:
                wanted = expander.pattern(each)
                if subject is None or wanted is None:
                    held = None
                    break
                if fnmatch.fnmatchcase(subject, wanted):
                    held = True
                    break
            if held is None:
                self._perhaps_case(command, place, expander)
                return None
            if held:
                status = self._run(body, expander)
                if ended == ";;":
                    return status
            through = bool(held) and ended == ";&"
        return None if any(ended != ";;" for *_, ended in command.branches) else True

    def _perhaps_case(self, command: Case, place: int, expander: Expander) -> None:
        """Follow the branches from one on, of which one may be taken, or several."""
        rest = command.branches[place:]
        if all(ended == ";;" for *_, ended in rest):
            self._perhaps([body for _, body, _ in rest], expander, command.line)
            return
        for _, body, _ in rest:
            self._perhaps([body], expander, command.line)

    def _loop(self, command: Loop, expander: Expander) -> bool | None:
        frame = Frame("loop")
        self._frames.append(frame)
        opened = len(self._open)
        try:
            self._turns(command, expander, frame)
        finally:
            self._frames.pop()
            del self._open[opened:]
        self._join(frame.left, expander, command.line)
        return None

    def _turns(self, command: Loop, expander: Expander, frame: Frame) -> None:
        values = self._values(command, expander)
        if command.name is not None and values is not None:
            for value in values:
                self._budget.step(command.line)
                self._set(command.name, value, expander)
                if not self._turn(command.body, expander, frame, command.line):
                    return
            return
        if command.name is None and command.condition and not command.counts:
            for _ in range(MAX_TURNS):
                held = self._condition(command.condition, expander)
                if held is None:
                    break
                if held == command.until:
                    return
                if not self._turn(command.body, expander, frame, command.line):
                    return
        self._unknown_turns(command, expander, frame)

    def _values(self, command: Loop, expander: Expander) -> Sequence[Field] | None:
        """What a loop goes over; None: that is not known."""
        if command.words is None:
            return expander.positional
        found = [each for word in command.words for each in expander.fields(word)]
        return None if any(each.unknown for each in found) else found

    def _turn(self, body: Sequence[Command], expander: Expander, frame: Frame, line: int) -> bool:
        """Follow one turn of a loop; False: it leaves the loop."""
        try:
            self._run(body, expander)
        except LeaveError as error:
            if error.kind not in ("break", "continue"):
                raise
            if error.levels > 1 and any(each.kind == "loop" for each in self._frames[:-1]):
                error.levels -= 1
                raise
            if error.kind == "break":
                return False
        self._join(frame.turned, expander, line)
        frame.turned.clear()
        return True

    def _unknown_turns(self, command: Loop, expander: Expander, frame: Frame) -> None:
        """Follow a loop whose number of turns is not known, until a turn changes nothing more."""
        body = (*command.condition, *command.body)
        started = len(self.reading.commands)
        while True:
            if command.name is not None:
                expander.forget(command.name, f"the loop in line {command.line}", command.line)
            if command.counts:
                self._run(command.condition, expander)
            before = dict(expander.variables)
            del self.reading.commands[started:]
            self._perhaps([body], expander, command.line)
            self._join(frame.turned, expander, command.line)
            frame.turned.clear()
            names = {*before, *expander.variables}
            changed = [n for n in names if before.get(n) != expander.variables.get(n)]
            if all(_is_unknown(before.get(name)) for name in changed):
                return

    def _join(self, left: Sequence[State], expander: Expander, line: int) -> None:
        """Go on from here with ways that have perhaps come here as well."""
        if left:
            why = f"left under a condition in line {line}"
            expander.variables = merged([expander.variables, *left], why, line, expander.source)

    def _simple(self, command: Simple, expander: Expander) -> bool | None:
        if not command.words:
            for each in command.assignments:
                self._assign(each, expander)
            return True
        first = command.words[0]
        name = first.plain if isinstance(first, Word) else None
        if name in _DECLARES:
            self._declare(name, command.words[1:], expander)
            return True
        words = [each for each in command.words[1:] if isinstance(each, Word)]
        if name == "test" or (name == "[" and words and words[-1].plain == "]"):
            return test_holds(words[: len(words) - (name == "[")], expander)
        fields = [field for word in command.words for field in self._argument(word, expander)]
        if not fields:
            return True
        if not command.assignments:
            return self._start(fields, command.line, expander)
        before = {each.name: expander.variables.get(each.name) for each in command.assignments}
        for each in command.assignments:
            self._assign(each, expander)
        try:
            return self._start(fields, command.line, expander)
        finally:
            _restore(before, expander)

    def _declare(self, by: str, words: Sequence[Word | Assignment], expander: Expander) -> None:
        """`export`, `local` and their like: variables of a function are its own."""
        options = "".join(
            word.plain or ""
            for word in words
            if isinstance(word, Word) and (word.plain or "")[:1] == "-"
        )
        own = by == "local" or (by in ("declare", "typeset") and "g" not in options)
        # All is expanded before anything is set.
        values: list[tuple[Assignment | str, Value | None]] = []
        for word in words:
            if isinstance(word, Assignment):
                values.append((word, self._value(word, expander)))
                continue
            for each in expander.fields(word) if (word.plain or "")[:1] != "-" else ():
                name, equals, _ = each.shown.partition("=")
                if name.isidentifier():
                    values.append((name, _after_equals(each) if equals else None))
                else:
                    self._remark(expander, word.line, f"{each.shown[:60]} is not read")
        for target, value in values:
            name = target.name if isinstance(target, Assignment) else target
            self._declared(name, options, expander, own=own)
            if isinstance(target, Assignment):
                self._assign_value(target, value, expander)
            elif value is not None:
                self._set(name, value, expander)
            elif own and any(frame.kind == "function" for frame in self._frames):
                expander.variables.pop(name, None)

    def _declared(self, name: str, options: str, expander: Expander, *, own: bool) -> None:
        if any(each in options for each in "ilunA"):
            self._unfollowed.add(name)
        functions = [frame for frame in self._frames if frame.kind == "function"]
        if own and functions and name not in functions[-1].outside:
            before = expander.variables.get(name)
            if self._open:
                why = "local under a condition"
                before = Field((Unknown(name, why, 0, expander.source),), 0, expander.source)
            functions[-1].outside[name] = before

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

    def _start(self, fields: Sequence[Field], line: int, expander: Expander) -> bool | None:
        """Follow a command by its words; whether it succeeds."""
        name, arguments = fields[0].text, fields[1:]
        if name in self._functions:
            return self._call(self._functions[name], arguments, line, expander)
        if name in LEAVING:
            self._leave(name, arguments, line, expander)
        if name in ("source", "."):
            return self._source(arguments, line, expander)
        if name == "eval":
            text = " ".join("\0" if each.text is None else each.text for each in arguments)
            return self._text(text, name, line, expander)
        if (inner := _inner_script(fields)) is not None:
            return self._inner(inner, line, expander)
        if name in _SETS or (name == "printf" and arguments and arguments[0].text == "-v"):
            self._builtin(name or "", arguments, line, expander)
        elif name not in _QUIET:
            self._stray(fields[0], line, expander)
            started = Started(tuple(fields), line, expander.source, tuple(self._open))
            self.reading.commands.append(started)
            return None
        return {"true": True, ":": True, "echo": True, "false": False}.get(name or "")

    def _leave(self, kind: str, arguments: Sequence[Field], line: int, expander: Expander) -> None:
        """Leave the loop, the function or the script; nothing where there is no such thing."""
        fitting = {"return": "function", "exit": ""}.get(kind, "loop")
        if fitting == "loop" and not any(frame.kind == "loop" for frame in self._frames):
            return
        text = arguments[0].text if arguments else None
        if fitting != "loop":
            status = int(text) % 256 == 0 if text and text.isdecimal() else None
            if kind == "exit" and status is False and not self._subshells and not self._open:
                # A guard against what is still to be filled in; the launch beyond it is meant.
                self._remark(expander, line, f"the script ends here (exit {text}): it is read on")
                return
            if kind == "exit" and not self._subshells and not self._open:
                self.reading.ended = (expander.source, line)
            raise LeaveError(kind, 1, status)
        if arguments and not (text or "").isdecimal():
            raise ShellError(f"{kind} out of a number of loops that is not known", line)
        raise LeaveError(kind, int((text or "1")[:4]) or 1, True)

    def _builtin(
        self, name: str, arguments: Sequence[Field], line: int, expander: Expander
    ) -> None:
        """Commands of the shell itself that set variables."""
        if name == "shift":
            self._shift(arguments, expander)
        elif name == "set":
            _set_arguments(arguments, expander)
        elif name == "unset":
            self._unset(arguments, line, expander)
        elif name == "let":
            for each in arguments:
                expander.forget_counted(each.shown, line)
        else:
            for each in arguments:
                if each.text and each.text.isidentifier():
                    expander.forget(each.text, f"{name} in line {line}", line)

    def _unset(self, arguments: Sequence[Field], line: int, expander: Expander) -> None:
        options = [each.text for each in arguments if (each.text or "").startswith("-")]
        for each in arguments:
            name, bracket, _ = (each.text or "").partition("[")
            if bracket:
                expander.forget(name, f"an element unset in line {line}", line)
            elif each.text is None:
                self._remark(expander, line, f"unset of {each.shown[:60]} is not read")
            elif "-f" in options:
                self._functions.pop(name, None)
            else:
                expander.variables.pop(name, None)

    def _stray(self, first: Field, line: int, expander: Expander) -> None:
        """A setting where a command should be: the line before it does not go on."""
        key, equals, _ = (first.text or first.shown).partition("=")
        if equals and _LOOKS_LIKE_SETTING.match(key):
            what = f"{key[:60]} is no part of the command: the line before it does not go on"
            self._remark(expander, line, what)

    def _shift(self, fields: Sequence[Field], expander: Expander) -> None:
        """Drop the first arguments; of the script's own none are known."""
        count, found = fields[0].text if fields else "1", expander.positional
        if found is None:
            return
        number = int(count[:6]) if count is not None and count.isdecimal() else None
        if number is None or any(each.unknown for each in found[:number]):
            expander.forget(ARGUMENTS, "arguments that are shifted", 0)
        elif number <= len(found):
            expander.variables[ARGUMENTS] = found[number:]

    def _call(
        self,
        called: tuple[Function, str],
        arguments: Sequence[Field],
        line: int,
        expander: Expander,
    ) -> bool | None:
        """Follow a function; whether it succeeds."""
        function, source = called
        if self._calls >= MAX_CALLS:
            raise ShellError(f"the function {function.name[:40]} calls itself without an end", line)
        outside, opened, frame = expander.source, len(self._open), Frame("function")
        frame.outside[ARGUMENTS] = expander.variables.get(ARGUMENTS)
        expander.variables[ARGUMENTS], expander.source = tuple(arguments), source
        self._calls += 1
        self._frames.append(frame)
        held: bool | None
        try:
            held = self._run(function.body, expander)
        except LeaveError as error:
            if error.kind != "return":
                raise
            held = error.status
        finally:
            self._calls -= 1
            self._frames.remove(frame)
            del self._open[opened:]
            self._join(frame.left, expander, line)
            _restore(frame.outside, expander)
            expander.source = outside
        return None if frame.left else held

    def _source(self, fields: Sequence[Field], line: int, expander: Expander) -> bool | None:
        """Read a file in place of the line, if it is one that the user named."""
        wanted = fields[0].shown if fields else ""
        name = wanted.rpartition("/")[2]
        found = [each for each in self._scripts if each.rpartition("/")[2] == name and name]
        if len(found) != 1:
            what = f"{wanted[:80]} is not read: name it beside this file, if it sets anything"
            self._remark(expander, line, what)
            return None
        before, expander.source = expander.source, found[0]
        try:
            return self._read(self._scripts[found[0]], expander)
        except LeaveError as error:
            if error.kind != "return":
                raise
            return error.status
        finally:
            expander.source = before

    def _inner(self, inner: Field, line: int, expander: Expander) -> bool | None:
        """Read what another shell is given, whose variables end with it."""
        before, frames = dict(expander.variables), self._frames
        self._frames = []
        self._subshells += 1
        try:
            text = "\0" if inner.text is None else inner.text
            return self._text(text, "bash -c", line, expander)
        except LeaveError as error:
            return error.status
        finally:
            expander.variables, self._frames = before, frames
            self._subshells -= 1

    def _text(self, text: str, by: str, line: int, expander: Expander) -> bool | None:
        """Read a text that the script would have run."""
        if "\0" in text:
            self._remark(expander, line, f"{by} of what is not known is not read")
            return None
        return self._read(text, expander, first_line=line)

    def _set(self, name: str, value: Value, expander: Expander) -> None:
        """Set a variable, unless it is one that does not hold what it is set to."""
        line = value.line if isinstance(value, Field) else 0
        if name in self._unfollowed:
            expander.forget(name, "declared in a way that is not read", line)
        elif name not in self._given:
            expander.variables[name] = value

    def _assign(self, assignment: Assignment, expander: Expander) -> None:
        self._assign_value(assignment, self._value(assignment, expander), expander)

    def _value(self, assignment: Assignment, expander: Expander) -> Value | None:
        """What an assignment sets, or adds; None: elements at places of their own."""
        if isinstance(assignment.value, Word):
            return expander.one(assignment.value).named(assignment.name)
        if any(_is_element(word) for word in assignment.value):
            return None
        return tuple(each for word in assignment.value for each in expander.fields(word))

    def _assign_value(self, assignment: Assignment, new: Value | None, expander: Expander) -> None:
        name = assignment.name
        if name in self._given:
            return
        if new is None or name in self._unfollowed:
            why = f"set in line {assignment.line} in a way that is not read"
            expander.forget(name, why, assignment.line)
        elif isinstance(new, tuple):
            before = expander.variables.get(name) if assignment.append else None
            kept = (before,) if isinstance(before, Field) else before or ()
            expander.variables[name] = (*kept, *new)
        elif assignment.index is not None:
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
        if index.startswith("0") and len(index) > 1:
            index = ""
        if any(each.unknown for each in elements):
            index = ""
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


def _is_unknown(value: Value | None) -> bool:
    return isinstance(value, Field) and value.unknown is not None


def _is_element(word: Word) -> bool:
    """Whether a word of an array names the place of its element."""
    first = word.parts[0] if word.parts else None
    return isinstance(first, Text) and not first.quoted and first.text.startswith("[")


def _after_equals(found: Field) -> Field:
    """The value of an assignment that is written as an argument."""
    first, *rest = found.parts
    text = first.partition("=")[2] if isinstance(first, str) else ""
    return field_of([text, *rest], found.line, found.source)


def _restore(before: Mapping[str, Value | None], expander: Expander) -> None:
    for name, value in before.items():
        if value is None:
            expander.variables.pop(name, None)
        else:
            expander.variables[name] = value


def _set_arguments(words: Sequence[Field], expander: Expander) -> None:
    """`set -- …`: new arguments; options alone leave them as they are."""
    place = 0
    while place < len(words):
        text = words[place].text or ""
        if text == "--":
            expander.variables[ARGUMENTS] = tuple(words[place + 1 :])
            return
        if text[:1] not in ("-", "+") or text == "-":
            expander.variables[ARGUMENTS] = tuple(words[place + (text == "-") :])
            return
        place += 2 if text.endswith("o") else 1


def _is_test(command: Command) -> bool:
    """Whether a command only says yes or no."""
    if isinstance(command, Group) and command.body:
        return _is_test(command.body[-1])
    if isinstance(command, Simple) and command.words:
        first = command.words[0]
        return isinstance(first, Word) and first.plain in ("[", "test", "grep", "command", "which")
    return isinstance(command, Test)
