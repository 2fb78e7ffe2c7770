"""Files of a slime launch to a job and a placement."""

from collections.abc import Sequence

from automap.planner.frameworks.description import Framework
from automap.planner.imports.arguments import of_command, take
from automap.planner.imports.commands import Dialect, job_of_scripts
from automap.planner.imports.finishing import imported, reasons_first
from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.keys import settings_of
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.imports.layouts import Offload
from automap.planner.imports.placing import placement_of
from automap.planner.imports.pools import node_of
from automap.planner.imports.resolving import resolved
from automap.planner.imports.settings import Settings
from automap.planner.imports.slime.commands import PROGRAMS, program_in
from automap.planner.imports.slime.pools import pools_of
from automap.planner.imports.slime.workload import spec_of
from automap.planner.imports.values import read_argument
from automap.planner.job.job import Job
from automap.planner.plan.types import Parallelism

DIALECT = Dialect(program_in, "python3 {}")
"""How scripts start slime."""


def read(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Imported:
    """The launch in these files.

    Raises:
        NotImportableError: something is missing, wrong or not read; has every reason.
        SpecError: the catalogue has no such GPU; or the job contradicts itself.
    """
    node = node_of(answers.gpu)
    overrides = _overrides(files, answers, framework)
    settings = settings_of(
        overrides, answers, framework, take, engine="megatron", reader=read_argument
    )
    pools = pools_of(settings, node)
    with reasons_first(settings):
        job = resolved(settings, spec_of(settings, answers, pools, node))
        _count_virtual_stages(settings, job)
        placed = placement_of(settings, job, pools, offload=_offload, engine=_engine)
    entry = "" if overrides.entry == PROGRAMS[0] else overrides.entry
    return imported(settings, job, placed, entry=entry)


def _overrides(files: Sequence[LaunchFile], answers: Answers, framework: Framework) -> Overrides:
    (command, place), remarks = job_of_scripts(files, answers, framework, DIALECT)
    found = of_command(command, place, framework)
    found.remarks[:0] = remarks
    return found


def _count_virtual_stages(settings: Settings, job: Job) -> None:
    """Turn layers of a virtual stage into a number of them."""
    each, given = settings.whole("virtual_stage_layers"), settings.given("virtual_stage_layers")
    decision = "virtual_pipeline_parallel_size"
    if each is None or given is None or settings.given(decision) is not None:
        return
    layers = job.models["actor"].architecture.num_layers
    stages = settings.size("pipeline_parallel_size") * each
    if layers % stages:
        told = f"{settings.where('virtual_stage_layers')} is {each}: {stages} in all stages"
        settings.refuse(told, f"give what divides the {layers} layers")
        return
    implied = Given(settings.key(decision), str(layers // stages), given.file, given.line)
    settings.overrides.set(implied, over=True)
    settings.overrides.implied.add(implied.key)


def _offload(settings: Settings, role: str) -> Offload:
    """The reference is on the host; what trains is where it says, or where it has to be."""
    if role == "reference":
        return "weights"
    asked = settings.given("offload_weights") is not None and settings.flag("offload_weights")
    settings.value("engine_sleeps", "rollout")
    implied = settings.flag("colocated") or settings.text("advantage") == "ppo"
    return "weights" if asked or implied else "none"


def _engine(settings: Settings, num_gpus: int) -> Parallelism:
    """The layout of the engines that generate on so many GPUs."""
    role = "rollout"
    each = settings.size("engine_gpus", role)
    replicas = settings.size("engine_data_parallel_size", role)
    _refuse_engine(settings, replicas)
    if num_gpus % each or each % replicas:
        told = f"{settings.where('engine_gpus', role)}: engines of {each} GPUs on {num_gpus}"
        settings.refuse(f"{told}, with {replicas} replicas", f"give a size that divides {num_gpus}")
        return Parallelism(data_parallel_size=num_gpus)
    experts, given = settings.size("engine_expert_parallel_size", role), "engine_gpus"
    if experts != each and (experts > 1 or replicas > 1):
        told = f"{experts} groups of experts in engines of {each} GPUs are priced as {each}"
        settings.note("assumed", told, settings.given(given, role))
        experts = each
    return Parallelism(
        tensor_parallel_size=each // replicas,
        expert_parallel_size=experts,
        data_parallel_size=num_gpus * replicas // each,
    )


def _refuse_engine(settings: Settings, replicas: int) -> None:
    role, stages = "rollout", settings.size("engine_pipeline_parallel_size", "rollout")
    if not settings.flag("engine_attention_replicas", role) and replicas > 1:
        flag = settings.key("engine_attention_replicas", role)
        told = f"{settings.where('engine_data_parallel_size', role)} is {replicas}, without {flag}"
        settings.refuse(told, f"give {flag}, or 1")
    if stages > 1:
        told = f"{settings.where('engine_pipeline_parallel_size', role)} is {stages}"
        settings.refuse(told, "give 1: engines are priced in tensor groups")
