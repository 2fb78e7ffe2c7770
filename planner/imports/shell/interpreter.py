"""Reads a script from top to bottom: which commands it would start, with which words.

Nothing is run and no file is opened. What the script sets, expands and decides by what it says
itself is followed; a command whose outcome only a machine knows leaves both ways open, and what
depends on it is unknown.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

from automap.planner.imports.shell.assignments import restore
from automap.planner.imports.shell.calls import Calls
from automap.planner.imports.shell.compounds import is_test
from automap.planner.imports.shell.conditions import holds, test_holds
from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.flow import LeaveError
from automap.planner.imports.shell.parser import parse
from automap.planner.imports.shell.syntax import (
    AndOr,
    Case,
    Command,
    Function,
    Group,
    If,
    Loop,
    ShellError,
    Simple,
    Substitution,
    Test,
    Word,
)
from automap.planner.imports.shell.values import Field, Value
from automap.planner.imports.shell.walk import MAX_CALLS, Reading

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


class Interpreter(Calls):
    """Follows the scripts that the user named."""

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

    def _read(self, text: str, expander: Expander, *, within: int | None = None) -> bool | None:
        """Follow a file, or a text in a line of one; whether it succeeds."""
        first_line, is_file = within or 1, within is None
        if self._calls >= MAX_CALLS:
            raise ShellError("scripts that read one another without an end", first_line)
        self._budget.take(len(text), first_line)
        script = self._parsed.get(text) if is_file else None
        if script is None:
            script = parse(text, first_line=first_line, is_file=is_file)
            if is_file:
                self._parsed[text] = script
        for line, what in script.unread:
            self._remark(expander, line, f"{what} is not read")
        self._calls += 1
        try:
            return self._run(script.commands, expander)
        finally:
            self._calls -= 1

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
            if held is None and not is_test(command.body[-1]):
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
            return self._start(fields, command, expander)
        before = {each.name: expander.variables.get(each.name) for each in command.assignments}
        for each in command.assignments:
            self._assign(each, expander)
        try:
            return self._start(fields, command, expander)
        finally:
            restore(before, expander)


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
