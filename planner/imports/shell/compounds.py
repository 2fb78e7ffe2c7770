"""Conditions, cases and loops: one way where it is known, all ways where it is not."""

import fnmatch
from collections.abc import Sequence

from automap.planner.imports.shell.assignments import Assignments
from automap.planner.imports.shell.conditions import without_unset
from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.flow import Frame, LeaveError, State, keep, merged
from automap.planner.imports.shell.syntax import (
    AndOr,
    Case,
    Command,
    Group,
    If,
    Loop,
    Simple,
    Test,
    Word,
)
from automap.planner.imports.shell.values import Field, Value

MAX_TURNS = 1000
"""Turns of a loop whose condition is followed."""


class Compounds(Assignments):
    """Follows commands that hold others."""

    def _and_or(self, command: Command, expander: Expander, *, sure: bool) -> bool | None:
        """Follow commands joined by && and ||; whether the last one that runs succeeds.

        Unless it has to be `sure`, what is started is taken to succeed.
        """
        if not isinstance(command, AndOr):
            held = self._follow(command, expander)
            return True if held is None and not sure and not is_test(command) else held
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


def _is_unknown(value: Value | None) -> bool:
    return isinstance(value, Field) and value.unknown is not None


def is_test(command: Command) -> bool:
    """Whether a command only says yes or no."""
    if isinstance(command, Group) and command.body:
        return is_test(command.body[-1])
    if isinstance(command, Simple) and command.words:
        first = command.words[0]
        return isinstance(first, Word) and first.plain in ("[", "test", "grep", "command", "which")
    return isinstance(command, Test)
