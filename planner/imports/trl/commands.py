"""The commands that start TRL's trainers, and the vLLM server that one of them may generate by."""

import re
from collections.abc import Iterator, Mapping, Sequence

from automap.planner.imports.commands import Dialect
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.imports.shell.interpreter import Interpreter
from automap.planner.imports.shell.syntax import ShellError
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Started
from automap.planner.imports.trl.programs import algorithm_in, is_program

_NAMED = re.compile(r"(?:[\w\-]*_|[\w\-]*-)?(grpo|rloo)[\w\-]*\.py", re.IGNORECASE)
_OF_NEMO_RL = re.compile(r"run_grpo\w*\.py")
_MODULE = re.compile(r"trl\.scripts\.(?:grpo|rloo)")
_LAUNCHERS = ("accelerate", "torchrun", "deepspeed")
_PYTHON = re.compile(r"python[\d.]*")
MODULES = {"accelerate.commands.launch": "accelerate", "torch.distributed.run": "torchrun"}
"""Module → the launcher that it is."""
TRAINERS = ("grpo", "rloo")


def launcher_of(words: Sequence[Field]) -> tuple[str, int]:
    """(accelerate, torchrun, deepspeed, trl or python, the number of its word)."""
    for place, word in enumerate(words):
        name = word.shown.rpartition("/")[2]
        if name in _LAUNCHERS or name == "trl":
            return name, place
        if word.shown in MODULES:
            return MODULES[word.shown], place
    for place, word in enumerate(words):
        if _PYTHON.fullmatch(word.shown.rpartition("/")[2]):
            return "python", place
    return "", 0


def _program(words: Sequence[Field]) -> int | None:
    launcher, start = launcher_of(words)
    if launcher == "trl":
        after = words[start + 1].shown if start + 1 < len(words) else ""
        return start + 1 if after in TRAINERS else None
    for place in range(start + 1, len(words) if launcher else 0):
        name = words[place].shown.rpartition("/")[2]
        if _MODULE.fullmatch(name):
            return place
        if name.endswith(".py"):
            known = _NAMED.fullmatch(name) and not _OF_NEMO_RL.fullmatch(name)
            return place if launcher == "accelerate" or known else None
        if launcher == "python" and not name.startswith("-"):
            return None
    return None


DIALECT = Dialect(
    _program,
    "accelerate launch -m {}, or with trl grpo",
    sections=("num_generations",),
    programs=lambda file: is_program(file) and bool(algorithm_in(file)),
)
"""How scripts start TRL."""


def servers_in(
    scripts: Sequence[LaunchFile], answers: Answers, num_nodes: str
) -> list[tuple[Started, int]]:
    """Commands that start a vLLM server, and the number of the word before its arguments.

    Where the node does not that the script is read for, it is the one after those that train.
    """
    here = _servers(scripts, answers.values)
    return here or _servers(scripts, {**answers.values, "NODE_RANK": num_nodes})


def _servers(scripts: Sequence[LaunchFile], values: Mapping[str, str]) -> list[tuple[Started, int]]:
    texts, found = {each.name: each.text for each in scripts}, list[tuple[Started, int]]()
    for name in texts:
        try:
            reading = Interpreter(texts, values, DIALECT.printed).read(name)
        except ShellError:
            continue
        for command in reading.commands:
            found += [(command, place) for place in _server(command.words)]
    return found


def _server(words: Sequence[Field]) -> Iterator[int]:
    for place in range(1, len(words)):
        before, word = words[place - 1].shown.rpartition("/")[2], words[place].shown
        if (before, word) in (("trl", "vllm-serve"), ("vllm", "serve")):
            yield place
            return
