"""Rules of the spec's constraints: what the user pinned, joined, parted, fixed or forbade."""

from collections.abc import Iterator

from automap.planner.check.subject import Subject, span_of
from automap.planner.dataflow.graph import Call
from automap.planner.plan.types import CopyPlan
from automap.planner.spec import ParallelismConstraint

STORED_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
    "sharding",
)


def broken_constraints(subject: Subject) -> Iterator[str]:
    """Every constraint of the spec that the plan does not respect."""
    yield from _roles_are_in_their_pools(subject)
    yield from _pairs_are_colocated(subject)
    yield from _pairs_are_separate(subject)
    for role, wanted in subject.job.spec.constraints.parallelism.items():
        yield from _home_has_the_fixed_sizes(subject.homes()[role], wanted)
        yield from _calls_have_the_fixed_settings(subject, role, wanted)
    yield from _forbidden_means_are_unused(subject)
    if subject.job.spec.constraints.require_even_batch:
        yield from _batches_are_even(subject)


def _roles_are_in_their_pools(subject: Subject) -> Iterator[str]:
    pinned = subject.job.spec.constraints.pools
    for copy in subject.plan.copies:
        if copy.pool != pinned.get(copy.role, copy.pool):
            yield (
                f"copy {copy.id} lies in pool {copy.pool}, but {copy.role} is pinned to "
                f"{pinned[copy.role]}"
            )


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


def _home_has_the_fixed_sizes(home: CopyPlan, wanted: ParallelismConstraint) -> Iterator[str]:
    found: dict[str, int | str] = {name: getattr(home.layout, name) for name in STORED_SIZES}
    found["num_gpus"] = home.num_gpus
    for name, value in found.items():
        fixed = getattr(wanted, name)
        if fixed is not None and value != fixed:
            yield f"copy {home.id} has {name} {value}, but the spec fixes {fixed}"


def _calls_have_the_fixed_settings(
    subject: Subject, role: str, wanted: ParallelismConstraint
) -> Iterator[str]:
    """Micro-batch of training and scoring, recomputation of training, the engine's tensor size."""
    for call in subject.plan.calls:
        if call.role != role:
            continue
        pairs: list[tuple[str, object, object]] = []
        if call.kind != "generate":
            pairs.append(("micro_batch_size", call.micro_batch_size, wanted.micro_batch_size))
        if call.kind == "train":
            pairs.append(("recompute", call.recompute, wanted.recompute))
        if call.kind == "generate" and call.parallelism is not None:
            tensor = call.parallelism.tensor_parallel_size
            fixed_tensor = wanted.generation_tensor_parallel_size
            pairs.append(("generation_tensor_parallel_size", tensor, fixed_tensor))
        for name, value, fixed in pairs:
            if fixed is not None and value != fixed:
                yield f"call {call.id} has {name} {value}, but the spec fixes {fixed}"


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
