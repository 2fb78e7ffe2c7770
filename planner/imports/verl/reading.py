"""Files of a verl launch to a job and a placement."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from automap.planner.errors import NotImportableError, Reason, SpecError
from automap.planner.exports.verl.hydra import hydra_quoted
from automap.planner.exports.verl.script import QUOTED
from automap.planner.frameworks.description import Framework
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import Answers, Imported, LaunchFile, Remark, Whereabouts
from automap.planner.imports.shell.expansion import Expander
from automap.planner.imports.shell.interpreter import Interpreter
from automap.planner.imports.shell.parser import parse
from automap.planner.imports.shell.syntax import ShellError, Simple, Word
from automap.planner.imports.shell.walk import Started, Walk
from automap.planner.imports.verl.entries import (
    ENTRIES,
    entry_named,
    in_trainers_words,
    read_names,
)
from automap.planner.imports.keys import classify, renamed, values_of
from automap.planner.imports.verl.overrides import (
    OWN_CONFIGS,
    entry_of,
    jobs_of,
    of_command,
    of_configs,
)
from automap.planner.imports.placing import placement_of
from automap.planner.imports.verl.pools import node_of, pools_of
from automap.planner.imports.settings import Settings
from automap.planner.imports.verl.workload import spec_of
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.spec import JobSpec
from automap.planner.targets.tables import TARGETS

MAX_LISTED = 10


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides = _overrides(files, answers, framework)
    renamed(overrides, framework)
    _take(answers.values, overrides)
    renamed(overrides, framework)
    entry = entry_named(overrides.entry or framework.entry, framework)
    if entry is not None:
        in_trainers_words(entry, overrides)
    settings = Settings(framework, overrides, answers.values, reasons=list(overrides.reasons))
    settings.engine = _engine(settings)
    pools = pools_of(settings, node)
    try:
        spec = spec_of(settings, answers, pools, node)
        job = _resolved(settings, spec)
        placement, cache = placement_of(settings, job, pools)
    except (ValidationError, SpecError):
        if settings.reasons:
            raise NotImportableError(framework.target, settings.reasons) from None
        raise
    if settings.reasons:
        raise NotImportableError(framework.target, settings.reasons)
    _assume_hardware(settings, job)
    classified = classify(settings, () if entry is None else entry.own)
    return Imported(
        target=framework.target,
        entry=overrides.entry,
        file=overrides.file,
        line=overrides.line,
        spec=job.spec,
        placement=placement,
        cache_bytes=cache,
        settings=classified,
        remarks=[*overrides.remarks, *settings.remarks],
        values=values_of(settings),
        whereabouts=Whereabouts(
            overrides.end,
            {
                key: (given.file, *given.place)
                for key, given in overrides.given.items()
                if given.place is not None
            },
        ),
    )


def started(files: Sequence[LaunchFile], answers: Answers) -> list[list[str]]:
    """Every command that the scripts start, by its words, with what is unknown by its name."""
    texts = {each.name: each.text for each in files if each.text}
    found = []
    for name in texts:
        reading = Interpreter(texts, answers.values, _printed).read(name)
        found += [[word.shown for word in each.words] for each in reading.commands]
    return found


def _resolved(settings: Settings, spec: JobSpec) -> Job:
    """The job, inside the framework where its tables have all of it."""
    name = settings.framework.target
    inside = spec.search.model_copy(update={"target": name})
    table = next((each for each in TARGETS.values() if each.name == name), None)
    if table is not None and (table.algorithms is None or spec.algorithm in table.algorithms):
        try:
            return resolve(spec.model_copy(update={"search": inside}))
        except SpecError as error:
            settings.assume(f"the job is priced outside {name}: {error.message}")
    return resolve(spec)


def _engine(settings: Settings) -> str:
    named = settings.text("engine")
    names = settings.framework.engine_names
    if named in names:
        return names[named]
    settings.refuse(f"{settings.where('engine')} is {named[:40]!r}", f"known: {', '.join(names)}")
    return "fsdp"


def _assume_hardware(settings: Settings, job: Job) -> None:
    pool = job.pools[0]
    settings.assume(
        f"nodes of {pool.gpus_per_node} {pool.gpu.name}, with the catalogue's links and host memory"
    )
    for line in settings.framework.assumptions:
        settings.assume(line)


def _take(values: Mapping[str, str], overrides: Overrides) -> None:
    """Set the keys that the user gave: they win over what the files say."""
    for name, value in values.items():
        if "." in name or name == "model_engine":
            overrides.set(Given(name, value, "--set", 0), over=True)


def _overrides(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Overrides:
    """The overrides of the job that the files start."""
    configs = {_stem(each.name): each for each in files if not each.text}
    scripts = [each for each in files if each.text]
    if not scripts:
        if not configs:
            reason = Reason(summary="no file is named", remedy="name the script that starts it")
            raise NotImportableError(framework.target, [reason])
        return of_configs(_stem(files[0].name), configs, framework)
    try:
        jobs, remarks = _jobs(scripts, answers)
    except ShellError as error:
        summary = f"{scripts[0].name}: {error}"
        remedy = "what bash itself would not read is not read here: bash -n FILE"
        raise NotImportableError(
            framework.target, [Reason(summary=summary, remedy=remedy)]
        ) from None
    command, place = _chosen(jobs, remarks, scripts, answers, framework)
    entry = entry_named(entry_of(command, place), framework)
    assert entry is not None, "it is one that is read"
    own = {entry.config: {}, **entry.engines} if entry in ENTRIES else OWN_CONFIGS
    own = {name: {**entry.defaults, **sets} for name, sets in own.items()}
    found = of_command(command, place, configs, framework, config=entry.config, own=own)
    found.entry = entry.names[0] if entry in ENTRIES else ""
    found.remarks[:0] = remarks
    for line in command.open_lines:
        told = f"whether the condition in line {line} holds is not known; it is taken to"
        found.remarks.append(Remark(kind="not read", text=told, file=command.source, line=line))
    return found


def _jobs(
    scripts: Sequence[LaunchFile], answers: Answers
) -> tuple[list[tuple[Started, int]], list[Remark]]:
    """What the scripts start; one that another one reads is not read twice."""
    texts = {each.name: each.text for each in scripts}
    jobs: list[tuple[Started, int]] = []
    remarks: list[Remark] = []
    for script in scripts:
        reading = Interpreter(texts, answers.values, _printed).read(script.name)
        found = jobs_of(reading)
        if not found and len(scripts) > 1:
            continue
        jobs += found
        if not found and reading.ended is not None:
            file, line = reading.ended
            remarks.append(
                Remark(kind="not read", text="the script ends here", file=file, line=line)
            )
        for file, line, what in reading.remarks:
            remarks.append(Remark(kind="not read", text=what, file=file, line=line))
        for line in dict.fromkeys(reading.passed_on):
            told = "the script's own arguments are taken to be none"
            remarks.append(Remark(kind="assumed", text=told, file=script.name, line=line))
        unset = [name for name in reading.unset if name not in answers.values]
        if unset:
            told = f"variables that the script does not set are not set outside: {', '.join(unset)}"
            remarks.append(Remark(kind="assumed", text=told, file=script.name))
    return jobs, remarks


def _chosen(
    jobs: Sequence[tuple[Started, int]],
    remarks: Sequence[Remark],
    scripts: Sequence[LaunchFile],
    answers: Answers,
    framework: Framework,
) -> tuple[Started, int]:
    """The job that is meant.

    Raises:
        NotImportableError: there is none, or several, or it is of another trainer.
    """
    names = ", ".join(each.name for each in scripts)
    if not jobs:
        remedy = f"name the script with python3 -m {framework.entry}, or its configuration (.yaml)"
        reasons = [Reason(summary=f"{names}: no command starts {framework.entry}", remedy=remedy)]
        reasons += [
            Reason(summary=f"{each.file} line {each.line}: {each.text}")
            for each in remarks
            if each.kind == "not read"
        ]
        raise NotImportableError(framework.target, reasons)
    number = answers.job or (1 if len(jobs) == 1 else 0)
    if not 1 <= number <= len(jobs):
        words = [{word.shown for word in job.words} for job, _ in jobs]
        listed = []
        for i, (job, _) in enumerate(jobs[:MAX_LISTED]):
            own = [each.shown for each in job.words if each.shown not in words[i - 1]]
            with_own = f" with {own[0][:60]}" if own and len(jobs) > 1 else ""
            listed.append(f"{i + 1}: line {job.line}{with_own}")
        summary = f"{names}: {len(jobs)} jobs are started ({', '.join(listed)})"
        reason = Reason(summary=summary, remedy=f"say which with --job 1 to {len(jobs)}")
        raise NotImportableError(framework.target, [reason])
    command, place = jobs[number - 1]
    entry = entry_of(command, place)
    if entry_named(entry, framework) is None:
        summary = f"line {command.line} starts {entry[:80]}, which is not read"
        reason = Reason(summary=summary, remedy=f"known: {', '.join(read_names(framework))}")
        raise NotImportableError(framework.target, [reason])
    return command, place


def _printed(text: str, interpreter: Walk, expander: Expander) -> str | None:
    """What a command substitution prints, of the one that exports write: a quoted value."""
    if not text.startswith("quoted ") or interpreter.reading.texts.get("quoted") != QUOTED:
        return None
    try:
        [command] = parse(text).commands
    except (ShellError, ValueError):
        return None
    if not isinstance(command, Simple) or len(command.words) != 2:
        return None
    word = command.words[1]
    value = expander.one(word).text if isinstance(word, Word) else None
    return None if value is None else hydra_quoted(value)


def _stem(name: str) -> str:
    """The name of a configuration: its file's, without the ending."""
    return name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
