"""Values of slime's arguments: one word each; of flags only whether they are there."""

from automap.planner.exports.lines import Value
from automap.planner.frameworks.description import Setting

ABSENT = ("None", "False")
"""Values of an argument that is left out: nothing, or a flag that is not set."""


def argument(value: Value, setting: Setting) -> str:
    """A value as the argument's type has it.

    Raises:
        ValueError: it is of another type.
    """
    kinds: dict[str, tuple[type, ...]] = {
        "flag": (bool,),
        "whole": (int,),
        "number": (int, float),
        "word": (str,),
        "text": (str,),
    }
    is_flag = isinstance(value, bool)
    if value is None and setting.type != "flag":
        return "None"
    if not isinstance(value, kinds[setting.type]) or is_flag != (setting.type == "flag"):
        raise ValueError(f"{setting.key()}: {value!r} is no {setting.type}")
    return str(value)
