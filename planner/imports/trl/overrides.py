"""The settings of one TRL job: of its command, its files and its program, and which one counts."""

from collections.abc import Iterator, Mapping, Sequence

from automap.planner.errors import NotImportableError, Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.commands import job_of
from automap.planner.imports.configurations import configurations, stem
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Started
from automap.planner.imports.trl.accelerate import (
    PREFIX,
    SWITCHES,
    key_of,
    of_accelerate,
    of_torchrun,
    of_trainer,
    take_file,
)
from automap.planner.imports.trl.commands import DIALECT, launcher_of, servers_in
from automap.planner.imports.trl.programs import algorithm_in, is_program, settings_in

SERVER = "vllm-serve."
_SHORT = {"-tp": "tensor-parallel-size", "-dp": "data-parallel-size"}
_BOOLS = ("true", "false", "yes", "no", "y", "n", "t", "f", "1", "0")
_LISTS = ("texts", "numbers", "list")


def overrides_of(
    files: Sequence[LaunchFile], answers: Answers, framework: Framework, gpus_per_node: int
) -> tuple[Overrides, str]:
    """The settings of the job that the files start, and its algorithm.

    Raises:
        NotImportableError: there is no such job.
    """
    programs = [each for each in files if is_program(each) and algorithm_in(each)]
    scripts = [each for each in files if each.text and not is_program(each)]
    configs = configurations(files)
    if scripts:
        found, algorithm = _of_script(scripts, programs, configs, answers, framework, gpus_per_node)
    elif programs:
        found, algorithm = Overrides(programs[0].name, 1), algorithm_in(programs[0])
        settings_in(programs[0], found)
        for each in configs.values():
            take_file(each.name, configs, found, line=1)
    elif recipe := next((f for f in configs.values() if _is_recipe(f)), None):
        found, algorithm = Overrides(recipe.name, 1), _named(recipe.name)
        for each in configs.values():
            if each is not recipe:
                take_file(each.name, configs, found, line=1)
        at = Given("--config", recipe.name, recipe.name, 1)
        _take_config(at, configs, found, framework, own_accelerate=True)
        found.remark("assumed", f"trl {algorithm} --config {recipe.name} starts it", at)
    else:
        names = ", ".join(each.name for each in files) or "no file"
        remedy = "name the script that starts accelerate launch or trl grpo, or the program"
        reason = Reason(summary=f"{names}: nothing starts TRL", remedy=remedy)
        raise NotImportableError(framework.target, [reason])
    of_trainer(found)
    _take_server(scripts, answers, found)
    return found, algorithm


def _of_script(
    scripts: Sequence[LaunchFile],
    programs: Sequence[LaunchFile],
    configs: Mapping[str, LaunchFile],
    answers: Answers,
    framework: Framework,
    gpus_per_node: int,
) -> tuple[Overrides, str]:
    (command, place), remarks = job_of(scripts, answers, framework, DIALECT)
    found = Overrides(command.source, command.line, end=command.end)
    found.remarks[:0] = remarks
    program = command.words[place].shown
    own = [each for each in programs if each.name == program.rpartition("/")[2]] or programs[:1]
    for each in own:
        settings_in(each, found)
    launcher, start = launcher_of(command.words)
    before, after = command.words[start + 1 : place], command.words[place + 1 :]
    if launcher == "accelerate":
        of_accelerate(before, configs, found)
    elif launcher in ("torchrun", "deepspeed"):
        of_torchrun([command.words[start], *before], found, gpus_per_node)
    elif launcher == "python":
        found.set(Given(f"{PREFIX}num_processes", "1", command.source, command.line))
    _trainer(command, after, configs, found, framework, own_accelerate=launcher == "trl")
    named = algorithm_in(own[0]) if own else ""
    return found, named or _named(program)


def _named(program: str) -> str:
    """The algorithm that a name tells."""
    return "rloo" if "rloo" in program.lower() else "grpo"


def _is_recipe(file: LaunchFile) -> bool:
    """Whether a file has the trainer's arguments."""
    return isinstance(file.document, dict) and DIALECT.sections[0] in file.document


def _trainer(
    command: Started,
    words: Sequence[Field],
    configs: Mapping[str, LaunchFile],
    found: Overrides,
    framework: Framework,
    *,
    own_accelerate: bool,
) -> None:
    """The trainer's file and its arguments; `trl grpo` hands on those that are accelerate's."""
    given = list(_arguments(words, framework, found))
    for each in given:
        if each.key == "--config":
            _take_config(each, configs, found, framework, own_accelerate=own_accelerate)
    for each in given:
        if each.key == "--config":
            continue
        if own_accelerate and _is_accelerates(each.key, framework):
            if each.key == "--accelerate_config":
                take_file(each.value, configs, found, line=each.line)
                continue
            key, value = key_of(each.key), each.value
            if each.key in SWITCHES:
                key, value = f"{PREFIX}distributed_type", SWITCHES[each.key]
            found.set(Given(key, value, each.file, each.line, each.unknown), over=True)
            continue
        found.set(each, over=found.given.get(each.key, each).file != each.file)


