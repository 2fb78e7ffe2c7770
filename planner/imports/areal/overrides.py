"""The keys of one AReaL job: of its command, of its configurations, and which one counts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from automap.planner.errors import NotImportableError, Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.commands import Dialect, job_of
from automap.planner.imports.configurations import compose, override
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Reading, Started

_RUNNERS = ("python", "uv", "torchrun")
_VALUED = ("--extra", "--group", "--with", "--python", "-p", "--env-file", "--project")
"""Options of uv that are followed by a value."""
_OTHERS = ("run_grpo", "run_ppo", "run_sft", "run_dpo", "run_rm", "run_distillation", "run_eval")
"""How programs of NeMo-RL begin, which are started with a configuration as well."""
_OLD = "areal.launcher."
"""Launchers of versions before their move to areal.infra."""


def jobs_of(reading: Reading) -> list[tuple[Started, int]]:
    """Commands that start a program with a configuration, and the number of the program's word."""
    found = []
    for command in reading.commands:
        place = _program(command.words)
        if place is not None:
            found.append((command, place))
    return found


def _program(words: Sequence[Field]) -> int | None:
    shown = [word.shown for word in words]
    config = next((i for i, each in enumerate(shown) if each.partition("=")[0] == "--config"), 0)
    runs = module = False
    for place, each in enumerate(shown[:config]):
        name = each.rpartition("/")[2]
        if runs and not module and each != "-m" and not each.startswith("-"):
            launcher = place > 0 and shown[place - 1] == "-m"
            valued = shown[place - 1] in _VALUED
            if not launcher and not valued and name not in (*_RUNNERS, "run") and "=" not in name:
                return None if name.startswith(_OTHERS) else place
        runs = runs or name.rstrip(".0123456789") in _RUNNERS
    return None


DIALECT = Dialect(
    jobs_of,
    lambda text, walk, expander: None,
    "python3 PROGRAM --config FILE, or that configuration (.yaml)",
    sections=("actor", "rollout", "gconfig"),
)
"""How scripts start AReaL: by a program of one's own that makes a trainer ({})."""


def overrides_of(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Overrides:
    """The keys of the job that the files start.

    Raises:
        NotImportableError: there is no such job, or it is of an earlier version.
    """
    configs = {_stem(each.name): each for each in files if not each.text}
    scripts = [each for each in files if each.text]
    if not scripts:
        if not configs:
            reason = Reason(summary="no file is named", remedy="name its YAML, or its script")
            raise NotImportableError(framework.target, [reason])
        first = _stem(files[0].name)
        found = Overrides(configs[first].name, 1)
        compose(first, configs, found, framework, {}, line=1)
    else:
        (command, place), remarks = job_of(scripts, answers, framework, DIALECT)
        found = _of_command(command, place, configs, framework)
        found.remarks[:0] = remarks
    _need_version(found, framework)
    _expand(found)
    for key, given in found.given.items():
        if given.place is None:
            # Its configuration is typed: a key that the types lack ends the start in a file, too.
            found.given[key] = replace(given, must_exist=True)
    return found


def _of_command(
    command: Started, place: int, configs: Mapping[str, LaunchFile], framework: Framework
) -> Overrides:
    """The overrides of a command's arguments, over the configuration that it names."""
    found = Overrides(command.source, command.line, end=command.end)
    words, arguments, name = list[Field](), list(command.words[place + 1 :]), ""
    while arguments:
        word = arguments.pop(0)
        option, equals, value = word.shown.partition("=")
        if option != "--config":
            words.append(word)
        else:
            name = value if equals else arguments.pop(0).shown if arguments else ""
    stem = _stem(name.strip("'\""))
    if stem not in configs and len(configs) == 1 and ("$" in name or not name):
        # Which file it is only a machine knows, and one alone is named.
        [stem] = configs
    compose(stem, configs, found, framework, {}, line=command.line)
    for word in words:
        override(word, found, framework)
    old = [each.shown for each in command.words if each.shown.startswith(_OLD)]
    if old:
        summary = f"{command.source} line {command.line} starts {old[0]}, an earlier version's"
        remedy = f"write it for {framework.version}, which has areal.infra.launcher"
        found.reasons.append(Reason(summary=summary, remedy=remedy))
    return found


def _need_version(found: Overrides, framework: Framework) -> None:
    """Refuse a launch of an earlier version, which says all backends in one setting.

    Raises:
        NotImportableError: names the setting, and what took its place.
    """
    mode = found.given.get("allocation_mode")
    if mode is None or mode.value.strip("'\" ") in ("", "null") or "actor.backend" in found.given:
        return
    summary = (
        f"allocation_mode ({mode.file} line {mode.line}) is an earlier version's than "
        f"{framework.version}: {mode.value[:60]}"
    )
    now = framework.without_effect["allocation_mode"]
    reason = Reason(summary=summary, remedy=f"give {now}")
    raise NotImportableError(framework.target, [*found.reasons, reason])


def _expand(found: Overrides) -> None:
    """Put the keys of a section in place of a reference to it."""
    for key, given in list(found.given.items()):
        text = given.value.strip()
        if not (text.startswith("${") and text.endswith("}")) or text[2:-1] in found.given:
            continue
        section = text[2:-1] + "."
        for name, each in list(found.given.items()):
            own = f"{key}.{name.removeprefix(section)}"
            if name.startswith(section) and own not in found.given:
                at = replace(each, key=own, file=given.file, line=given.line, place=None)
                found.given[own] = at
                found.given.pop(key, None)


def take(values: Mapping[str, str], overrides: Overrides, framework: Framework) -> None:
    """Set the keys that the user gave: they win over what the files say."""
    known = {key for each in framework.settings for key in each.keys.values()}
    for name, value in values.items():
        if "." in name or name in known:
            overrides.set(Given(name, value, "--set", 0), over=True)


def _stem(name: str) -> str:
    """The name of a configuration: its file's, without the ending."""
    return name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
