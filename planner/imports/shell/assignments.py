"""What a script sets: variables, arrays, elements, and what is declared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.syntax import (
    Assignment,
    Text,
    Word,
)
from automap.planner.imports.shell.values import Field, Unknown, Value, field_of
from automap.planner.imports.shell.walk import Walk


class Assignments(Walk):
    """Follows what is set."""

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
            return [Field((name,), word.line, expander.source, word.place)]
        first = field_of([name, *found[0].parts], word.line, expander.source)
        whole = word.place if len(found) == 1 else None
        return [replace(first, place=whole), *found[1:]]

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


def _is_element(word: Word) -> bool:
    """Whether a word of an array names the place of its element."""
    first = word.parts[0] if word.parts else None
    return isinstance(first, Text) and not first.quoted and first.text.startswith("[")


def _after_equals(found: Field) -> Field:
    """The value of an assignment that is written as an argument."""
    first, *rest = found.parts
    text = first.partition("=")[2] if isinstance(first, str) else ""
    return field_of([text, *rest], found.line, found.source)


def restore(before: Mapping[str, Value | None], expander: Expander) -> None:
    """Give variables the values that they had; None: they had none."""
    for name, value in before.items():
        if value is None:
            expander.variables.pop(name, None)
        else:
            expander.variables[name] = value
