"""Which sizes, sharding and recomputation a framework's engines can be given."""

from collections.abc import Iterator

from automap.planner.exports.reasons import Broken
from automap.planner.exports.subject import Subject
from automap.planner.exports.zero import zero_refusals
from automap.planner.plan.types import CallPlan, CopyPlan, Parallelism

VIRTUAL = "virtual_pipeline_parallel_size"
SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    VIRTUAL,
    "context_parallel_size",
    "expert_parallel_size",
)


def layout_refusals(subject: Subject) -> Iterator[Broken]:
    """Why a framework cannot lay out the models of a plan as it does."""
    if subject.engine == "zero":
        yield from zero_refusals(subject)
    for copy in subject.trainers if subject.engine != "zero" else ():
        if subject.engine_of(copy) not in subject.framework.engines:
            yield Broken("one_engine", copy.role, f"the engine is {subject.engine_of(copy)}")
        elif subject.engine_of(copy) != subject.engine and _has_one_engine(subject):
            found = f"{subject.engine_of(copy)}, the actor {subject.engine}"
            yield Broken("one_engine", copy.role, found)
        elif subject.engine_of(copy) == "megatron":
            yield from _megatron(subject, copy)
        else:
            yield from _fsdp(subject, copy)
        yield from _offload(subject, copy)
    yield from _host_optimizers(subject)
    yield from _models(subject)
    yield from _tensor_groups(subject)
    yield from _generations(subject)


def _has_one_engine(subject: Subject) -> bool:
    """Whether the framework has one kind of engine for all models of a launch."""
    return any(limit.name == "one_engine" for limit in subject.framework.limits)


def _megatron(subject: Subject, copy: CopyPlan) -> Iterator[Broken]:
    layout, actor = copy.layout, subject.actor.layout
    # A reference is priced without virtual stages, which only training gains from; it has them.
    given = [size for size in SIZES if copy.role != "reference" or size != VIRTUAL]
    if any(getattr(layout, size) != getattr(actor, size) for size in given):
        found = f"{layout.in_short()}, the actor {actor.in_short()}"
        yield Broken("one_layout", copy.role, found)
    trains = copy.role != "reference"
    known = subject.framework.shardings if trains else ("none",)
    whole = layout.sharding == "none" and layout.data_parallel_size == 1
    if layout.sharding not in known and not whole:
        yield Broken("megatron_sharding", copy.role, f"sharding {layout.sharding}")
    if layout.virtual_pipeline_parallel_size > 1:
        yield Broken("virtual_stages", copy.role, layout.in_short())
    layers = stages_of(subject, copy)
    if layers is not None and len(set(layers)) > 1:
        found = f"stages of {', '.join(map(str, layers))} layers"
        yield Broken("equal_stages", copy.role, found)
    if layers is not None and len(set(layers[1:-1])) > 1:
        found = f"stages of {', '.join(map(str, layers))} layers"
        yield Broken("stages", copy.role, found)


def _offload(subject: Subject, copy: CopyPlan) -> Iterator[Broken]:
    """What has to be on the host of a model, where the framework alone decides that."""
    found = f"offload {copy.offload}"
    if copy.role == "reference":
        if copy.offload != "weights":
            yield Broken("reference_host", copy.role, found)
        return
    if copy.offload != "none":
        yield Broken("offload_training", copy.role, found)
    if copy.offload == "optimizer":
        yield Broken("offload_optimizer", copy.role, found)
    if copy.offload != "weights" and copy is subject.actor and not subject.apart:
        yield Broken("offload_to_generate", copy.role, found)
    if copy.offload != "weights" and "critic" in subject.homes:
        yield Broken("offload_critic", copy.role, found)


def _host_optimizers(subject: Subject) -> Iterator[Broken]:
    """Optimizers that are to update on the host, and whose engine has none that does."""
    if not subject.job.spec.workload.optimizer_cpu_offload:
        return
    decision, found = "optimizer_cpu_offload", "workload.optimizer_cpu_offload is true"
    for copy in subject.trainers:
        engine, layout = subject.engine_of(copy), copy.layout
        if copy.role == "reference":
            continue
        if not subject.framework.knows(decision, role=copy.role, engine=engine):
            yield Broken("host_optimizer", copy.role, f"{found}, and the engine {engine}")
        elif layout.sharding == "none" and layout.data_parallel_size > 1:
            yield Broken("host_optimizer", copy.role, f"{found}, and sharding none")


