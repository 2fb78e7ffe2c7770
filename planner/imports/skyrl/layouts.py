"""How a SkyRL launch splits its models, and what of them is on the host."""

from automap.planner.imports.layouts import Offload, Recompute, megatron_layout
from automap.planner.imports.layouts import recompute_of as granularity_of
from automap.planner.imports.pools import Groups
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.plan.types import Parallelism


def training_layout(settings: Settings, job: Job, role: str, num_gpus: int) -> Parallelism:
    """The layout of a model on its GPUs; each has sizes of its own."""
    if settings.engine == "megatron" and role != "critic":
        return megatron_layout(settings, job, role, num_gpus, first=role)
    context = settings.size("context_parallel_size", role) if settings.engine == "fsdp" else 1
    if num_gpus % context:
        told = f"{settings.where('context_parallel_size', role)} is {context}"
        remedy = f"give a size that divides {num_gpus}"
        settings.refuse(f"{told}, which does not divide {num_gpus} GPUs", remedy)
        context = 1
    if settings.engine == "megatron":
        return Parallelism(data_parallel_size=num_gpus, sharding="full")
    _note_group(settings, role, num_gpus)
    trains = role != "reference"
    whole = settings.value("reshard_after_forward", role) is not False
    sharding = "full" if whole or not trains else "gradient"
    return Parallelism.model_validate(
        {
            "context_parallel_size": context,
            "data_parallel_size": num_gpus // context,
            "sharding": "none" if num_gpus == 1 and not trains else sharding,
        }
    )


def _note_group(settings: Settings, role: str, num_gpus: int) -> None:
    group = settings.whole("sharding_group", role, least=-1)
    if group is not None and 0 < group < num_gpus:
        told = (
            f"{settings.key('sharding_group', role)} is {group}: priced as sharded over all "
            f"{num_gpus} GPUs, which takes fewer bytes and more communication"
        )
        settings.note("assumed", told, settings.given("sharding_group", role))


def offload_of(settings: Settings, groups: Groups, role: str) -> Offload:
    """A model is on the host while others, or the engines, have its GPUs."""
    if settings.engine == "fsdp" and settings.flag("offload_layers", role):
        told = f"{settings.key('offload_layers', role)}: weights that pass from the host layer by"
        told = f"{told} layer are priced as loaded once"
        settings.note("saves memory", told, settings.given("offload_layers", role))
        return "weights"
    here = groups.homes[role]
    # The same GPUs may be counted as other nodes of each model.
    gpus = [(each.first_gpu, each.num_gpus) for each in groups.homes.values()]
    alone = gpus.count((here.first_gpu, here.num_gpus)) == 1
    if alone and not settings.flag("colocated"):
        return "none"
    if settings.knows("offload_optimizer", role) and not settings.flag("offload_optimizer", role):
        told = f"{settings.key('offload_optimizer', role)} is false: priced as if its optimizer"
        told = f"{told} went to the host with the weights"
        settings.note("not priced", told, settings.given("offload_optimizer", role))
    return "weights"


def recompute_of(settings: Settings, role: str) -> Recompute:
    """Which activations of a model's training are computed again."""
    if not settings.flag("recompute_on"):
        return "none"
    granular = settings.engine == "megatron" and role != "critic"
    return granularity_of(settings, role) if granular else "full"
