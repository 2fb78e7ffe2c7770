"""Files of an OpenRLHF launch to a job and a placement."""

from collections.abc import Sequence

from automap.planner.frameworks.description import Framework
from automap.planner.imports.arguments import of_command, take
from automap.planner.imports.commands import Dialect, job_of_scripts
from automap.planner.imports.finishing import imported, reasons_first
from automap.planner.imports.given import Overrides
from automap.planner.imports.keys import earlier, settings_of
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.imports.layouts import Offload
from automap.planner.imports.openrlhf.pools import groups_of
from automap.planner.imports.openrlhf.workload import roles_of, spec_of
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import Groups, Range, node_of
from automap.planner.imports.resolving import resolved
from automap.planner.imports.settings import Settings
from automap.planner.imports.shell.values import Field
from automap.planner.imports.values import read_argument
from automap.planner.job.job import Job
from automap.planner.plan.types import Parallelism

MODULE, FILE = "openrlhf.cli.train_ppo_ray", "openrlhf/cli/train_ppo_ray.py"
SHARDINGS = {0: "none", 1: "optimizer", 2: "gradient", 3: "full"}
"""ZeRO's stage → sharding of what trains."""


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides = _overrides(files, answers, framework)
    settings = settings_of(overrides, answers, framework, take, engine="zero", reader=read_argument)
    groups = groups_of(settings, roles_of(settings), node, answers.gpus_per_node)
    with reasons_first(settings):
        job = resolved(settings, spec_of(settings, answers, groups.pools, node))
        _note_switches(settings, job)
        placed = placement_of(
            settings,
            job,
            groups.pools,
            offload=lambda settings, role: _offload(settings, job, role),
            engine=_engine,
            home=lambda role: _home(settings, job, groups, role),
        )
    return imported(settings, job, placed)


def _program(words: Sequence[Field]) -> int | None:
    """The number of the word that names its trainer, which something runs."""
    shown = (each.shown for each in words)
    named = (n for n, each in enumerate(shown) if n and (each == MODULE or each.endswith(FILE)))
    return next(named, None)


DIALECT = Dialect(_program, "python3 -m {}")
"""How scripts start OpenRLHF."""


def _overrides(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Overrides:
    (command, place), remarks = job_of_scripts(files, answers, framework, DIALECT)
    found = of_command(command, place, framework, strict=True)
    found.entry = ""
    found.remarks[:0] = remarks
    _need_version(found, framework)
    return found


def _need_version(found: Overrides, framework: Framework) -> None:
    """Refuse a launch of an earlier version: most of its arguments have another name now.

    Raises:
        NotImportableError: names the first of them, and what took its place.
    """
    old = [each for key, each in found.given.items() if key in framework.replaced]
    known = {key for each in framework.settings for key in each.keys.values()}
    if len(old) <= sum(key in known for key in found.given):
        return
    raise earlier(old, framework, "arguments")


def _note_switches(settings: Settings, job: Job) -> None:
    """Note settings that have no effect, or end the start, beside the others."""
    whole, ahead = settings.flag("colocated"), settings.flag("asynchronous")
    sleeps = settings.flag("engine_sleeps", "rollout")
    given = settings.given("engine_sleeps", "rollout")
    if sleeps and ahead and whole:
        told = f"{settings.where('engine_sleeps', 'rollout')}: it does not start so"
        settings.note("does not fit", f"{told} with {settings.key('asynchronous')}", given)
    elif sleeps and not whole:
        told = f"has no effect without {settings.key('colocated')}"
        settings.note("without effect", f"{settings.key('engine_sleeps', 'rollout')} {told}", given)
    if whole and not ahead and not sleeps:
        key = settings.key("engine_sleeps", "rollout")
        settings.note("not priced", f"engines keep their memory while others run, without {key}")
    several = sum(model.trainable for model in job.models.values()) > 1
    if whole and several and not settings.flag("offload_optimizer"):
        key = settings.key("offload_optimizer")
        told = f"actor and critic train side by side on the same GPUs, without {key}"
        settings.note("not priced", f"{told}: priced as one after the other")
    settings.text("weight_backend")
    if settings.text("precision") != "bf16":
        told = f"{settings.where('precision')} is {settings.text('precision')[:20]}"
        settings.note("not priced", f"{told}: engines have bf16", settings.given("precision"))


def _offload(settings: Settings, job: Job, role: str) -> Offload:
    if job.models[role].trainable:
        return "optimizer" if settings.flag("offload_optimizer") else "none"
    on_host, stage = settings.flag("offload_weights", role), settings.whole("zero_stage", least=0)
    given = settings.given("offload_weights", role)
    if on_host and stage != 3:
        told = f"{settings.key('offload_weights', role)} has no effect but under ZeRO 3"
        settings.note("without effect", told, given)
        return "none"
    if on_host:
        told = f"{settings.key('offload_weights', role)}: its weights are priced as loaded once"
        settings.note("saves memory", told, given)
    return "weights" if on_host else "none"


def _home(settings: Settings, job: Job, groups: Groups, role: str) -> tuple[Range, Parallelism]:
    used = groups.homes[role]
    tensor, context = settings.size("tensor_parallel_size"), settings.size("context_parallel_size")
    num_gpus, stage = used.num_gpus, settings.whole("zero_stage", least=0)
    if stage not in SHARDINGS:
        settings.refuse(f"{settings.where('zero_stage')} is {stage}", "known: 0, 1, 2, 3")
        stage = 2
    if num_gpus % (tensor * context):
        told = f"tensor {tensor} × ring {context} on {num_gpus} GPUs of {role}: they do not divide"
        where = (
            f"{settings.where('tensor_parallel_size')}, {settings.where('context_parallel_size')}"
        )
        settings.refuse(f"{where}: {told}", f"sizes whose product divides {num_gpus}")
        tensor = context = 1
    sharding = SHARDINGS[stage] if job.models[role].trainable or stage == 3 else "none"
    layout = {
        "tensor_parallel_size": tensor,
        "context_parallel_size": context,
        "data_parallel_size": num_gpus // (tensor * context),
        "sharding": sharding if num_gpus > tensor else "none",
    }
    return used, Parallelism.model_validate(layout)


def _engine(settings: Settings, num_gpus: int) -> Parallelism:
    """The layout of the engines that generate on so many GPUs."""
    tensor = settings.size("engine_tensor_parallel_size", "rollout")
    if num_gpus % tensor:
        where = settings.where("engine_tensor_parallel_size", "rollout")
        told = f"{where}: engines of {tensor} GPUs on {num_gpus}"
        settings.refuse(told, f"give a size that divides {num_gpus}")
        return Parallelism(data_parallel_size=num_gpus)
    return Parallelism(tensor_parallel_size=tensor, data_parallel_size=num_gpus // tensor)
