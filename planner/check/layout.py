"""Rules on where copies lie and how models are split over their GPUs."""

from collections.abc import Iterator

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.check.subject import Subject
from automap.planner.job.job import Model
from automap.planner.plan.types import CallPlan, CopyPlan, GenerationTail, Parallelism


def broken_layouts(subject: Subject) -> Iterator[str]:
    """Ranges and sizes without which the cost model would price something that cannot run."""
    for copy in subject.plan.copies:
        pool, model = subject.pool_of(copy), subject.job.models[copy.role]
        name = f"copy {copy.id}"
        yield from _range_is_in_the_pool(copy, pool)
        yield from _range_is_aligned(copy, pool)
        yield from _sizes_multiply(name, copy.layout, copy.num_gpus)
        yield from _model_divides(name, copy.layout, model.architecture)
        yield from _groups_stay_in_their_domain(subject, name, copy.layout, copy)
        yield from _storage_suits_the_model(copy, model)
        yield from _data_ranks_have_sequences(subject, copy, model)
    for call, copy in subject.placed_calls():
        assert call.parallelism is not None, "the references were checked"
        yield from _call_has_the_layout_of_its_copy(call, copy)
        if call.kind == "generate":
            yield from _engine_is_sound(subject, call, copy)


def _range_is_in_the_pool(copy: CopyPlan, pool: Pool) -> Iterator[str]:
    usable, end = pool.num_gpus - pool.kept_free_gpus, copy.first_gpu + copy.num_gpus
    if copy.first_gpu < 0 or end > pool.num_gpus:
        yield (
            f"copy {copy.id} takes GPUs {copy.first_gpu} to {end - 1} of pool {pool.name}, which "
            f"has {pool.num_gpus}"
        )
    elif end > usable:
        yield (
            f"copy {copy.id} takes GPUs {copy.first_gpu} to {end - 1} of pool {pool.name}, whose "
            f"last {pool.kept_free_gpus} are kept free"
        )


def _range_is_aligned(copy: CopyPlan, pool: Pool) -> Iterator[str]:
    """Inside a node at a multiple of its own size; otherwise whole nodes."""
    per_node, count = pool.gpus_per_node, copy.num_gpus
    offset = copy.first_gpu % per_node
    if count < per_node and (offset % count or offset + count > per_node):
        yield (
            f"copy {copy.id} is misaligned: {count} GPUs from offset {offset} of a node of "
            f"{per_node} are not at a multiple of {count} inside it"
        )
    if count >= per_node and (offset or count % per_node):
        yield (
            f"copy {copy.id} is misaligned: {count} GPUs from offset {offset} are not whole nodes "
            f"of {per_node}"
        )


def _sizes_multiply(name: str, layout: Parallelism, num_gpus: int) -> Iterator[str]:
    if layout.num_gpus != num_gpus:
        yield (
            f"{name}: tensor × pipeline × context × data = {layout.num_gpus}, but it has "
            f"{num_gpus} GPUs"
        )


def _model_divides(name: str, layout: Parallelism, shape: ModelArchitecture) -> Iterator[str]:
    """Heads split over tensor ranks, layers over stages, experts over expert groups."""
    tensor, expert = layout.tensor_parallel_size, layout.expert_parallel_size
    if shape.num_attention_heads % tensor:
        yield f"{name}: {tensor} tensor ranks do not divide {shape.num_attention_heads} heads"
    stages = layout.pipeline_parallel_size * layout.virtual_pipeline_parallel_size
    if stages > shape.num_layers:
        yield f"{name}: {stages} pipeline stages for {shape.num_layers} layers"
    if layout.virtual_pipeline_parallel_size > 1 and layout.pipeline_parallel_size == 1:
        yield f"{name}: {stages} virtual stages without a pipeline"
    stage_gpus = tensor * layout.context_parallel_size * layout.data_parallel_size
    if expert > 1 and (shape.num_experts == 0 or shape.num_experts % expert):
        yield f"{name}: {expert} expert ranks do not divide {shape.num_experts} experts"
    if stage_gpus % expert or (expert % tensor and tensor % expert):
        yield (
            f"{name}: expert groups of {expert} do not fit a stage of {stage_gpus} GPUs in tensor "
            f"groups of {tensor}"
        )


