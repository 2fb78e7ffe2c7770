"""The keys of one NeMo-RL job: of its command, of its configurations, and which one counts."""

import re
from collections.abc import Mapping, Sequence

from automap.planner.errors import NotImportableError, Reason
from automap.planner.exports.nemo_rl.recipe import BASE
from automap.planner.frameworks.description import Framework
from automap.planner.imports.commands import Dialect, job_of
from automap.planner.imports.configurations import Own, compose, override
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Reading, Started

OWN: Own = {BASE.removesuffix(".yaml"): {}}
"""NeMo-RL's own configuration, whose values are the described defaults."""
_PROGRAM = re.compile(r"run_(grpo|ppo|sft|dpo|rm|distillation|eval)\w*\.py")
_READ = re.compile(r"run_grpo\w*\.py")
_RUNNERS = ("python", "uv", "torchrun")


def jobs_of(reading: Reading) -> list[tuple[Started, int]]:
    """Commands that start NeMo-RL, and the number of the word that names the program."""
    found = []
    for command in reading.commands:
        place = _program(command.words)
        if place is not None:
            found.append((command, place))
    return found


def _program(words: Sequence[Field]) -> int | None:
    runs = False
    for place, word in enumerate(words):
        name = word.shown.rpartition("/")[2]
        if runs and _PROGRAM.fullmatch(name):
            return place
        runs = runs or name.rstrip(".0123456789") in _RUNNERS
    return None


DIALECT = Dialect(
    jobs_of,
    lambda text, walk, expander: None,
    "uv run {}, or its configuration (.yaml)",
    sections=("policy", "grpo"),
    bases=("grpo_math_",),
)
"""How scripts start NeMo-RL."""


def overrides_of(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Overrides:
    """The keys of the job that the files start.

    Raises:
        NotImportableError: there is no such job, or it is of a program that is not read.
    """
    configs = {_stem(each.name): each for each in files if not each.text}
    scripts = [each for each in files if each.text]
    if not scripts:
        if not configs:
            reason = Reason(summary="no file is named", remedy="name its recipe, or its script")
            raise NotImportableError(framework.target, [reason])
        first = _stem(files[0].name)
        found = Overrides(configs[first].name, 1)
        compose(first, configs, found, framework, OWN, line=1)
        return found
    (command, place), remarks = job_of(scripts, answers, framework, DIALECT)
    program = command.words[place].shown.rpartition("/")[2]
    if not _READ.fullmatch(program):
        summary = f"line {command.line} starts {program[:80]}, which is not read"
        reason = Reason(summary=summary, remedy=f"known: {framework.entry}")
        raise NotImportableError(framework.target, [reason])
    found = _of_command(command, place, configs, framework)
    found.remarks[:0] = remarks
    return found


def _of_command(
    command: Started, place: int, configs: Mapping[str, LaunchFile], framework: Framework
) -> Overrides:
    """The overrides of a command's arguments, over the configuration that it names."""
    found = Overrides(command.source, command.line, end=command.end)
    name, words, arguments = BASE, list[Field](), list(command.words[place + 1 :])
    while arguments:
        word = arguments.pop(0)
        option, equals, value = word.shown.partition("=")
        if option != "--config":
            words.append(word)
        else:
            name = value if equals else arguments.pop(0).shown if arguments else name
    stem = _stem(name.strip("'\""))
    if stem not in configs and stem not in OWN and "${" in name and len(configs) == 1:
        # Which file it is only a machine knows, and one alone is named.
        [stem] = configs
    compose(stem, configs, found, framework, OWN, line=command.line)
    for word in words:
        override(word, found, framework)
    return found


def take(values: Mapping[str, str], overrides: Overrides) -> None:
    """Set the keys that the user gave: they win over what the files say."""
    for name, value in values.items():
        if "." in name:
            overrides.set(Given(name, value, "--set", 0), over=True)


def _stem(name: str) -> str:
    """The name of a configuration: its file's, without the ending."""
    return name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
