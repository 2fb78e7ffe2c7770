"""Settings of a launch as they are collected, each looked up in the framework's description."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from automap.planner.exports.launch import LaunchSetting, Placeholder
from automap.planner.frameworks.description import JOB, Framework, Setting

Value = bool | int | float | str | list[str] | None
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_+]*")
_TYPES: dict[str, tuple[type, ...]] = {
    "flag": (bool,),
    "switch": (bool,),
    "whole": (int,),
    "number": (int, float),
    "numbers": (list,),
    "list": (list,),
    "word": (str,),
    "text": (str,),
}


def need_type(value: Value, setting: Setting) -> None:
    """Check a value's type.

    Raises:
        ValueError: it is of another type than the setting.
    """
    types = _TYPES[setting.type]
    if not isinstance(value, types) or isinstance(value, bool) != (bool in types):
        raise ValueError(f"{setting.key()}: {value!r} is no {setting.type}")


def plain(value: Value) -> str:
    """A value as Hydra and OmegaConf read it: null, True, numbers, lists, and plain words.

    Raises:
        ValueError: a word needs quotes, as names that people give do.
    """
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(plain, value))}]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        raise ValueError(f"{value!r} needs quotes")
    return str(value)


@dataclass(slots=True)
class Lines:
    """The settings so far, in order; one that several roles have in common is there once."""

    framework: Framework
    engine: str
    written: Callable[[Value, Setting], str]
    """How the framework reads a value."""
    quoted: Callable[[str], str]
    """How it reads a name that people gave, which may have any characters."""
    settings: list[LaunchSetting] = field(default_factory=list)
    placeholders: list[Placeholder] = field(default_factory=list)

    def add(self, decision: str, value: Value, because: str, *, role: str = JOB) -> None:
        """Set what the plan decides, and why.

        Raises:
            ValueError: it is set already, to another value.
        """
        setting = self._setting(decision, role)
        text, key = self.written(value, setting), setting.key(role)
        before = next((each.value for each in self.settings if each.key == key), None)
        if before not in (None, text):
            raise ValueError(f"{key} is {before} and {text}")
        if before is None:
            self.settings.append(LaunchSetting(key=key, value=text, because=because))

    def add_text(self, decision: str, text: str, because: str) -> None:
        """Set a name that people gave."""
        key = self._setting(decision, JOB).key()
        self.settings.append(LaunchSetting(key=key, value=self.quoted(text), because=because))

    def ask(self, decision: str, variable: str, what: str, *, role: str = JOB) -> None:
        """Leave a place for what no plan knows."""
        key = self._setting(decision, role).key(role)
        asked = LaunchSetting(key=key, value=variable, because=what, placeholder=True)
        self.settings.append(asked)
        self.placeholders.append(Placeholder(variable=variable, what=what))

    def _setting(self, decision: str, role: str) -> Setting:
        return self.framework.setting(decision, role=role, engine=self.engine)
