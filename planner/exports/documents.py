"""Settings as a YAML document: values as YAML and Hydra read them, keys as sections."""

import json
import re
from collections.abc import Callable, Iterable, Iterator

from automap.planner.exports.launch import LaunchSetting
from automap.planner.exports.lines import Value, need_type
from automap.planner.exports.script import comment
from automap.planner.frameworks.description import Setting

_WORD = re.compile(r"[A-Za-z][\w.\-/]*")
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off"})
"""Words that YAML takes for other than words."""


def yaml_value(value: Value, setting: Setting) -> str:
    """A value as YAML and Hydra both read it.

    Raises:
        ValueError: it is of another type than the setting.
    """
    if value is None:
        return "null"
    need_type(value, setting)
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_text, value))}]"
    return yaml_text(value) if isinstance(value, str) else str(value).lower()


def yaml_text(text: str) -> str:
    """A text as YAML has it: a word as it is, all else in quotes, and no reference to a key."""
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    return json.dumps(text).replace("${", "\\\\${")


def nested(
    settings: Iterable[LaunchSetting], asked: Callable[[LaunchSetting], str]
) -> Iterator[str]:
    """Settings as sections, each where its first key comes; `asked` writes placeholders."""
    tree: dict[str, object] = {}
    for each in settings:
        *sections, last = each.key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})  # type: ignore[assignment]
        node[last] = each
    yield from _written(tree, "", asked)


def _written(
    tree: dict[str, object], indent: str, asked: Callable[[LaunchSetting], str]
) -> Iterator[str]:
    because = ""
    for name, found in tree.items():
        if isinstance(found, dict):
            yield f"{indent}{name}:"
            yield from _written(found, indent + "  ", asked)
            because = ""
        elif isinstance(found, LaunchSetting):
            if found.because != because:
                yield from comment(found.because, first=f"{indent}# ", further=f"{indent}#   ")
                because = found.because
            yield f"{indent}{name}: {asked(found) if found.placeholder else found.value}"
