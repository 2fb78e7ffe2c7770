"""What slime is told of training: sizes, recomputation, and what is computed at once."""

from automap.planner.exports.batches import micro_batches
from automap.planner.exports.layouts import SIZES, VIRTUAL, stages_of
from automap.planner.exports.lines import Lines
from automap.planner.exports.subject import Subject
from automap.planner.exports.workload import recompute_of


def add_performance(subject: Subject, lines: Lines) -> None:
    """One set of arguments for actor, reference and critic."""
    actor = subject.actor
    layout = actor.layout
    because = f"copy {actor.id}: {layout.in_short()}"
    for size in SIZES:
        value: int | None = getattr(layout, size)
        if size == VIRTUAL and value == 1:
            value = None
        lines.add(size, value, because)
    lines.add("sequence_parallel", layout.tensor_parallel_size > 1, because)
    if subject.job.models["actor"].architecture.num_experts:
        # Experts are split over the expert groups first, each over what is left of the tensor size.
        each = max(layout.tensor_parallel_size // layout.expert_parallel_size, 1)
        lines.add("expert_tensor_parallel_size", each, because)
    layers = stages_of(subject, actor)
    shown = "equally long stages" if layers is None else f"stages of {layers} layers"
    for name, place in (("first_stage_layers", 0), ("last_stage_layers", -1)):
        lines.add(name, None if layers is None else layers[place], f"copy {actor.id}: {shown}")
    _add_recomputation(subject, lines)
    _add_micro_batches(subject, lines)


def _add_recomputation(subject: Subject, lines: Lines) -> None:
    recompute, because = recompute_of(subject)
    lines.add("recompute", None if recompute == "none" else recompute, because)
    lines.add("recompute_modules", "core_attn" if recompute == "selective" else None, because)
    full = recompute == "full"
    lines.add("recompute_method", "uniform" if full else None, because)
    lines.add("recompute_layers", 1 if full else None, because)


def _add_micro_batches(subject: Subject, lines: Lines) -> None:
    """One number of sequences where all calls have it, and it divides; else numbers of tokens."""
    found = [micro_batches(subject, copy) for copy in subject.trainers]
    sizes = {
        size
        for each in found
        for size in (each.train_sequences, each.forward_sequences)
        if size is not None
    }
    dynamic = len(sizes) > 1 or any(each.dynamic for each in found)
    actor = found[0]
    scored = next((b.forward_tokens for b in found if b.forward_tokens), actor.train_tokens)
    given = ", ".join(
        f"{call.id} {call.micro_batch_size}"
        for call in subject.plan.calls
        if call.micro_batch_size and call.copy_id
    )
    because = f"micro-batches of sequences: {given}"
    lines.add("dynamic_batches", dynamic, because)
    lines.add("train_tokens", actor.train_tokens if dynamic else None, because)
    lines.add("forward_tokens", scored if dynamic else None, because)
    lines.add("train_micro_batch", None if dynamic else actor.train_sequences, because)
