"""How a NeMo-RL launch splits the policy and its reference, and what generates."""

from automap.planner.imports.layouts import Offload, Recompute
from automap.planner.imports.layouts import training_layout as megatron_layout
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.plan.types import Parallelism


def training_layout(settings: Settings, job: Job, role: str, num_gpus: int) -> Parallelism:
    """The layout of the policy or the reference on their GPUs."""
    if settings.engine == "megatron":
        split = settings.flag("sequence_parallel")
        if settings.size("tensor_parallel_size") > 1 and not split:
            told = (
                f"activations are split over the tensor ranks ({settings.key('sequence_parallel')})"
            )
            settings.note("assumed", told, settings.given("sequence_parallel"))
        return megatron_layout(settings, job, role, num_gpus)
    tensor, context = (settings.size(f"{name}_parallel_size") for name in ("tensor", "context"))
    if num_gpus % (tensor * context):
        where = settings.where("tensor_parallel_size")
        told = f"{where}: tensor {tensor} × context {context} on {num_gpus} GPUs"
        remedy = f"sizes whose product divides {num_gpus}"
        settings.refuse(f"{told}: they do not divide", remedy)
        return Parallelism(data_parallel_size=num_gpus)
    for decision in ("expert_parallel_size", "replica_groups"):
        size = settings.size(decision)
        if size > 1:
            told = f"{settings.key(decision)} is {size}: priced as sharded over all data ranks"
            settings.note("assumed", told, settings.given(decision))
    alone = num_gpus == tensor * context
    return Parallelism(
        tensor_parallel_size=tensor,
        context_parallel_size=context,
        data_parallel_size=num_gpus // (tensor * context),
        sharding="none" if alone and context == 1 and role == "reference" else "full",
    )


def offload_of(settings: Settings, role: str) -> Offload:
    """The reference is on the host; the policy is where it says, or where it has to be."""
    asked = settings.flag("offload_weights")
    return "weights" if role == "reference" or asked or settings.flag("colocated") else "none"


def recompute_of(settings: Settings, role: str) -> Recompute:
    """Which activations of the policy's training are computed again."""
    if not settings.flag("recompute_on"):
        return "none"
    if settings.engine == "fsdp":
        return "full"
    granularity, modules = settings.text("recompute"), settings.value("recompute_modules")
    if granularity not in ("", "selective", "full"):
        told = f"{settings.where('recompute')} is {granularity[:40]!r}"
        settings.refuse(told, "known: selective, full")
    if granularity == "selective" and modules != ["core_attn"]:
        told = f"recomputing {modules} is priced as recomputing attention (core_attn)"
        settings.note("assumed", told, settings.given("recompute_modules"))
    return "selective" if granularity == "selective" else "full"


def engine_layout(settings: Settings, num_gpus: int) -> Parallelism:
    """The layout of the engines that generate on so many GPUs."""
    role = "rollout"
    tensor = settings.size("engine_tensor_parallel_size", role)
    experts = settings.size("engine_expert_parallel_size", role)
    if settings.size("engine_pipeline_parallel_size", role) > 1:
        where = settings.where("engine_pipeline_parallel_size", role)
        settings.refuse(f"{where} is above 1", "give 1: engines are priced in tensor groups")
    if experts > 1 and experts % tensor:
        told = f"{settings.where('engine_expert_parallel_size', role)} is {experts}"
        settings.refuse(told, f"give 1, or a multiple of the tensor size {tensor}")
        experts = 1
    each = max(experts, tensor)
    if num_gpus % each:
        where = settings.where("engine_tensor_parallel_size", role)
        told = f"{where}: engines of {each} GPUs on {num_gpus}"
        settings.refuse(told, f"give sizes that divide {num_gpus}")
        return Parallelism(data_parallel_size=num_gpus)
    return Parallelism(
        tensor_parallel_size=tensor,
        expert_parallel_size=experts,
        data_parallel_size=num_gpus // tensor,
    )
