"""Settings of a launch as they are collected, each looked up in the framework's description."""

import re
from dataclasses import dataclass, field

from automap.planner.exports.launch import LaunchSetting, Placeholder
from automap.planner.frameworks.description import JOB, Framework

Value = bool | int | float | str | list[str] | None


@dataclass(slots=True)
class Lines:
    """The settings so far, in order."""

    framework: Framework
    engine: str
    settings: list[LaunchSetting] = field(default_factory=list)
    placeholders: list[Placeholder] = field(default_factory=list)

    def add(self, decision: str, value: Value, because: str, *, role: str = JOB) -> None:
        """Set what the plan decides, and why."""
        key = self._key(decision, role)
        self.settings.append(LaunchSetting(key=key, value=hydra_value(value), because=because))

    def add_text(self, decision: str, text: str, because: str) -> None:
        """Set a name that people gave, which may have any characters."""
        key = self._key(decision, JOB)
        self.settings.append(LaunchSetting(key=key, value=hydra_quoted(text), because=because))

    def ask(self, decision: str, variable: str, what: str, *, role: str = JOB) -> None:
        """Leave a place for what no plan knows."""
        key = self._key(decision, role)
        asked = LaunchSetting(key=key, value=variable, because=what, placeholder=True)
        self.settings.append(asked)
        self.placeholders.append(Placeholder(variable=variable, what=what))

    def _key(self, decision: str, role: str) -> str:
        return self.framework.setting(decision, role=role, engine=self.engine).keys[role]


def hydra_value(value: Value) -> str:
    """A value as Hydra reads it: null, True, numbers, lists, and words without special characters.

    Raises:
        ValueError: a word needs quotes; names that people give are for `hydra_quoted`.
    """
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(hydra_value, value))}]"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value):
        raise ValueError(f"{value!r} needs quotes")
    return str(value)


def hydra_quoted(text: str) -> str:
    """Any text as a quoted value: on one line, and neither an interpolation nor a second setting.

    Backslashes count only before a quote and at the end, where they are doubled.
    """
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    doubled = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), line)
    return "'" + doubled.replace("${", "\\${") + "'"
