"""Files of a verl launch to a job and a placement."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from automap.planner.errors import NotImportableError, Reason
from automap.planner.exports.verl.hydra import hydra_quoted
from automap.planner.exports.verl.script import QUOTED
from automap.planner.frameworks.description import Framework
from automap.planner.imports.commands import Dialect, job_of, prints
from automap.planner.imports.configurations import entries_of
from automap.planner.imports.finishing import imported, reasons_first
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.keys import renamed, respell
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.imports.layouts import engine_named
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import node_of
from automap.planner.imports.resolving import resolved
from automap.planner.imports.settings import Settings
from automap.planner.imports.verl.entries import (
    ENTRIES,
    entry_named,
    in_trainers_words,
    read_names,
)
from automap.planner.imports.verl.overrides import (
    OWN_CONFIGS,
    entry_of,
    jobs_of,
    of_command,
    of_configs,
)
from automap.planner.imports.verl.pools import pools_of
from automap.planner.imports.verl.workload import spec_of
from automap.planner.job.job import Job

OF_REFERENCE = ("actor_rollout_ref.ref.fsdp_config.*", "actor_rollout_ref.ref.megatron.*")
"""Keys of the reference's own engine, as patterns."""


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides = _overrides(files, answers, framework)
    respell(overrides, answers.respelt)
    renamed(overrides, framework)
    _take(answers.values, overrides, framework)
    renamed(overrides, framework)
    entry = entry_named(overrides.entry or framework.entry, framework)
    if entry is not None:
        in_trainers_words(entry, overrides)
    settings = Settings(framework, overrides, answers.values, reasons=list(overrides.reasons))
    settings.engine = engine_named(settings)
    pools = pools_of(settings, node)
    with reasons_first(settings):
        spec = spec_of(settings, answers, pools, node)
        job = resolved(settings, spec)
        placed = placement_of(settings, job, pools)
    own = (() if entry is None else entry.own) + _without_engine(settings, job)
    return imported(settings, job, placed, entry=overrides.entry, own=own)


def _without_engine(settings: Settings, job: Job) -> tuple[str, ...]:
    """Keys, as patterns, of the reference's engine where it has none, which is noted."""
    if job.models["actor"].lora_rank is None:
        return ()
    for key, given in settings.overrides.given.items():
        if key not in settings.decides and any(fnmatchcase(key, each) for each in OF_REFERENCE):
            told = f"{key} has no effect: with LoRA the reference is the actor without its adapters"
            settings.note("without effect", told, given)
    return OF_REFERENCE


def _take(values: Mapping[str, str], overrides: Overrides, framework: Framework) -> None:
    """Set the keys that the user gave: they win over what the files say."""
    for given, value in values.items():
        name = given.lstrip("+")  # as Hydra has keys that a configuration lacks
        if "." in name or name == "model_engine":
            whole = Given(name, value, "--set", 0)
            entries = entries_of(whole, framework)
            for each in [whole] if entries is None else entries:
                overrides.set(each, over=True)


def _overrides(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Overrides:
    """The overrides of the job that the files start."""
    configs = {_stem(each.name): each for each in files if not each.text}
    scripts = [each for each in files if each.text]
    if not scripts:
        if not configs:
            reason = Reason(summary="no file is named", remedy="name the script that starts it")
            raise NotImportableError(framework.target, [reason])
        return of_configs(_stem(files[0].name), configs, framework)
    (command, place), remarks = job_of(scripts, answers, framework, DIALECT)
    name = entry_of(command, place)
    entry = entry_named(name, framework)
    if entry is None:
        summary = f"line {command.line} starts {name[:80]}, which is not read"
        reason = Reason(summary=summary, remedy=f"known: {', '.join(read_names(framework))}")
        raise NotImportableError(framework.target, [reason])
    own = {entry.config: {}, **entry.engines} if entry in ENTRIES else OWN_CONFIGS
    own = {name: {**entry.defaults, **sets} for name, sets in own.items()}
    found = of_command(command, place, configs, framework, config=entry.config, own=own)
    found.entry = entry.names[0] if entry in ENTRIES else ""
    found.remarks[:0] = remarks
    return found


def _stem(name: str) -> str:
    """The name of a configuration: its file's, without the ending."""
    return name.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")


DIALECT = Dialect(
    jobs_of,
    prints(QUOTED, hydra_quoted),
    "python3 -m {}, or its configuration (.yaml)",
    sections=("actor_rollout_ref",),
    bases=("ppo_trainer", "ppo_megatron_trainer"),
)
"""How scripts start verl."""
