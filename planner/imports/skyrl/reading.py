"""Files of a SkyRL launch to a job and a placement."""

from collections.abc import Sequence

from automap.planner.errors import NotImportableError, Reason
from automap.planner.frameworks.description import Framework
from automap.planner.imports.commands import job_of_scripts
from automap.planner.imports.configurations import take
from automap.planner.imports.finishing import imported, reasons_first
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.keys import earlier, settings_of
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.imports.layouts import engine_layout, engine_named
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import node_of
from automap.planner.imports.resolving import resolved
from automap.planner.imports.settings import Settings
from automap.planner.imports.skyrl.commands import (
    DIALECT,
    EARLIER,
    ONE_STEP,
    OTHERS,
    STALE,
    module_of,
    of_command,
)
from automap.planner.imports.skyrl.layouts import offload_of, recompute_of, training_layout
from automap.planner.imports.skyrl.pools import groups_of
from automap.planner.imports.skyrl.values import read_yaml
from automap.planner.imports.skyrl.workload import is_stale, roles_of, spec_of

__all__ = ["DIALECT", "read"]


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides = _overrides(files, answers, framework)
    settings = settings_of(overrides, answers, framework, take, reader=read_yaml)
    settings.engine = engine_named(settings)
    groups = groups_of(settings, roles_of(settings), node, answers.gpus_per_node)
    with reasons_first(settings):
        job = resolved(settings, spec_of(settings, answers, groups.pools, node))
        _note_starts(settings)
        placed = placement_of(
            settings,
            job,
            groups.pools,
            offload=lambda settings, role: offload_of(settings, groups, role),
            engine=engine_layout,
            recompute=recompute_of,
            home=lambda role: (
                groups.homes[role],
                training_layout(settings, job, role, groups.homes[role].num_gpus),
            ),
        )
    # A program of one's own may have keys of its own.
    own = ("*",) if overrides.entry not in ("", STALE) else ()
    return imported(settings, job, placed, entry=overrides.entry, own=own)


def _overrides(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Overrides:
    """The overrides of the job that the files start.

    Raises:
        NotImportableError: there is none, or it is of an earlier version, or trains nothing.
    """
    (command, place), remarks = job_of_scripts(files, answers, framework, DIALECT)
    module = module_of(command, place)
    told = f"{command.source} line {command.line} starts {module[:80]}"
    if module.startswith(EARLIER):
        summary = f"{told}, of the package before {framework.target}"
        reason = Reason(summary=summary, remedy=f"start {framework.entry}, with its keys of today")
        raise NotImportableError(framework.target, [reason])
    if module.rpartition(".")[2] in OTHERS:
        remedy = f"name the script that starts python3 -m {framework.entry}"
        reason = Reason(summary=f"{told}, which is not read", remedy=remedy)
        raise NotImportableError(framework.target, [reason])
    found = of_command(command, place, framework)
    found.remarks[:0] = remarks
    _need_version(found, framework)
    if found.entry not in ("", STALE, ONE_STEP):
        at = Given("", "", command.source, command.line)
        found.remark("assumed", f"{module[:80]} is priced as SkyRL's own trainer", at)
    return found


def _need_version(found: Overrides, framework: Framework) -> None:
    """Refuse a launch of an earlier version, whose engines had keys of another section.

    Raises:
        NotImportableError: names the first of them, and what took its place.
    """
    known = {key for each in framework.settings for key in each.keys.values()}
    old = [each for key, each in found.given.items() if key in framework.replaced]
    engines = [key for key in found.given if key.startswith("generator.inference_engine.")]
    if not old or engines or len(old) * 10 < sum(key in known for key in found.given):
        return
    raise earlier(old, framework, "keys")


def _note_starts(settings: Settings) -> None:
    """Note settings with which its own checks end the start."""
    if settings.engine == "megatron" and settings.text("advantage") == "gae":
        told = f"{settings.where('engine')}: it has no critic under Megatron"
        settings.note("does not fit", told, settings.given("engine"))
    if not is_stale(settings):
        return
    if settings.flag("colocated"):
        told = f"{settings.key('colocated')} is true, and rollouts that are ahead are apart"
        settings.note("does not fit", told, settings.given("colocated"))
    if settings.overrides.entry == STALE:
        prompts, mini = settings.size("prompts"), settings.size("mini_batch", "actor")
        if prompts != mini:
            told = f"{settings.where('mini_batch', 'actor')} is {mini}, and a batch {prompts}"
            given = settings.given("mini_batch", "actor")
            settings.note("does not fit", f"{told}: with rollouts ahead they are the same", given)
        reads = ("rollout_is", "dppo")
        if settings.text("loss") not in reads:
            told = f"{settings.where('loss')} reads old log-probabilities, and none are kept"
            remedy = f"{told} of rollouts that are ahead: it does not start so"
            settings.note("does not fit", remedy, settings.given("loss"))
