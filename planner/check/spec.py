"""Rules of the spec's constraints: what the user pinned, joined, parted, fixed or forbade."""

from collections.abc import Iterator

from automap.planner.check.subject import Subject, span_of
from automap.planner.dataflow.graph import Call
from automap.planner.plan.types import CallPlan, CopyPlan

STORED_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
    "sharding",
)
ENGINE_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "expert_parallel_size",
)


def broken_constraints(subject: Subject) -> Iterator[str]:
    """Every constraint of the spec that the plan does not respect."""
    yield from _copies_are_in_their_pools(subject)
    yield from _calls_are_in_their_pools(subject)
    yield from _pairs_are_colocated(subject)
    yield from _pairs_are_separate(subject)
    yield from _copies_have_the_fixed_sizes(subject)
    yield from _calls_have_the_fixed_settings(subject)
    yield from _forbidden_means_are_unused(subject)
    if subject.job.spec.constraints.require_even_batch:
        yield from _batches_are_even(subject)


def _copies_are_in_their_pools(subject: Subject) -> Iterator[str]:
    """A key of its own says where a copy lies, else a pinned call on a shadow, else its role."""
    pinned = subject.job.spec.constraints.pools
    for copy in subject.plan.copies:
        key = copy.role
        if copy.kind == "shadow":
            served = [call.id for call, on in subject.placed_calls() if on.id == copy.id]
            key = next((name for name in (copy.id, *served) if name in pinned), key)
        if copy.pool != pinned.get(key, copy.pool):
            yield f"copy {copy.id} lies in pool {copy.pool}, but {key} is pinned to {pinned[key]}"


def _calls_are_in_their_pools(subject: Subject) -> Iterator[str]:
    pinned = subject.job.spec.constraints.pools
    for call, copy in subject.placed_calls():
        if not _is_copy(subject, call.id) and copy.pool != pinned.get(call.id, copy.pool):
            yield f"call {call.id} runs in pool {copy.pool}, but is pinned to {pinned[call.id]}"


def _is_copy(subject: Subject, key: str) -> bool:
    """Whether a key of the constraints means a role or a shadow, though a call has the same id."""
    models = subject.job.models
    return key in models or any(key == f"{role}.shadow" for role in models)


def _pairs_are_colocated(subject: Subject) -> Iterator[str]:
    homes = subject.homes()
    for one, other in subject.job.spec.constraints.colocate:
        first, second = span_of(homes[one]), span_of(homes[other])
        if first != second:
            yield f"{one} and {other} are to be colocated, but lie on {first} and {second}"


def _pairs_are_separate(subject: Subject) -> Iterator[str]:
    for one, other in subject.job.spec.constraints.separate:
        for first in subject.plan.copies:
            for second in subject.plan.copies:
                if (first.role, second.role) != (one, other):
                    continue
                if span_of(first).shares_gpus(span_of(second)):
                    yield (
                        f"{one} and {other} are to be separate, but copies {first.id} and "
                        f"{second.id} share GPUs of {span_of(first)} and {span_of(second)}"
                    )


def _copies_have_the_fixed_sizes(subject: Subject) -> Iterator[str]:
    fixed = subject.job.spec.constraints.parallelism
    for copy in subject.plan.copies:
        wanted = fixed.get(copy.role if copy.kind == "home" else copy.id)
        found: dict[str, int | str] = {name: getattr(copy.layout, name) for name in STORED_SIZES}
        found["num_gpus"] = copy.num_gpus
        for name, value in found.items():
            size = None if wanted is None else getattr(wanted, name)
            if size is not None and value != size:
                yield f"copy {copy.id} has {name} {value}, but the spec fixes {size}"


def _calls_have_the_fixed_settings(subject: Subject) -> Iterator[str]:
    """Micro-batch of training and scoring, recomputation of training, sizes of the engine.

    What the spec fixes of the call goes before what it fixes of the role.
    """
    fixed = subject.job.spec.constraints.parallelism
    for call, copy in subject.placed_calls():
        own = None if _is_copy(subject, call.id) else fixed.get(call.id)
        of_role = fixed.get(call.role)
        for field, value, field_of_role in _settings(call, copy):
            name, wanted = field, None if own is None else getattr(own, field)
            if wanted is None and of_role is not None and field_of_role is not None:
                name, wanted = field_of_role, getattr(of_role, field_of_role)
            if wanted is not None and value != wanted:
                yield f"call {call.id} has {name} {value}, but the spec fixes {wanted}"


def _settings(call: CallPlan, copy: CopyPlan) -> Iterator[tuple[str, object, str | None]]:
    """(field of a call, its value, field of the role that fixes it too) for what a call has."""
    if call.kind != "generate":
        yield "micro_batch_size", call.micro_batch_size, "micro_batch_size"
    if call.kind == "train":
        yield "recompute", call.recompute, "recompute"
    if call.kind == "generate" and call.parallelism is not None:
        yield "num_gpus", copy.num_gpus, None
        for name in ENGINE_SIZES:
            of_role = "generation_tensor_parallel_size" if name.startswith("tensor") else None
            yield name, getattr(call.parallelism, name), of_role


def _forbidden_means_are_unused(subject: Subject) -> Iterator[str]:
    constraints = subject.job.spec.constraints
    for copy in subject.plan.copies:
        if copy.offload != "none" and not constraints.allow_offload:
            yield f"copy {copy.id} offloads its {copy.offload}, but allow_offload is false"
        if copy.kind == "shadow" and not constraints.allow_shadow_copies:
            yield f"copy {copy.id} is a shadow, but allow_shadow_copies is false"
    for call in subject.plan.calls:
        recomputes = call.recompute not in (None, "none")
        if recomputes and not constraints.allow_recompute:
            yield f"call {call.id} recomputes {call.recompute}, but allow_recompute is false"


def _batches_are_even(subject: Subject) -> Iterator[str]:
    """Data parallelism × micro-batch divides the sequences of an update, or of a scoring call."""
    for call, copy in subject.placed_calls():
        if call.kind == "generate":
            continue
        batch = _sequences_at_once(subject.calls[call.id])
        rows = copy.layout.data_parallel_size * (call.micro_batch_size or 1)
        if batch % rows:
            yield (
                f"call {call.id}: data parallel × micro-batch = {rows} does not divide its batch "
                f"of {batch} sequences, and require_even_batch is set"
            )


def _sequences_at_once(call: Call) -> int:
    if call.kind != "train":
        return call.num_sequences
    return -(-call.epochs * call.num_sequences // max(call.num_updates, 1))
