"""Which lines of a launch to change, so that it says what an export would."""

from collections.abc import Mapping, Sequence

from automap.planner.exports.arguments import ABSENT
from automap.planner.exports.launch import LaunchSetting
from automap.planner.frameworks.description import Framework
from automap.planner.imports.launch import Imported, LineChange
from automap.planner.imports.shell.edits import is_argument
from automap.planner.imports.values import Value, read_argument, read_value


def lines_to(
    imported: Imported, wanted: Sequence[LaunchSetting], framework: Framework
) -> list[LineChange]:
    """The lines that make a launch read these settings; none for those that it reads already.

    A key that takes the value of another one comes after it, and needs a line only where it is
    to differ from that.
    """
    written = {each.key: each for each in imported.settings}
    follows = {
        each.key(role).lstrip("+"): key
        for each in framework.settings
        for role, key in each.follows.items()
    }
    found: dict[str, LineChange] = {}
    added = "+" if framework.adds_keys else ""
    for setting in sorted(wanted, key=lambda each: each.key.lstrip("+") in follows):
        name = setting.key.lstrip("+")
        if _reads(name, found, imported, follows) == value_of(name, setting.value):
            continue
        at = written.get(name)
        if at is None and is_left_out(name, setting.value, framework):
            continue
        found[name] = LineChange(
            key=name if at is not None else added + setting.key,
            before=None if at is None else at.value,
            after=setting.value,
            file="" if at is None else at.file,
            line=0 if at is None else at.line,
        )
    return list(found.values())


def is_left_out(key: str, value: str, framework: Framework) -> bool:
    """Whether a setting is an argument that is not given; a switch that is off is said."""
    if not is_argument(key) or value not in ABSENT:
        return False
    return value == "None" or not framework.is_switch(key)


def obsolete(
    imported: Imported, wanted: Sequence[LaunchSetting], framework: Framework
) -> list[str]:
    """Keys of the launch that the framework lacks once its engine is the other one."""
    if not framework.engine_names:
        return []
    key = framework.setting("engine").key().lstrip("+")
    engine = next((each.value for each in wanted if each.key.lstrip("+") == key), None)
    before = imported.values.get(key)
    if engine is None or before == engine:
        return []
    old = framework.engine_names[str(before)]
    return [each.key for each in imported.settings if _of_one(each.key, old, framework)]


def _of_one(key: str, engine: str, framework: Framework) -> bool:
    """Whether a key is one that only this kind of engine has."""
    if any(mark in key for mark in framework.engine_keys[engine]):
        return True
    engines = {
        setting.engine
        for setting in framework.settings
        for each in setting.keys.values()
        if each.lstrip("+") == key
    }
    # The section of the model is the same for all engines.
    return engines == {engine} and ".model." not in key


def _reads(
    name: str,
    changed: Mapping[str, LineChange],
    imported: Imported,
    follows: Mapping[str, str],
) -> Value:
    """What the framework reads for a key once the lines are changed."""
    if name in changed:
        return value_of(name, changed[name].after)
    if name in follows and all(each.key != name for each in imported.settings):
        return _reads(follows[name], changed, imported, follows)
    found: Value = imported.values.get(name)
    return found


def value_of(name: str, text: str) -> Value:
    """What a framework reads for the text of a setting of that name."""
    return read_argument(text) if is_argument(name) else read_value(text)
