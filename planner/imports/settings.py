"""The settings of a launch by the decisions of the description: given, or what is done else."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from automap.planner.errors import Reason
from automap.planner.frameworks.description import JOB, Framework, Setting
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import Remark
from automap.planner.imports.values import Value, ValueFormError, read_value

MAX_REFERENCES = 20
"""Interpolations that lead to one another."""
_REFERENCE = re.compile(r"\$\{([\w.@/\-]+)\}")
_ENVIRONMENT = re.compile(r"\$\{oc\.env:(\w+)(?:,([^{}]*))?\}")
MAX_SHOWN = 60


@dataclass(slots=True)
class Settings:
    """Looks a launch up; what is missing or wrong is kept, and a harmless value goes on."""

    framework: Framework
    overrides: Overrides
    values: Mapping[str, str]
    """What the user gave by name."""
    engine: str = "fsdp"
    as_role: Mapping[str, str] = field(default_factory=dict)
    """Role → the one that the description has in its place, where it has several."""
    reader: Callable[[str], Value] = read_value
    """Reads a value as the framework does."""
    reasons: list[Reason] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    decides: dict[str, str] = field(default_factory=dict)
    """Key that was looked up → what it decides."""

    def key(self, decision: str, role: str = JOB) -> str:
        """The key of a decision, without the sign of one that is added."""
        return self._setting(decision, role).key(self._role(decision, role)).lstrip("+")

    def given(self, decision: str, role: str = JOB) -> Given | None:
        """What the launch itself sets; None: nothing."""
        return self.overrides.given.get(self.key(decision, role))

    def where(self, decision: str, role: str = JOB) -> str:
        """The key, and the line that sets it, for messages."""
        key, given = self.key(decision, role), self.given(decision, role)
        return key if given is None or not given.line else f"{key} (line {given.line})"

    def value(self, decision: str, role: str = JOB) -> Value:
        """What the framework reads for a decision."""
        setting = self._setting(decision, role)
        role = self._role(decision, role)
        key = setting.key(role).lstrip("+")
        self.decides.setdefault(key, setting.about)
        given = self.overrides.given.get(key)
        if given is not None:
            return self._read(given)
        followed = setting.follows.get(role, setting.follows.get(JOB, ""))
        if followed:
            return self._of_key(followed)
        return _left_out(setting, role)

    def knows(self, decision: str, role: str = JOB) -> bool:
        """Whether the framework can be told this of a role."""
        role = self._role(decision, role)
        return self.framework.knows(decision, role=role, engine=self.engine)

    def whole(self, decision: str, role: str = JOB, *, least: int = 1) -> int | None:
        """A whole number; None: null, or it is asked for."""
        value = self.value(decision, role)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            if value is None or least <= value < 2**53:
                return value
            told = f"{self.where(decision, role)}: {value} is below {least} or too large"
            self.refuse(told, f"give a whole number from {least}")
            return None
        told = f"{self.where(decision, role)}: {str(value)[:MAX_SHOWN]!r} is no whole number"
        self.refuse(told, f"give a whole number from {least}")
        return None

    def size(self, decision: str, role: str = JOB) -> int:
        """A whole number from 1; where it is missing it counts as 1, and null is 1."""
        return self.whole(decision, role) or 1

    def share(self, decision: str, role: str = JOB) -> float:
        """A number from 0 to 1."""
        value = self.value(decision, role)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value)
        if value is not None:
            told = f"{self.where(decision, role)}: {str(value)[:MAX_SHOWN]} is no share"
            self.refuse(told, "give a number above 0, and at most 1")
        return 0.5

    def flag(self, decision: str, role: str = JOB) -> bool:
        """True or False; null is False."""
        value = self.value(decision, role)
        if value in (0, 1, None) and not isinstance(value, float):
            return bool(value)
        if value is not None:
            shown = str(value)[:MAX_SHOWN]
            told = f"{self.where(decision, role)}: {shown!r} is neither True nor False"
            self.refuse(told, "give True or False")
        return False

    def text(self, decision: str, role: str = JOB) -> str:
        """A word; empty: null, or it is asked for."""
        value = self.value(decision, role)
        return "" if value is None else str(value)

    def needless(self, decision: str, role: str = JOB) -> bool:
        """Note what is unknown of a value that no plan needs; whether it is known."""
        self.decides.setdefault(self.key(decision, role), self._setting(decision, role).about)
        given = self.given(decision, role)
        if given is None or given.unknown is None:
            return True
        told = f"{given.key} is {given.value[:MAX_SHOWN]}, and no plan needs it"
        self.note("assumed", told, given)
        return False

    def refuse(self, summary: str, remedy: str) -> None:
        """Keep a reason why the launch is not imported."""
        reason = Reason(summary=summary, remedy=remedy)
        if reason not in self.reasons:
            self.reasons.append(reason)

    def ask(self, what: str, option: str) -> None:
        """Keep something that is missing, with the option that gives it."""
        self.refuse(what, f"give it with {option}")

    def assume(self, text: str) -> None:
        """Note what was taken for granted."""
        self.note("assumed", text)

    def note(self, kind: str, text: str, at: Given | None = None) -> None:
        """Note something, about a setting where there is one."""
        file, line = ("", 0) if at is None else (at.file, at.line)
        remark = Remark.model_validate({"kind": kind, "text": text, "file": file, "line": line})
        if remark not in self.remarks:
            self.remarks.append(remark)

    def _setting(self, decision: str, role: str) -> Setting:
        role = self._role(decision, role)
        return self.framework.setting(decision, role=role, engine=self.engine)

    def _role(self, decision: str, role: str) -> str:
        """The role under which a decision is described."""
        named = self.as_role.get(role, role)
        known = self.framework.knows(decision, role=named, engine=self.engine)
        return named if known and not self.framework.knows(decision, role=role) else role

    def _of_key(self, key: str) -> Value:
        """What is read under a key that another one follows."""
        given = self.overrides.given.get(key)
        if given is not None:
            return self._read(given)
        for setting in self.framework.settings:
            for role, each in setting.keys.items():
                if each.lstrip("+") == key and setting.engine in (None, self.engine):
                    return _left_out(setting, role)
        return None

    def _read(self, given: Given, depth: int = 0) -> Value:
        """The value of a setting; what is unknown in it is asked for."""
        if given.unknown is not None:
            name = given.unknown.name
            line = f" (line {given.line})" if given.line else ""
            why = given.unknown.why
            what = f"{given.key}{line} is {given.value[:MAX_SHOWN]}: {why}"
            option = f"--set {name}=…" if name else f"--set {given.key}=…"
            self.ask(what, option)
            return None
        text = given.value.strip()
        if reference := _REFERENCE.fullmatch(text):
            target = self.overrides.given.get(reference[1])
            if target is not None and depth < MAX_REFERENCES:
                return self._read(target, depth + 1)
            if target is None and (left := self._of_key(reference[1])) is not None:
                return left
        if environment := _ENVIRONMENT.fullmatch(text):
            found = self.values.get(environment[1], environment[2])
            if found is not None:
                return self._formed(given, found)
            self.ask(f"{given.key} is the variable {environment[1]}", f"--set {environment[1]}=…")
            return None
        if "${" in text and not text.startswith(("'", '"')):
            self.ask(
                f"{given.key} is {text[:MAX_SHOWN]}, which is not read", f"--set {given.key}=…"
            )
            return None
        return self._formed(given, text)

    def _formed(self, given: Given, text: str) -> Value:
        """A value by how it is written; one that is not read is refused."""
        try:
            return self.reader(text)
        except ValueFormError as error:
            told = f"{given.key} (line {given.line}) is {text[:MAX_SHOWN]}: {error}"
            self.refuse(told, f"give one value with --set {given.key}=…")
            return None


def _left_out(setting: Setting, role: str) -> Value:
    """What is done where the key is left out; None where that is no value, but words."""
    if role in setting.values:
        found: Value = setting.values[role]
        return found
    if not setting.default or " " in setting.default:
        return None
    return read_value(setting.default)
