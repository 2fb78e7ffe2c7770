"""Engines and their sizes as AReaL is told them, and who shares whose GPUs."""

from automap.planner.exports.subject import Subject, same_range
from automap.planner.plan.types import CopyPlan, Parallelism

BUILT = ("actor", "critic", "reference")
"""Roles in the order in which their processes are started: a later one may join an earlier."""
NAMES = {"actor": "actor", "critic": "critic", "reference": "ref"}
"""Role → AReaL's name of it."""


def backend_of(subject: Subject, copy: CopyPlan) -> str:
    """Engine and sizes of what trains or scores: `fsdp:d8`, `megatron:(attn:d2t4|ffn:d1e8)`."""
    layout, engine = copy.layout, subject.engine_of(copy)
    whole = _sizes(
        d=layout.data_parallel_size,
        p=layout.pipeline_parallel_size,
        t=layout.tensor_parallel_size,
        c=layout.context_parallel_size,
    )
    if engine == "fsdp" or not subject.job.models[copy.role].architecture.num_experts:
        return f"{engine}:{whole}"
    # Experts are split over the expert groups first, each over what is left of the tensor size.
    expert = layout.expert_parallel_size
    each = max(layout.tensor_parallel_size // expert, 1)
    stages = layout.pipeline_parallel_size
    data = copy.num_gpus // (stages * each * expert)
    return f"{engine}:(attn:{whole}|ffn:{_sizes(d=data, p=stages, t=each, e=expert)})"


def engine_backend(name: str, layout: Parallelism) -> str:
    """What generates, and its sizes: `vllm:d4t2`."""
    return f"{name}:{_sizes(d=layout.data_parallel_size, t=layout.tensor_parallel_size)}"


def joined(subject: Subject, copy: CopyPlan) -> str | None:
    """AReaL's name of the earliest model whose GPUs a home is on; None: it has its own."""
    for role in BUILT[: BUILT.index(copy.role)]:
        if role in subject.homes and same_range(subject.homes[role], copy):
            return NAMES[role]
    return None


def _sizes(**sizes: int) -> str:
    return "".join(f"{name}{size}" for name, size in sizes.items() if size > 1 or name == "d")
