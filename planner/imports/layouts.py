"""How a launch splits each model: sizes, sharding, what is on the host, and what is recomputed."""

from typing import Literal

from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.plan.types import Parallelism

Offload = Literal["none", "optimizer", "weights"]
Recompute = Literal["none", "selective", "full"]
SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "virtual_pipeline_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
    "expert_tensor_parallel_size",
)
ON_HOST = "a reference under FSDP is on the host whatever it says"
BUILT_FIRST = ("critic", "reference", "actor")
"""Roles in the order in which their engines are built: the first one's sizes are everybody's."""


def engine_named(settings: Settings) -> str:
    """Kind of training engine, by the framework's name of it; another name is refused."""
    named, names = settings.text("engine"), settings.framework.engine_names
    if named not in names:
        told = f"{settings.where('engine')} is {named[:40]!r}"
        settings.refuse(told, f"known: {', '.join(names)}")
    return names.get(named, "fsdp")


def training_layout(settings: Settings, job: Job, role: str, num_gpus: int) -> Parallelism:
    """The layout of actor, reference or critic on their GPUs."""
    if settings.engine == "megatron":
        return _megatron(settings, job, role, num_gpus)
    return _fsdp(settings, role, num_gpus)


def one_process(settings: Settings, job: Job) -> None:
    """Note sizes of one role that another one's engine, which is built first, leaves no effect."""
    if settings.engine != "megatron":
        return
    roles = [role for role in BUILT_FIRST if role in job.models]
    first = roles[0]
    for role in roles[1:]:
        for size in (each for each in SIZES if settings.knows(each, role)):
            if settings.value(size, role) != settings.value(size, first):
                told = (
                    f"{settings.key(size, role)} is {settings.value(size, role)} and "
                    f"{settings.key(size, first)} is {settings.value(size, first)}: the {first}'s "
                    "engine is built first, and its sizes count for all"
                )
                settings.note("contradiction", told, settings.given(size, role))


def _megatron(settings: Settings, job: Job, role: str, num_gpus: int) -> Parallelism:
    first = next(each for each in BUILT_FIRST if each in job.models)
    return megatron_layout(settings, job, role, num_gpus, first=first)


def megatron_layout(
    settings: Settings, job: Job, role: str, num_gpus: int, *, first: str
) -> Parallelism:
    """The layout of a role on Megatron, with the sizes that another one, `first`, is told."""
    tensor, pipeline, context = (
        settings.size(f"{name}_parallel_size", first) for name in ("tensor", "pipeline", "context")
    )
    known = settings.knows("virtual_pipeline_parallel_size", first)
    virtual = settings.size("virtual_pipeline_parallel_size", first) if known else 1
    split = tensor * pipeline * context
    if num_gpus % split:
        told = f"tensor {tensor} × pipeline {pipeline} × context {context} on {num_gpus} GPUs"
        names = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
        where = ", ".join(settings.where(name, first) for name in names)
        remedy = f"sizes whose product divides {num_gpus}"
        settings.refuse(f"{where}: {told}: they do not divide", remedy)
        return Parallelism(data_parallel_size=num_gpus)
    trains = role != "reference"
    stated = settings.knows("sharded_optimizer", role)
    sharded = trains and (not stated or settings.flag("sharded_optimizer", role))
    if trains:
        _note_stages(settings, role)
    return Parallelism(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        # A reference is priced without virtual stages, which only training gains from.
        virtual_pipeline_parallel_size=virtual if trains else 1,
        context_parallel_size=context,
        expert_parallel_size=_experts(settings, job, first, role, tensor),
        data_parallel_size=num_gpus // split,
        sharding="optimizer" if sharded else "none",
    )


