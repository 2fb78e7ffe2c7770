"""The overrides of one job: of which command, of which configurations, and which one counts."""

import re
from collections.abc import Mapping, Sequence

from automap.planner.frameworks.description import Framework
from automap.planner.imports.configurations import compose, override
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import LaunchFile
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Started

OWN_CONFIGS: Mapping[str, Mapping[str, str]] = {
    "ppo_trainer": {},
    "ppo_megatron_trainer": {"model_engine": "megatron"},
}
"""verl's own configurations by name → what they set of what is described."""
_MAIN = re.compile(r"(^|[./])(async_)?main_\w+(\.py)?$|fully_async_main(\.py)?$")
_OTHERS = re.compile(r"skyrl|(^|[./])examples[./]train[./]|(^|[./])main_(base|fully_async)(\.py)?$")
"""Programs of another framework that has such names."""


def program_in(words: Sequence[Field]) -> int | None:
    """The number of the word that names a Python module or file that trains."""
    for place, word in enumerate(words):
        text = word.text or ""
        if _OTHERS.search(text):
            continue
        is_python = re.fullmatch(r"(.*/)?(python[0-9.]*|torchrun)", words[place - 1].text or "")
        if place >= 2 and words[place - 1].text == "-m" and _MAIN.search(text):
            return place
        if place and is_python and text.endswith(".py") and _MAIN.search(text):
            return place
    return None


def entry_of(command: Started, place: int) -> str:
    """The module that a command starts, by its dotted name."""
    text = command.words[place].text or ""
    return text.removesuffix(".py").replace("/", ".") if text.endswith(".py") else text


def of_command(
    command: Started,
    place: int,
    configs: Mapping[str, LaunchFile],
    framework: Framework,
    *,
    config: str = "ppo_trainer",
    own: Mapping[str, Mapping[str, str]] = OWN_CONFIGS,
) -> Overrides:
    """The overrides of a command's arguments, over the configuration that it names.

    Args:
        command: What the script starts.
        place: The number of the word that names the program.
        configs: Configurations among the files, by name.
        framework: What the launch is for.
        config: The configuration that the program reads where none is named.
        own: Configurations that come with the program → what they set.
    """
    found = Overrides(command.source, command.line, end=command.end)
    name, words = config, list[Field]()
    arguments = list(command.words[place + 1 :])
    while arguments:
        word = arguments.pop(0)
        option, equals, value = word.shown.partition("=")
        if option not in ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd"):
            words.append(word)
            continue
        if not equals:
            value = arguments.pop(0).shown if arguments else ""
        if option in ("--config-name", "-cn"):
            name = value.strip("'\"").removesuffix(".yaml")
    if name in own and name not in configs:
        file, line = (found.file, command.line) if name in OWN_CONFIGS else ("", 0)
        for key, value in own[name].items():
            found.set(Given(key, value, file, line), over=True)
    else:
        compose(name, configs, found, framework, OWN_CONFIGS, line=command.line)
    for word in words:
        override(word, found, framework)
    return found


def of_configs(first: str, configs: Mapping[str, LaunchFile], framework: Framework) -> Overrides:
    """The overrides of a configuration by itself."""
    found = Overrides(configs[first].name, 1)
    compose(first, configs, found, framework, OWN_CONFIGS, line=1)
    return found
