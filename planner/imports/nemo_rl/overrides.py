"""The keys of one NeMo-RL job: of its command, of its configurations, and which one counts."""

import re
from collections.abc import Sequence

from automap.planner.errors import NotImportableError, Reason
from automap.planner.exports.nemo_rl.recipe import BASE
from automap.planner.frameworks.description import Framework
from automap.planner.imports.commands import Dialect, job_of
from automap.planner.imports.configurations import (
    Own,
    compose,
    configurations,
    of_command,
    stem,
)
from automap.planner.imports.given import Overrides
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.imports.shell.values import Field

OWN: Own = {BASE.removesuffix(".yaml"): {}}
"""NeMo-RL's own configuration, whose values are the described defaults."""
_PROGRAM = re.compile(r"run_(grpo|ppo|sft|dpo|rm|distillation|eval)\w*\.py")
_READ = re.compile(r"run_grpo\w*\.py")
_RUNNERS = ("python", "uv", "torchrun")


def _program(words: Sequence[Field]) -> int | None:
    runs = False
    for place, word in enumerate(words):
        name = word.shown.rpartition("/")[2]
        if runs and _PROGRAM.fullmatch(name):
            return place
        runs = runs or name.rstrip(".0123456789") in _RUNNERS
    return None


DIALECT = Dialect(
    _program,
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
    configs = configurations(files)
    scripts = [each for each in files if each.text]
    if not scripts:
        if not configs:
            reason = Reason(summary="no file is named", remedy="name its recipe, or its script")
            raise NotImportableError(framework.target, [reason])
        first = stem(files[0].name)
        found = Overrides(configs[first].name, 1)
        compose(first, configs, found, framework, OWN, line=1)
        return found
    (command, place), remarks = job_of(scripts, answers, framework, DIALECT)
    program = command.words[place].shown.rpartition("/")[2]
    if not _READ.fullmatch(program):
        summary = f"line {command.line} starts {program[:80]}, which is not read"
        reason = Reason(summary=summary, remedy=f"known: {framework.entry}")
        raise NotImportableError(framework.target, [reason])
    found = of_command(command, place, configs, framework, OWN, default=BASE)
    found.remarks[:0] = remarks
    return found
