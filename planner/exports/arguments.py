"""Values of a command's arguments: a word or several; of flags only whether they are there."""

import shlex

from automap.planner.exports.launch import LaunchSetting
from automap.planner.exports.lines import Value, need_type
from automap.planner.frameworks.description import Framework, Setting

ABSENT = ("None", "False")
"""Values of an argument that is left out: nothing, or a flag that is not set."""


def argument(value: Value, setting: Setting) -> str:
    """A value as the argument's type has it; several are separated by blanks.

    Raises:
        ValueError: it is of another type.
    """
    if value is None and setting.type != "flag":
        return "None"
    need_type(value, setting)
    return " ".join(value) if isinstance(value, list) else str(value)


def words(setting: LaunchSetting, framework: Framework) -> str:
    """An argument as the shell reads it; a text that people gave cannot become another one."""
    kinds = {s.type for s in framework.settings if setting.key in s.keys.values()}
    # Beside those that are described stands what no plan decides: numbers, words, and switches.
    described = next(iter(kinds), "word")
    if setting.placeholder:
        return f'{setting.key}="${setting.value}"'
    if described == "flag" or (not kinds and setting.value == "True"):
        return setting.key
    found = setting.value.split() if described == "numbers" else [setting.value]
    return " ".join([setting.key, *map(shlex.quote, found)])
