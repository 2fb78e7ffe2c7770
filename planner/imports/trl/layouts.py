"""How a TRL launch shards its models, and the GPUs that it has."""

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.layouts import Offload, Recompute
from automap.planner.imports.pools import MAX_GPUS, Pools, Range, behind_one_another
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.plan.types import Parallelism

SHARDINGS = {0: "none", 1: "optimizer", 2: "gradient", 3: "full"}
"""ZeRO's stage → sharding of what trains."""
FSDP = {
    "FULL_SHARD": "full",
    "HYBRID_SHARD": "full",
    "SHARD_GRAD_OP": "gradient",
    "NO_SHARD": "none",
    "TRUE": "full",
    "FALSE": "gradient",
}
"""When FSDP shards weights again → sharding of what trains."""
MODES = ("colocate", "server")


def pools_of(settings: Settings, node: NodeType) -> Pools:
    """The ranges of a launch, and what contradicts itself in them."""
    nodes, gpus = settings.size("nodes"), settings.whole("gpus", least=-1)
    if gpus is None or gpus < 1:
        gpus = nodes * node.gpus_per_node
        told = f"{settings.key('gpus')} is not set: {gpus} processes, one on each GPU of a node"
        settings.assume(told)
    if gpus > MAX_GPUS:
        told = f"{settings.where('gpus')} is {gpus}"
        settings.refuse(told, f"at most {MAX_GPUS} GPUs are priced")
        nodes, gpus = 1, 8
    if gpus % nodes:
        told = f"{settings.where('gpus')}: {gpus} processes on {nodes} nodes"
        settings.refuse(told, f"give a number that {nodes} divides")
        nodes, gpus = 1, node.gpus_per_node
    trainer = Range(nodes, gpus // nodes)
    if not serves(settings):
        return Pools(trainer, None, None)
    return behind_one_another(trainer, _server(settings, trainer), None, node)


def serves(settings: Settings) -> bool:
    """Whether a server generates, on GPUs of its own."""
    mode = settings.text("mode") or MODES[0]
    if mode not in MODES:
        settings.refuse(f"{settings.where('mode')} is {mode[:40]!r}", f"known: {', '.join(MODES)}")
    return settings.flag("with_vllm") and mode == "server"


def _server(settings: Settings, trainer: Range) -> Range:
    tensor, role = settings.key("engine_tensor_parallel_size", "rollout"), "rollout"
    if not any(key.startswith("vllm-serve.") for key in settings.overrides.given):
        told = "a server generates, and no command that starts one is among the files"
        settings.ask(told, f"--set {tensor}=…, or name its script as well")
        return Range(1, 1)
    size = settings.size("engine_tensor_parallel_size", role) * settings.size("engines", role)
    each = max(trainer.gpus_per_node, 1)
    return Range(1, size) if size <= each or size % each else Range(size // each, each)


def layout_of(settings: Settings, job: Job, role: str, num_gpus: int) -> Parallelism:
    """The layout of a role on all processes."""
    sharding = _sharding(settings)
    if not job.models[role].trainable and sharding != "full":
        sharding = "none"
    if num_gpus == 1:
        sharding = "none"
    layout = {"data_parallel_size": num_gpus, "sharding": sharding}
    return Parallelism.model_validate(layout)


def _sharding(settings: Settings) -> str:
    kind = settings.text("distribution")
    if kind == "DEEPSPEED":
        stage = settings.whole("zero_stage", least=0)
        if stage not in SHARDINGS:
            settings.refuse(f"{settings.where('zero_stage')} is {stage}", "known: 0, 1, 2, 3")
            stage = 2
        return SHARDINGS[stage]
    if kind == "FSDP":
        settings.value("fsdp_version")
        told = settings.text("fsdp_resharding").upper()
        if told not in FSDP:
            known = f"known: {', '.join(FSDP)}"
            settings.refuse(f"{settings.where('fsdp_resharding')} is {told[:40]!r}", known)
        return FSDP.get(told, "full")
    if kind not in ("NO", "MULTI_GPU"):
        told = f"{settings.where('distribution')} is {kind[:40]!r}"
        settings.refuse(told, "known: NO, MULTI_GPU, FSDP, DEEPSPEED")
    return "none"


def offload_of(settings: Settings, role: str) -> Offload:
    """Nothing is on the host between calls; what passes from there in every update is noted."""
    for decision in ("offload_optimizer", "offload_weights"):
        place = settings.text(decision)
        if settings.text("distribution") == "DEEPSPEED" and place not in ("none", ""):
            told = f"{settings.key(decision)} is {place[:20]}: priced as if it stayed on the GPU"
            settings.note("saves memory", told, settings.given(decision))
    if settings.text("distribution") == "FSDP" and settings.flag("fsdp_offload"):
        told = f"{settings.key('fsdp_offload')}: priced as if it stayed on the GPU"
        settings.note("saves memory", told, settings.given("fsdp_offload"))
    return "none"


def recompute_of(settings: Settings, role: str) -> Recompute:
    """All activations, or none."""
    by_fsdp = settings.text("distribution") == "FSDP" and settings.flag("fsdp_recompute")
    return "full" if settings.flag("recompute") or by_fsdp else "none"


def engine_layout(settings: Settings, num_gpus: int) -> Parallelism:
    """The layout of the engines that generate on so many GPUs."""
    role = "rollout"
    if not settings.flag("with_vllm"):
        return Parallelism(data_parallel_size=num_gpus)
    tensor = settings.size("engine_tensor_parallel_size", role)
    if num_gpus % tensor:
        where = settings.where("engine_tensor_parallel_size", role)
        told = f"{where}: engines of {tensor} GPUs on {num_gpus}"
        settings.refuse(told, f"give a size that divides {num_gpus}")
        return Parallelism(data_parallel_size=num_gpus)
    return Parallelism(tensor_parallel_size=tensor, data_parallel_size=num_gpus // tensor)