def _experts(settings: Settings, job: Job, first: str, role: str, tensor: int) -> int:
    """Groups over which experts are split; what is left of the tensor size splits each of them."""
    groups = settings.size("expert_parallel_size", first)
    each = settings.whole("expert_tensor_parallel_size", first) or tensor
    if not job.models[role].architecture.num_experts:
        return 1
    ours = max(tensor // groups, 1)
    if each == ours:
        return groups
    told = (
        f"experts are split over {groups} groups of {each} GPUs, and priced as split over "
        f"{groups * each}"
    )
    settings.note("assumed", told, settings.given("expert_parallel_size", first))
    return groups * each


def _note_stages(settings: Settings, role: str) -> None:
    for decision in ("first_stage_layers", "last_stage_layers"):
        given = settings.given(decision, role)
        settings.value(decision, role)
        if given is not None:
            told = f"{given.key}: priced with equal stages, of which the ends share what is left"
            settings.note("assumed", told, given)


def _fsdp(settings: Settings, role: str, num_gpus: int) -> Parallelism:
    context = settings.size("context_parallel_size", role)
    if num_gpus % context:
        told = f"{settings.where('context_parallel_size', role)} is {context}"
        remedy = f"give a size that divides {num_gpus}"
        settings.refuse(f"{told}, which does not divide {num_gpus} GPUs", remedy)
        context = 1
    group = settings.whole("sharding_group", role, least=-1)
    if group is not None and 0 < group < num_gpus:
        told = (
            f"{settings.key('sharding_group', role)} is {group}: priced as sharded over all "
            f"{num_gpus} GPUs, which takes fewer bytes and more communication"
        )
        settings.note("assumed", told, settings.given("sharding_group", role))
    whole = settings.flag("reshard_after_forward", role)
    masters = settings.text("master_precision", role)
    if role != "reference":
        strategy = settings.text("strategy", role)
        if strategy not in ("fsdp", "fsdp2"):
            told = f"{settings.where('strategy', role)} is {strategy[:40]!r}"
            settings.refuse(told, "known: fsdp, fsdp2")
        if masters not in ("fp32", "float32"):
            told = f"the {role}'s sharded weights in {masters[:20]} are priced in 32 bits"
            settings.note("saves memory", told, settings.given("master_precision", role))
    sharding = "full" if whole or role == "reference" else "gradient"
    return Parallelism.model_validate(
        {
            "context_parallel_size": context,
            "data_parallel_size": num_gpus // context,
            "sharding": "none" if num_gpus == 1 and role == "reference" else sharding,
        }
    )


def offload_of(settings: Settings, role: str) -> Offload:
    """What of a model is on the host between its calls."""
    if role == "reference":
        on_host, given = (
            settings.flag("offload_weights", role),
            settings.given("offload_weights", role),
        )
        if settings.engine == "megatron":
            return "weights" if on_host else "none"
        if given is not None and not on_host:
            settings.note("without effect", f"{given.key} has no effect: {ON_HOST}", given)
        return "weights"
    weights = settings.flag("offload_weights", role)
    optimizer = settings.flag("offload_optimizer", role)
    if weights and not optimizer:
        told = (
            f"{settings.key('offload_weights', role)} without the optimizer's: priced as if "
            "nothing went to the host"
        )
        settings.note("assumed", told, settings.given("offload_weights", role))
        return "none"
    return "weights" if weights else "optimizer" if optimizer else "none"


def recompute_of(settings: Settings, role: str) -> Recompute:
    """Which activations of a model's training are computed again."""
    if settings.engine in ("fsdp", "zero"):
        return "full" if settings.flag("recompute", role) else "none"
    granularity = settings.text("recompute", role)
    modules = settings.value("recompute_modules", role)
    method, layers = (
        settings.value("recompute_method", role),
        settings.value("recompute_layers", role),
    )
    if granularity not in ("", "none", "selective", "full"):
        told = f"{settings.where('recompute', role)} is {granularity[:40]!r}"
        settings.refuse(told, "known: null, selective, full")
        return "none"
    if granularity == "selective" and modules != ["core_attn"]:
        told = f"recomputing {modules} is priced as recomputing attention (core_attn)"
        settings.note("assumed", told, settings.given("recompute_modules", role))
    if granularity == "full" and (method, layers) not in (("uniform", 1), (None, None)):
        told = f"{method} recomputation of {layers} layers is priced as that of every layer"
        settings.note("assumed", told, settings.given("recompute_method", role))
    if granularity == "selective":
        return "selective"
    return "full" if granularity == "full" else "none"


def engine_layout(settings: Settings, num_gpus: int, role: str = "rollout") -> Parallelism:
    """The layout of the engines that generate, or serve the reward model, on their GPUs."""
    tensor = settings.size("engine_tensor_parallel_size", role)
    replicas = settings.size("engine_data_parallel_size", role) if role == "rollout" else 1
    experts = settings.size("engine_expert_parallel_size", role) if role == "rollout" else 1
    stages = settings.size("engine_pipeline_parallel_size", role) if role == "rollout" else 1
    if stages > 1:
        told = f"{settings.where('engine_pipeline_parallel_size', role)} is {stages}"
        settings.refuse(told, "give 1: engines are priced in tensor groups")
    if experts not in (1, tensor * replicas):
        told = f"{settings.where('engine_expert_parallel_size', role)} is {experts}"
        settings.refuse(told, f"{settings.framework.name} takes 1 or {tensor * replicas}")
        experts = 1
    if num_gpus % (tensor * replicas):
        left = num_gpus % (tensor * replicas)
        where = settings.where("engine_tensor_parallel_size", role)
        told = f"{where}: engines of {tensor * replicas} GPUs on {num_gpus}"
        settings.refuse(
            f"{told}: {settings.framework.name} starts as many as fit and leaves {left} idle",
            f"give a {settings.key('engine_tensor_parallel_size', role)} that divides them",
        )
        return Parallelism(data_parallel_size=num_gpus)
    return Parallelism(
        tensor_parallel_size=tensor,
        expert_parallel_size=experts,
        data_parallel_size=num_gpus // tensor,
    )
