"""Commands by their words: builtins, functions, named scripts, and what is started."""

import re
from collections.abc import Sequence

from automap.planner.imports.shell.assignments import restore
from automap.planner.imports.shell.compounds import Compounds
from automap.planner.imports.shell.expansion import ARGUMENTS, Expander
from automap.planner.imports.shell.flow import LEAVING, Frame, LeaveError
from automap.planner.imports.shell.syntax import (
    Function,
    Parameter,
    ShellError,
    Simple,
    Word,
)
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import MAX_CALLS, Guard, Started

_QUIET = frozenset({"shopt", "cd", "echo", "printf", "mkdir", "true", ":", "false", "[", "test"})
"""Commands that set nothing that a launch reads."""
_SETS = frozenset({"set", "shift", "unset", "let", "read", "mapfile", "readarray", "getopts"})
_LOOKS_LIKE_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w@/]*\.[\w.@/]+$")


class Calls(Compounds):
    """Follows commands by their words."""

    def _start(self, fields: Sequence[Field], by: Simple, expander: Expander) -> bool | None:
        """Follow a command by its words; whether it succeeds."""
        name, arguments, line = fields[0].text, fields[1:], by.line
        if name in self._functions:
            return self._call(self._functions[name], arguments, line, expander)
        if name in LEAVING:
            self._leave(name, arguments, line, expander)
        if name in ("source", "."):
            return self._source(arguments, line, expander)
        if name == "eval":
            text = " ".join("\0" if each.text is None else each.text for each in arguments)
            return self._text(text, name, line, expander)
        inner = _inner_script(fields) or _submitted(fields, expander)
        if inner is not None:
            return self._inner(inner, line, expander)
        if name in _SETS or (name == "printf" and arguments and arguments[0].text == "-v"):
            self._builtin(name or "", arguments, line, expander)
        elif name not in _QUIET:
            self._stray(fields[0], line, expander)
            opened = tuple(self._open)
            started = Started(tuple(fields), line, expander.source, opened, _end_of(by))
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
            # 256 divides 10**8.
            status = int(text[-8:]) % 256 == 0 if text and text.isdecimal() else None
            if kind == "exit" and status is False and not self._subshells and not self._open:
                # A guard against what is still to be filled in; the launch beyond it is meant.
                guard = Guard(expander.source, line, int((text or "1")[-8:]) % 256)
                self.reading.guards[guard] = len(self.reading.commands)
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
            restore(frame.outside, expander)
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
        return self._read(text, expander, within=line)


def _end_of(command: Simple) -> int | None:
    """Where the words of a command end, but for arguments that it passes on."""
    ends = [
        word.place[1]
        for word in command.words
        if word.place is not None and not (isinstance(word, Word) and _passes_on(word))
    ]
    return max(ends, default=None)


def _passes_on(word: Word) -> bool:
    return any(isinstance(part, Parameter) and part.name in "@*" for part in word.parts)


def _inner_script(fields: Sequence[Field]) -> Field | None:
    """What `bash -c` is given, also where another command starts the shell; None: no shell is."""
    for place, each in enumerate(fields[:-2]):
        shell = (each.text or "").rpartition("/")[2] in ("bash", "sh")
        if shell and re.fullmatch(r"-[a-z]*c", fields[place + 1].text or ""):
            return fields[place + 2]
    return None


def _submitted(fields: Sequence[Field], expander: Expander) -> Field | None:
    """What `ray.sub`, a script for Slurm, is given to start in COMMAND; None: it is not there."""
    command = expander.variables.get("COMMAND")
    is_there = any(each.shown.rpartition("/")[2] == "ray.sub" for each in fields[1:])
    return command if is_there and isinstance(command, Field) else None


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
        place += 2 if "o" in text else 1
