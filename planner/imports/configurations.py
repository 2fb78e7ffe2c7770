"""Overrides of a command's words, and configurations that inherit from one another."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from automap.planner.errors import Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import LaunchFile
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Started
from automap.planner.imports.values import read_dictionary

Own = Mapping[str, Mapping[str, str]]
"""A framework's own configurations by name → what they set beside the described defaults."""
MAX_CONFIGS = 50
MAX_KEYS = 20_000
MAX_COMPOSED = 200
"""Configurations that a launch inherits from, each as often as it does."""
_KEY = re.compile(r"[A-Za-z_][\w@/.\-]*")


def configurations(files: Iterable[LaunchFile]) -> dict[str, LaunchFile]:
    """Configurations among the files of a launch, by name."""
    return {stem(each.name): each for each in files if not each.text}


def stem(name: str) -> str:
    """The name of a configuration: its file's, without the ending."""
    return name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")


def of_command(
    command: Started,
    place: int,
    configs: Mapping[str, LaunchFile],
    framework: Framework,
    own: Own,
    *,
    default: str = "",
) -> Overrides:
    """The overrides of a command, over the configuration that its `--config` names.

    Args:
        command: What the script starts.
        place: The number of the word that names the program.
        configs: Configurations among the files, by name.
        framework: What the launch is for.
        own: Configurations that come with the framework.
        default: The configuration where none is named; empty: there is none.
    """
    found = Overrides(command.source, command.line, end=command.end)
    name, words, arguments = default, list[Field](), list(command.words[place + 1 :])
    while arguments:
        word = arguments.pop(0)
        option, equals, value = word.shown.partition("=")
        if option != "--config":
            words.append(word)
        else:
            name = value if equals else arguments.pop(0).shown if arguments else default
    named = stem(name.strip("'\""))
    is_known = named in configs or named in own
    if not is_known and len(configs) == 1 and ("$" in name or not name):
        # Which file it is only a machine knows, and one alone is named.
        [named] = configs
    compose(named, configs, found, framework, own, line=command.line)
    for word in words:
        override(word, found, framework)
    return found


def take(values: Mapping[str, str], overrides: Overrides, framework: Framework) -> None:
    """Set the keys that the user gave: they win over what the files say."""
    known = {key for each in framework.settings for key in each.keys.values()}
    for name, value in values.items():
        if "." in name or name in known:
            whole = Given(name, value, "--set", 0)
            entries = entries_of(whole, framework)
            for each in [whole] if entries is None else entries:
                overrides.set(each, over=True)


def override(word: Field, found: Overrides, framework: Framework) -> None:
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
        _drop_below(at.key, found)
        found.given.pop(at.key, None)
    elif not equals or not _KEY.fullmatch(at.key):
        found.remark("not read", f"{word.shown[:80]} is no key=value", at)
    else:
        entries = entries_of(at, framework)
        if entries is None:  # what a dictionary lacks of what was given before stays
            _drop_below(at.key, found)
        for each in [at] if entries is None else entries:
            found.set(each, over=found.given.get(each.key, each).file != each.file)


def entries_of(given: Given, framework: Framework) -> list[Given] | None:
    """The keys that a dictionary in one word gives; None: it is none, or of no described keys.

    Only a whole word can be written again, so none of them has a place.
    """
    if given.unknown is not None or not given.value.lstrip().startswith("{"):
        return None
    section = f"{given.key}."
    described = (each for setting in framework.settings for each in setting.keys.values())
    if not any(each.lstrip("+").startswith(section) for each in described):
        return None
    entries = read_dictionary(given.value)
    if entries is None:
        return None
    return [
        replace(given, key=section + name, value=value, place=None)
        for name, value in entries.items()
    ]


def _drop_below(key: str, found: Overrides) -> None:
    """Take back what was given of a section that is replaced, or not to be there."""
    for each in [each for each in found.given if each.startswith(f"{key}.")]:
        del found.given[each]


def compose(
    name: str,
    configs: Mapping[str, LaunchFile],
    found: Overrides,
    framework: Framework,
    own: Own,
    *,
    line: int,
    within: tuple[str, ...] = (),
) -> None:
    """A configuration and those that it inherits from, each over the ones before it."""
    if name in own and name not in configs:
        for key, value in own[name].items():
            found.set(Given(key, value, found.file, line), over=True)
        return
    file = configs.get(name)
    reason = _not_composed(name, file, found, framework, own, line=line, within=within)
    if file is None or reason is not None or not isinstance(file.document, dict):
        if reason is not None and reason not in found.reasons:
            found.reasons.append(reason)
        return
    document = file.document
    keys = {key: value for key, value in document.items() if key != "defaults"}
    parents = list(_parents(document.get("defaults"), file, found, framework))
    if "_self_" not in parents:
        parents.append("_self_")
    for parent in parents:
        if found.composed > MAX_COMPOSED:
            return
        if parent == "_self_":
            for given in _flattened(keys, file):
                found.set(given, over=True)
        else:
            at = file.lines.get(("defaults",), 1)
            compose(parent, configs, found, framework, own, line=at, within=(*within, name))


def _not_composed(
    name: str,
    file: LaunchFile | None,
    found: Overrides,
    framework: Framework,
    own: Own,
    *,
    line: int,
    within: tuple[str, ...],
) -> Reason | None:
    """Why a configuration cannot be taken; None: it can, and is counted."""
    if file is None:
        summary = f"the configuration {name[:80]!r} (line {line}) is not among the files"
        known = ", ".join(own)
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


def _parents(
    defaults: object, file: LaunchFile, found: Overrides, framework: Framework
) -> Iterator[str]:
    """Names of the configurations that one inherits from; groups of its own are its defaults."""
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
            found.remark(
                "not read", f"defaults: {str(entry)[:80]} is taken as {framework.name} has it", at
            )


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
