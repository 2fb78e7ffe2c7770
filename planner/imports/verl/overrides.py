"""The overrides of one job: of which command, of which configurations, and which one counts."""

import re
from collections.abc import Iterator, Mapping, Sequence

from automap.planner.errors import Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import LaunchFile
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Reading, Started

OWN_CONFIGS: Mapping[str, Mapping[str, str]] = {
    "ppo_trainer": {},
    "ppo_megatron_trainer": {"model_engine": "megatron"},
}
"""verl's own configurations by name → what they set of what is described."""
MAX_CONFIGS = 50
MAX_KEYS = 20_000
MAX_COMPOSED = 200
"""Configurations that a launch inherits from, each as often as it does."""
_KEY = re.compile(r"[A-Za-z_][\w@/.\-]*")
_MAIN = re.compile(r"(^|[./])(async_)?main_\w+(\.py)?$|fully_async_main(\.py)?$")


def jobs_of(reading: Reading) -> list[tuple[Started, int]]:
    """Commands that start a trainer, and the number of the word that names it."""
    found = []
    for command in reading.commands:
        place = _entry(command.words)
        if place is not None:
            found.append((command, place))
    return found


def _entry(words: Sequence[Field]) -> int | None:
    """The number of the word that names a Python module or file that trains."""
    for place, word in enumerate(words):
        text = word.text or ""
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
        _compose(name, configs, found, framework, line=command.line)
    for word in words:
        _override(word, found)
    return found


def of_configs(first: str, configs: Mapping[str, LaunchFile], framework: Framework) -> Overrides:
    """The overrides of a configuration by itself."""
    found = Overrides(configs[first].name, 1)
    _compose(first, configs, found, framework, line=1)
    return found


def _override(word: Field, found: Overrides) -> None:
    """One argument: key=value, with +, ++ or ~ before it."""
    head = word.parts[0] if word.parts and isinstance(word.parts[0], str) else ""
    key, equals, _ = head.partition("=")
    value = word.shown[len(key) + 1 :] if equals else ""
    is_known = not key.startswith("+")
    name = key.lstrip("+~")
    at = Given(name, value, word.source, word.line, word.unknown, is_known, word.place)
    if word.unknown is not None and not equals:
        text = f"{word.shown[:80]} is not known: what it sets is not read"
        found.remark("not read", text, at)
    elif key.startswith("~"):
        found.given.pop(at.key, None)
    elif not equals or not _KEY.fullmatch(at.key):
        found.remark("not read", f"{word.shown[:80]} is no key=value", at)
    else:
        found.set(at, over=found.given.get(at.key, at).file != at.file)


def _compose(
    name: str,
    configs: Mapping[str, LaunchFile],
    found: Overrides,
    framework: Framework,
    *,
    line: int,
    within: tuple[str, ...] = (),
) -> None:
    """A configuration and those that it inherits from, each over the ones before it."""
    if name in OWN_CONFIGS and name not in configs:
        for key, value in OWN_CONFIGS[name].items():
            found.set(Given(key, value, found.file, line), over=True)
        return
    file = configs.get(name)
    reason = _not_composed(name, file, found, framework, line=line, within=within)
    if file is None or reason is not None or not isinstance(file.document, dict):
        if reason is not None and reason not in found.reasons:
            found.reasons.append(reason)
        return
    document = file.document
    own = {key: value for key, value in document.items() if key != "defaults"}
    parents = list(_parents(document.get("defaults"), file, found))
    if "_self_" not in parents:
        parents.append("_self_")
    for parent in parents:
        if found.composed > MAX_COMPOSED:
            return
        if parent == "_self_":
            for given in _flattened(own, file):
                found.set(given, over=True)
        else:
            at = file.lines.get(("defaults",), 1)
            _compose(parent, configs, found, framework, line=at, within=(*within, name))


def _not_composed(
    name: str,
    file: LaunchFile | None,
    found: Overrides,
    framework: Framework,
    *,
    line: int,
    within: tuple[str, ...],
) -> Reason | None:
    """Why a configuration cannot be taken; None: it can, and is counted."""
    if file is None:
        summary = f"the configuration {name[:80]!r} (line {line}) is not among the files"
        known = ", ".join(OWN_CONFIGS)
        remedy = f"name its file as well; {framework.target}'s own are {known}"
        return Reason(summary=summary, remedy=remedy)
    if name in within or len(within) >= MAX_CONFIGS:
        chain = " -> ".join([*within[-5:], name])
        summary = f"{file.name}: configurations inherit in a circle: {chain}"
        return Reason(summary=summary, remedy="take one of them out of `defaults`")
    found.composed += 1
    if found.composed > MAX_COMPOSED:
        summary = f"{file.name}: more than {MAX_COMPOSED} configurations are inherited from"
        return Reason(summary=summary, remedy="name fewer in `defaults`")
    if not isinstance(file.document, dict):
        return Reason(summary=f"{file.name} holds no keys", remedy="give a mapping of keys")
    return None


def _parents(defaults: object, file: LaunchFile, found: Overrides) -> Iterator[str]:
    """Names of the configurations that one inherits from; groups of verl's own are its defaults."""
    if defaults is None:
        return
    entries = defaults if isinstance(defaults, list) else [defaults]
    for entry in entries[:MAX_CONFIGS]:
        if isinstance(entry, str):
            yield entry.rpartition("/")[2].removesuffix(".yaml")
            continue
        at = Given("defaults", "", file.name, file.lines.get(("defaults",), 1))
        if isinstance(entry, dict) and entry.get("model_engine") is not None:
            found.set(
                Given("model_engine", str(entry["model_engine"]), at.file, at.line), over=True
            )
        else:
            found.remark("not read", f"defaults: {str(entry)[:80]} is taken as verl has it", at)


def _flattened(document: Mapping[str, object], file: LaunchFile) -> Iterator[Given]:
    """Every value that is no mapping, by its dotted key; without recursion, as deep as it is."""
    pending: list[tuple[tuple[str, ...], object]] = [((), document)]
    seen = 0
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict) and value:
            pending += [((*path, str(key)), each) for key, each in reversed(list(value.items()))]
            continue
        seen += 1
        if seen > MAX_KEYS:
            return
        if path:
            line = file.lines.get(path, 0)
            yield Given(".".join(path), _written(value), file.name, line)


def _written(value: object) -> str:
    """A value of a configuration as an override would write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "True", False: "False"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, str) and re.search(r"[,\[\]{}'\"]|^\s|\s$|^$", value):
        if re.fullmatch(r"\$\{[^{}]*\}", value):
            return value
        doubled = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), value)
        return f"'{doubled}'"
    return str(value)
