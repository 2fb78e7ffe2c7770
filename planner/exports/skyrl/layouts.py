"""What SkyRL is told of actor, reference and critic: sizes, sharding, and what is recomputed."""

from automap.planner.exports.layouts import SIZES, VIRTUAL, stages_of
from automap.planner.exports.lines import Lines
from automap.planner.exports.subject import Subject
from automap.planner.exports.workload import add_host_optimizer, recompute_of
from automap.planner.plan.types import CopyPlan


def add_role(subject: Subject, copy: CopyPlan, lines: Lines) -> None:
    """Everything of one role but its GPUs and micro-batches."""
    (_add_megatron if subject.engine == "megatron" else _add_fsdp)(subject, copy, lines)
    if copy.role != "reference":
        # Where the weights go to the host: a state that stayed has no price.
        because = f"copy {copy.id}: offload {copy.offload}"
        lines.add("offload_optimizer", True, because, role=copy.role)


def _add_fsdp(subject: Subject, copy: CopyPlan, lines: Lines) -> None:
    layout, role = copy.layout, copy.role
    because = f"copy {copy.id}: {layout.in_short()}"
    lines.add("context_parallel_size", layout.context_parallel_size, because, role=role)
    because = f"copy {copy.id}: sharding {layout.sharding}"
    lines.add("sharding_group", -1, because, role=role)
    lines.add("reshard_after_forward", layout.sharding != "gradient", because, role=role)
    lines.add("offload_layers", False, f"copy {copy.id}: offload {copy.offload}", role=role)


def _add_megatron(subject: Subject, copy: CopyPlan, lines: Lines) -> None:
    layout, role = copy.layout, copy.role
    because = f"copy {copy.id}: {layout.in_short()}"
    for size in SIZES:
        if size != VIRTUAL:
            lines.add(size, getattr(layout, size), because, role=role)
    if subject.job.models[role].architecture.num_experts:
        # Experts are split over the expert groups first, each over what is left of the tensor size.
        each = max(layout.tensor_parallel_size // layout.expert_parallel_size, 1)
        lines.add("expert_tensor_parallel_size", each, because, role=role)
    layers = stages_of(subject, copy)
    if layers is not None:
        stages = f"copy {copy.id}: stages of {', '.join(map(str, layers))} layers"
        lines.add("first_stage_layers", layers[0], stages, role=role)
        lines.add("last_stage_layers", layers[-1], stages, role=role)
    if role == "actor":
        add_host_optimizer(subject, lines, role=role)
        _add_recompute(subject, lines)


def _add_recompute(subject: Subject, lines: Lines) -> None:
    """How activations are recomputed; where none are, what it has does not count."""
    recompute, because = recompute_of(subject)
    whole = recompute == "full"
    if recompute == "none":
        return
    lines.add("recompute", recompute, because, role="actor")
    lines.add("recompute_modules", ["core_attn"], because, role="actor")
    lines.add("recompute_method", "uniform" if whole else None, because, role="actor")
    lines.add("recompute_layers", 1 if whole else None, because, role="actor")