def _groups_stay_in_their_domain(
    subject: Subject, name: str, layout: Parallelism, copy: CopyPlan
) -> Iterator[str]:
    """Ranks run tensor first, so a tensor or expert group is consecutive GPUs."""
    pool, spec = subject.pool_of(copy), subject.job.spec
    rollout = layout is not copy.layout or copy.kind == "shadow"
    if spec.constraints.tensor_parallel_across_nodes:
        return
    if rollout and subject.job.rollout_spans_nodes(copy.role, pool):
        return
    domain = pool.nvlink_domain_gpus
    groups = {"tensor": layout.tensor_parallel_size, "expert": layout.expert_parallel_size}
    for kind, size in groups.items():
        for first in range(copy.first_gpu, copy.first_gpu + copy.num_gpus, size):
            if first // domain != (first + size - 1) // domain:
                yield (
                    f"{name}: the {kind} group of GPUs {first} to {first + size - 1} leaves its "
                    f"NVLink domain of {domain}"
                )
                break


def _storage_suits_the_model(copy: CopyPlan, model: Model) -> Iterator[str]:
    """Optimizer state is sharded or offloaded only where there is some; shadows are plain."""
    layout = copy.layout
    if not model.trainable and copy.offload == "optimizer":
        yield f"copy {copy.id} offloads an optimizer, but {model.role} does not train"
    if not model.trainable and layout.sharding in ("optimizer", "gradient"):
        yield f"copy {copy.id} shards its {layout.sharding}, but {model.role} does not train"
    plain = (layout.sharding, copy.offload, layout.context_parallel_size)
    if copy.kind == "shadow" and plain != ("none", "none", 1):
        yield (
            f"shadow {copy.id} has sharding {layout.sharding}, offload {copy.offload} and context "
            f"parallel size {layout.context_parallel_size}; a shadow is whole replicas"
        )


def _data_ranks_have_sequences(subject: Subject, copy: CopyPlan, model: Model) -> Iterator[str]:
    """Data parallelism is at most the sequences of an update; of an iteration without training."""
    workload = subject.job.spec.workload
    updates = workload.updates_per_epoch if model.trainable and copy.kind == "home" else 1
    sequences = -(-workload.num_sequences // updates)
    if copy.layout.data_parallel_size > sequences:
        yield (
            f"copy {copy.id} has {copy.layout.data_parallel_size} data-parallel ranks for "
            f"{sequences} sequences"
        )


def _call_has_the_layout_of_its_copy(call: CallPlan, copy: CopyPlan) -> Iterator[str]:
    """On a home only generate may be laid out anew; what a shadow stores, its engine uses."""
    on_home = copy.kind == "home"
    if not (on_home and call.kind == "generate") and call.parallelism != copy.layout:
        yield f"call {call.id} has another layout than its copy {copy.id}"


def _tail_is_smaller_or_wider(
    call: CallPlan, tail: GenerationTail, engine: Parallelism, copy: CopyPlan
) -> Iterator[str]:
    """On a proper part of the GPUs with the same tensor size, or on all with a multiple of it."""
    tensor, before = tail.tensor_parallel_size, engine.tensor_parallel_size
    if tensor is None and (tail.num_gpus >= copy.num_gpus or copy.num_gpus % tail.num_gpus):
        yield (
            f"the tail of call {call.id} has {tail.num_gpus} GPUs, which is no proper divisor of "
            f"the {copy.num_gpus} of copy {copy.id}"
        )
    if tensor is not None and (tail.num_gpus != copy.num_gpus or tensor <= before):
        yield (
            f"the tail of call {call.id} has tensor size {tensor} on {tail.num_gpus} GPUs; it "
            f"needs more than {before}, on all {copy.num_gpus} of copy {copy.id}"
        )
    if tensor is not None and tensor % before:
        yield f"the tail of call {call.id} has tensor size {tensor}, no multiple of {before}"


def _engine_is_sound(subject: Subject, call: CallPlan, copy: CopyPlan) -> Iterator[str]:
    """Replicas of the engine fill the range; each has sequences to generate."""
    engine, name = call.parallelism, f"engine of call {call.id}"
    assert engine is not None, "the references were checked"
    yield from _sizes_multiply(name, engine, copy.num_gpus)
    yield from _model_divides(name, engine, subject.job.models[copy.role].architecture)
    yield from _groups_stay_in_their_domain(subject, name, engine, copy)
    if engine.context_parallel_size > 1 or engine.virtual_pipeline_parallel_size > 1:
        yield (
            f"{name}: engines know no context parallelism or virtual stages, got "
            f"{engine.context_parallel_size} and {engine.virtual_pipeline_parallel_size}"
        )
    tail = call.tail
    if tail is not None:
        yield from _tail_is_smaller_or_wider(call, tail, engine, copy)
    if engine.data_parallel_size > subject.calls[call.id].num_sequences:
        yield (
            f"{name}: {engine.data_parallel_size} replicas for "
            f"{subject.calls[call.id].num_sequences} sequences"
        )
