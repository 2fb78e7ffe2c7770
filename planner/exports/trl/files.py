"""The two files of a TRL launch, as its users write them: accelerate's, and the trainer's."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from automap.planner.exports.launch import LaunchSetting
from automap.planner.exports.lines import Value, need_type
from automap.planner.exports.script import comment
from automap.planner.exports.zero import STAGES
from automap.planner.frameworks.description import Setting

ACCELERATE, SERVER = "accelerate.", "vllm-serve."
"""What keys of accelerate's file and of the server begin with."""
ACCELERATE_FILE, TRAINER_FILE = "accelerate.yaml", "trainer.yaml"
_OF_SECTION: Mapping[str, tuple[str, ...]] = {
    # Without it accelerate starts pdsh on a list of hosts, from every node.
    "deepspeed_config": ("deepspeed_multinode_launcher: standard",),
    # Without the first all layers are one unit, whose weights are gathered at once.
    "fsdp_config": (
        "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "fsdp_cpu_ram_efficient_loading: true",
        "fsdp_state_dict_type: FULL_STATE_DICT",
    ),
}
"""Section of accelerate's file → what a plan does not decide, and a run needs."""
_OF_STAGE_3 = ("zero3_init_flag: true", "zero3_save_16bit_model: true")
"""Weights are sharded as they are loaded, and saved whole."""
_WORD = re.compile(r"[A-Za-z_][\w.\-/]*")
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off"})
"""Words that YAML takes for other than words."""


def written(value: Value, setting: Setting) -> str:
    """A value as TRL's and accelerate's files and commands read it.

    Raises:
        ValueError: it is of another type than the setting.
    """
    if value is None:
        return "None"
    need_type(value, setting)
    return str(value)


def accelerate_file(settings: Iterable[LaunchSetting], *, title: str) -> str:
    """What accelerate's command reads: sections where keys have them."""
    lines = [*comment(title), "compute_environment: LOCAL_MACHINE"]
    section = because = ""
    for each in _of(settings, ACCELERATE):
        name = each.key.removeprefix(ACCELERATE)
        own, dot, last = name.rpartition(".")
        if own != section and dot:
            lines.append(f"{own}:")
        section, indent = own, "  " if dot else ""
        if each.because != because:
            lines += comment(each.because, first=f"{indent}# ", further=f"{indent}#   ")
            because = each.because
        lines.append(f"{indent}{last}: {_yaml(each.value)}")
    # As TRL's own files of this kind have it.
    beside = _OF_STAGE_3 if f"  zero_stage: {STAGES['full']}" in lines else ()
    lines += [f"  {each}" for each in (*_OF_SECTION.get(section, ()), *beside)]
    lines += ["main_training_function: main", "rdzv_backend: static", "same_network: true"]
    return "\n".join(_top_first(lines)) + "\n"


def trainer_file(settings: Iterable[LaunchSetting], *, title: str) -> str:
    """What TRL's script reads: its arguments without their dashes."""
    lines, because = comment(title), ""
    for each in _of(settings, "--"):
        if each.because != because:
            lines += comment(each.because, first="# ", further="#   ")
            because = each.because
        lines.append(f"{each.key.removeprefix('--')}: {_yaml(each.value)}")
    return "\n".join(lines) + "\n"


def _of(settings: Iterable[LaunchSetting], prefix: str) -> Iterator[LaunchSetting]:
    """Settings of one place that are said, but for what is asked for, which the command has."""
    for each in settings:
        if each.key.startswith(prefix) and not each.placeholder and each.value != "None":
            yield each


def _top_first(lines: list[str]) -> list[str]:
    """Sections last: a key after one would be of it."""
    start = next((n for n, line in enumerate(lines) if re.fullmatch(r"\w+:", line)), len(lines))
    end = start + 1
    while end < len(lines) and lines[end].startswith("  "):
        end += 1
    return [*lines[:start], *lines[end:], *lines[start:end]]


def _yaml(value: str) -> str:
    if value in ("True", "False"):
        return value.lower()
    if _WORD.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    try:
        float(value)
    except ValueError:
        return json.dumps(value)
    return value