def stages_of(subject: Subject, copy: CopyPlan) -> list[int] | None:
    """Layers on each pipeline stage of a copy; None: all have equally many."""
    num_layers = subject.job.models[copy.role].architecture.num_layers
    return copy.layers_per_stage or copy.layout.uneven_stages(num_layers)


def _fsdp(subject: Subject, copy: CopyPlan) -> Iterator[Broken]:
    layout = copy.layout
    told, tensor = subject.framework.fsdp_sizes, "tensor_parallel_size"
    if any(getattr(layout, size) > 1 for size in SIZES if size not in told):
        yield Broken("fsdp_sizes", copy.role, layout.in_short())
    if layout.tensor_parallel_size > 1 and subject.job.models[copy.role].architecture.num_experts:
        yield Broken("fsdp_experts", copy.role, layout.in_short())
    actor = subject.actor.layout
    if tensor in told and layout.tensor_parallel_size != actor.tensor_parallel_size:
        yield Broken("one_layout", copy.role, f"{layout.in_short()}, the actor {actor.in_short()}")
    known = ("full",) if copy.role == "reference" else subject.framework.fsdp_shardings
    if copy.num_gpus > 1 and layout.sharding not in known:
        yield Broken("fsdp_sharding", copy.role, f"sharding {layout.sharding}")
    if copy.role == "reference" and copy.offload != "weights":
        yield Broken("fsdp_reference", copy.role, f"offload {copy.offload}")
    train = subject.call(copy.role, "train")
    if train is not None and train.recompute == "selective":
        yield Broken("fsdp_recompute", copy.role, "recompute selective")


def _models(subject: Subject) -> Iterator[Broken]:
    models = subject.job.models
    if "reference" in models and models["reference"].architecture != models["actor"].architecture:
        yield Broken("reference_model", "reference", "it is not the actor's architecture")


def _tensor_groups(subject: Subject) -> Iterator[Broken]:
    sized = [(copy.id, copy, copy.layout) for copy in subject.plan.copies]
    copies = {copy.id: copy for copy in subject.plan.copies}
    for call in subject.generations:
        if call.parallelism is not None and call.copy_id:
            sized.append((call.id, copies[call.copy_id], call.parallelism))
    for name, copy, layout in sized:
        used = subject.node_range(copy)
        each = subject.pool(copy).gpus_per_node if used is None else used.gpus_per_node
        if each % layout.tensor_parallel_size:
            found = f"tensor size {layout.tensor_parallel_size} on nodes of {each} GPUs"
            yield Broken("tensor_in_node", name, found)


def _generations(subject: Subject) -> Iterator[Broken]:
    first = subject.generations[0]
    for call in subject.generations:
        if _engine(call) != _engine(first):
            yield Broken("generate_alike", call.id, f"it differs from {first.id}")
    layout = first.parallelism
    if layout is None:
        return
    if layout.pipeline_parallel_size > 1:
        yield Broken("engine_pipeline", first.id, layout.in_short())
    replicas = attention_replicas(layout)
    each = layout.tensor_parallel_size * replicas
    experts = layout.expert_parallel_size
    whole = replicas == 1 or each % subject.pool(subject.rollout).gpus_per_node == 0
    sayable = subject.framework.knows("engine_expert_parallel_size", role="rollout")
    if experts not in ((1, each) if sayable else (1,)) or not whole:
        yield Broken("engine_experts", first.id, layout.in_short())
    if experts > 1:
        yield Broken("engine_expert_groups", first.id, layout.in_short())
    num_gpus = subject.rollout.num_gpus
    if num_gpus % each:
        found = f"engines of {each} GPUs on {num_gpus}"
        yield Broken("engines_divide", first.id, found)


def attention_replicas(layout: Parallelism) -> int:
    """Attention replicas of one engine: more than one where its experts span several."""
    return max(layout.expert_parallel_size // layout.tensor_parallel_size, 1)


def _engine(call: CallPlan) -> tuple[object, ...]:
    return call.copy_id, call.parallelism, call.kv_cache_bytes
