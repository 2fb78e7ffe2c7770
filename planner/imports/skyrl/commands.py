"""The commands that start SkyRL, and the overrides that they have."""

import re
from collections.abc import Sequence

from automap.planner.exports.skyrl.script import QUOTED
from automap.planner.exports.skyrl.values import quoted
from automap.planner.frameworks.description import Framework
from automap.planner.imports.commands import Dialect, prints
from automap.planner.imports.configurations import override
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Started

STALE, ONE_STEP = "main_fully_async", "main_async"
"""Ends of the names of programs whose rollouts are ahead: by so many iterations, and by one."""
EARLIER = "skyrl_train."
"""Begins the name of the package before this one."""
OTHERS = ("main_generate", "serve", "main_sft", "main_tinker")
"""Ends of the names of programs that train nothing by rewards."""
_PROGRAM = re.compile(
    r"(.*[./])?(skyrl(_train)?[./].*[./](main_\w+|serve)|main_(base|fully_async)"
    r"|(examples|integrations)[./](train[./])?.*[./]main_\w+)(\.py)?"
)
_VERL = re.compile(r"verl[./]|recipe[./]")


def _program(words: Sequence[Field]) -> int | None:
    return next((n for n, word in enumerate(words) if n and _is_program(word)), None)


def _is_program(word: Field) -> bool:
    name = word.shown
    return "=" not in name and not _VERL.search(name) and _PROGRAM.fullmatch(name) is not None


def module_of(command: Started, place: int) -> str:
    """The program by its dotted name."""
    return command.words[place].shown.removesuffix(".py").replace("/", ".")


def of_command(command: Started, place: int, framework: Framework) -> Overrides:
    """The overrides of a command; its own program lacks no key of SkyRL's."""
    found = Overrides(command.source, command.line, end=command.end)
    for word in command.words[place + 1 :]:
        if word.shown.startswith("+"):
            told = f"{word.shown[:80]}: it does not start with a + before a key"
            found.remark("does not fit", told, Given("", "", word.source, word.line))
        override(word, found, framework)
    module = module_of(command, place)
    found.entry = "" if module.endswith(framework.entry) else module.rpartition(".")[2]
    return found


DIALECT = Dialect(_program, "python3 -m {}", prints(QUOTED, quoted))
"""How scripts start SkyRL."""