def _is_accelerates(key: str, framework: Framework) -> bool:
    if key == "--accelerate_config" or key in SWITCHES:
        return True
    known = {k for s in framework.settings for k in s.keys.values()} | framework.others.keys()
    return key not in known and key_of(key) in known


def _take_config(
    at: Given,
    configs: Mapping[str, LaunchFile],
    found: Overrides,
    framework: Framework,
    *,
    own_accelerate: bool,
) -> None:
    file = configs.get(stem(at.value))
    if file is None or not isinstance(file.document, dict):
        summary = f"the trainer's file {at.value[:80]!r} (line {at.line}) is not among the files"
        found.reasons.append(Reason(summary=summary, remedy="name its file as well"))
        return
    for name, value in file.document.items():
        line, key = file.lines.get((str(name),), 0), f"--{name}"
        if name == "env":
            continue
        if own_accelerate and _is_accelerates(key, framework):
            if key == "--accelerate_config":
                take_file(str(value), configs, found, line=line)
                continue
            key = key_of(key)
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        found.set(Given(key, text, file.name, line), over=True)


def _arguments(words: Sequence[Field], framework: Framework, found: Overrides) -> Iterator[Given]:
    """The arguments of a trainer; a switch stands alone, or before True or False."""
    types = {key: each.type for each in framework.settings for key in each.keys.values()}
    types |= {key: each["type"] for key, each in framework.others.items()}
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.shown.partition("=")
        if not name.startswith("--"):
            why = "is not known" if word.unknown else "is the value of no argument"
            at = Given(name, "", word.source, word.line)
            found.remark("not read", f"{word.shown[:80]} {why}: it is not read", at)
            continue
        key = f"--{name[2:].replace('-', '_')}"
        if key not in types and key.startswith("--no_") and f"--{key[5:]}" in types:
            place = word.place
            yield Given(f"--{key[5:]}", "False", word.source, word.line, place=place)
            continue
        values = [] if equals else _values(types.get(key), left)
        unknown = word.unknown or next((each.unknown for each in values if each.unknown), None)
        text = value if equals else " ".join(each.shown for each in values) or "True"
        places = [each.place for each in (word, *values)]
        at_once = (places[0], places[-1])
        place = (
            (at_once[0][0], at_once[1][1])
            if at_once[0] is not None and at_once[1] is not None
            else None
        )
        yield Given(key, text, word.source, word.line, unknown, must_exist=True, place=place)


def _values(kind: str | None, left: list[Field]) -> list[Field]:
    """The words of an argument's value, taken off those that are left."""
    found = list[Field]()
    most = len(left) if kind in _LISTS else 1
    while left and len(found) < most and not left[0].shown.startswith("--"):
        if kind == "switch" and left[0].shown.lower() not in _BOOLS and not left[0].unknown:
            break
        found.append(left.pop(0))
    return found


def _take_server(scripts: Sequence[LaunchFile], answers: Answers, found: Overrides) -> None:
    """The arguments of a server that the scripts start."""
    nodes = found.given.get(f"{PREFIX}num_machines")
    servers = servers_in(scripts, answers, "1" if nodes is None else nodes.value)
    for command, place in servers[:1]:
        left = list(command.words[place + 1 :])
        while left:
            word = left.pop(0)
            name, equals, value = word.shown.partition("=")
            if not name.startswith("-"):
                continue
            key = _SHORT.get(name, name.lstrip("-").replace("_", "-"))
            key = key.removeprefix("vllm-") if key != "vllm-model-impl" else key
            unknown = word.unknown
            if not equals:
                has = left and not left[0].shown.startswith("--")
                after = left.pop(0) if has else None
                value = after.shown if after else "True"
                unknown = unknown or (after.unknown if after else None)
            if key != "model":
                at = Given(SERVER + key, value, word.source, word.line, unknown)
                found.set(at, over=True)
    if len(servers) > 1:
        told = f"{len(servers)} servers are started: the first one is read"
        found.remark("assumed", told, Given("", "", servers[0][0].source, servers[0][0].line))


def take(values: Mapping[str, str], found: Overrides, framework: Framework) -> None:
    """Set what the user gave, by the whole key, or of the trainer's without dashes."""
    known = {key for each in framework.settings for key in each.keys.values()}
    known |= framework.others.keys()
    for name, value in values.items():
        key = name if name in known or name.startswith("--") else f"--{name}"
        if key in known or name.startswith("--"):
            found.given.pop(key, None)
            if value != "None":
                found.set(Given(key, value, "--set", 0), over=True)
