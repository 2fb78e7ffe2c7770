"""The recipe of a NeMo-RL launch: its settings as the YAML that users write, over a named base."""

import json
import re
from collections.abc import Iterable, Iterator

from automap.planner.exports.launch import Launch, LaunchSetting
from automap.planner.exports.lines import Value
from automap.planner.exports.script import comment
from automap.planner.exports.subject import Subject
from automap.planner.frameworks.description import Setting

BASE = "grpo_math_1B.yaml"
"""NeMo-RL's own configuration, of examples/configs, that a recipe inherits from."""
RECIPE = "recipe.yaml"
_WORD = re.compile(r"[A-Za-z][\w.\-/]*")
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off"})
"""Words that YAML takes for other than words."""
_TYPES: dict[str, tuple[type, ...]] = {
    "flag": (bool,),
    "whole": (int,),
    "number": (int, float),
    "word": (str,),
    "text": (str,),
    "list": (list,),
}


def yaml_value(value: Value, setting: Setting) -> str:
    """A value as YAML and Hydra both read it.

    Raises:
        ValueError: it is of another type than the setting.
    """
    if value is None:
        return "null"
    is_flag = isinstance(value, bool)
    if not isinstance(value, _TYPES[setting.type]) or is_flag != (setting.type == "flag"):
        raise ValueError(f"{setting.key()}: {value!r} is no {setting.type}")
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_text, value))}]"
    return yaml_text(value) if isinstance(value, str) else str(value).lower()


def yaml_text(text: str) -> str:
    """A text as YAML has it: a word as it is, all else in quotes, and no reference to a key."""
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    return json.dumps(text).replace("${", "\\\\${")


def asked(setting: LaunchSetting) -> str:
    """The value of a placeholder: a variable of the environment, as a number where it is one."""
    variable = f"${{oc.env:{setting.value}}}"
    return f"${{oc.decode:{variable}}}" if setting.value == "KL_COEFFICIENT" else variable


def recipe_of(subject: Subject, launch: Launch) -> str:
    """The YAML; each setting follows the decision of the plan that it comes from."""
    target, name = launch.target, subject.plan.name
    lines = [
        *comment(f"{name}: a plan of Automap for {target}."),
        *comment(
            f"It lies in examples/configs, beside the configuration that it inherits from, and "
            f"is started by launch.sh, or by `uv run {subject.framework.entry} --config "
            f"examples/configs/{RECIPE}` with the variables of the environment that it names. "
            "What it leaves out (data, environment, learning rates, logger) is the base's."
        ),
        f"defaults: {BASE}",
        *_nested(launch.settings),
    ]
    return "\n".join(lines) + "\n"


def _nested(settings: Iterable[LaunchSetting]) -> Iterator[str]:
    """Settings as sections, each where its first key comes."""
    tree: dict[str, object] = {}
    for each in settings:
        *sections, last = each.key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})  # type: ignore[assignment]
        node[last] = each
    yield from _written(tree, "")


def _written(tree: dict[str, object], indent: str) -> Iterator[str]:
    because = ""
    for name, found in tree.items():
        if isinstance(found, dict):
            yield f"{indent}{name}:"
            yield from _written(found, indent + "  ")
            because = ""
        elif isinstance(found, LaunchSetting):
            if found.because != because:
                yield from comment(found.because, first=f"{indent}# ", further=f"{indent}#   ")
                because = found.because
            yield f"{indent}{name}: {asked(found) if found.placeholder else found.value}"
