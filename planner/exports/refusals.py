"""Why a framework cannot be told a plan: every limit of it that the plan breaks."""

from collections.abc import Iterator

from automap.planner.cost.constants import HOST_SHARE
from automap.planner.errors import Reason
from automap.planner.exports.batches import micro_batches, mini_batch_sequences
from automap.planner.exports.engine_memory import start_bytes
from automap.planner.exports.layouts import layout_refusals
from automap.planner.exports.ranges import range_refusals
from automap.planner.exports.reasons import Broken, reasons_of
from automap.planner.exports.serving import longest_sequence, serving_bytes
from automap.planner.exports.slime.model import unsaid
from automap.planner.exports.subject import Subject, overlap
from automap.planner.exports.turns import turn_refusals
from automap.planner.spec import MEMORY_SETTINGS, streaming_field, tail_field
from automap.planner.units import GIB

PRECISIONS = {"bf16": "bfloat16", "fp16": "float16"}


def refusals(subject: Subject) -> list[Reason]:
    """All reasons why the framework cannot run a plan; empty: it can."""
    if subject.job.spec.algorithm not in subject.framework.algorithms:
        return reasons_of(subject, [Broken("algorithm", "job", _algorithm(subject))])
    return reasons_of(subject, _broken(subject))


def _broken(subject: Subject) -> list[Broken]:
    return [
        *_job_refusals(subject),
        *_kind_refusals(subject),
        *_loop_refusals(subject),
        *_precision_refusals(subject),
        *range_refusals(subject),
        *layout_refusals(subject),
        *turn_refusals(subject),
        *_batch_refusals(subject),
        *_memory_refusals(subject),
    ]


def _algorithm(subject: Subject) -> str:
    spec = subject.job.spec
    return f"the algorithm is {spec.algorithm}" if spec.algorithm else "it has its own dataflow"


def _job_refusals(subject: Subject) -> Iterator[Broken]:
    spec = subject.job.spec
    field = streaming_field(spec) or tail_field(spec)
    if field is not None:
        yield Broken("streams", "job", f"{field} is true")
    for call in subject.plan.calls:
        if call.tail is not None or call.streamed_from:
            yield Broken("streams", call.id, "it has a tail, or begins early")
    yield from _flow_refusals(subject)
    if spec.workload.pretrain_loss:
        yield Broken("pretrain", "job", "workload.pretrain_loss is true")
    if spec.search.staleness and not subject.apart:
        found = f"staleness is {spec.search.staleness}, and it generates on its own GPUs"
        yield Broken("staleness_together", "actor", found)
    elif spec.search.staleness and spec.algorithm == "dapo":
        found = f"staleness is {spec.search.staleness}, and the algorithm dapo"
        yield Broken("stale_filter", "job", found)
    elif not spec.search.staleness and not spec.search.iteration_barrier:
        yield Broken("barrier", "job", "iteration_barrier is false, and staleness 0")
    if subject.apart and spec.workload.epochs > 1:
        found = f"epochs is {spec.workload.epochs}, and the actor generates apart"
        yield Broken("epochs_apart", "actor", found)
    positions = subject.job.models["actor"].architecture.max_position_embeddings
    if longest_sequence(subject) > positions:
        found = f"sequences of {longest_sequence(subject)} tokens, and {positions} positions"
        yield Broken("positions", "actor", found)
    yield from _place_refusals(subject)


def _flow_refusals(subject: Subject) -> Iterator[Broken]:
    """Generation without batches, or in them where a framework never drains."""
    spec, rules = subject.job.spec, subject.target.continuous
    if rules is not None and (refused := rules.refuses(spec.search, spec.algorithm)) is not None:
        yield Broken("continuous", "job", f"{refused[0]}: {refused[1]}")
    elif rules is None and spec.search.continuous_rollouts:
        yield Broken("continuous", "job", "search.continuous_rollouts is true")


def _place_refusals(subject: Subject) -> Iterator[Broken]:
    """Where rollouts are, for frameworks that have them only apart, or only together."""
    if not subject.apart:
        yield Broken("together", "actor", "it generates on the GPUs that train it")
    elif subject.job.spec.algorithm == "remax":
        yield Broken("remax_apart", "actor", "it generates apart")


def _kind_refusals(subject: Subject) -> Iterator[Broken]:
    """What kinds of jobs and models some frameworks lack."""
    spec = subject.job.spec
    if spec.workload.epochs > 1:
        yield Broken("epochs", "job", f"epochs is {spec.workload.epochs}")
    if spec.search.staleness > 1:
        yield Broken("staleness", "job", f"staleness is {spec.search.staleness}")
    if not spec.workload.packed_sequences:
        yield Broken("padded", "job", "packed_sequences is false")
    if spec.workload.old_log_probs == "rollout":
        yield Broken("rollout_log_probs", "job", "old_log_probs is rollout")
    if subject.reward is not None:
        yield Broken("reward_model", "reward", f"copy {subject.reward.id} has GPUs")
    if spec.workload.optimizer != "adam":
        yield Broken("optimizer", "job", f"optimizer is {spec.workload.optimizer}")
    if spec.workload.old_log_probs != "recompute":
        yield Broken("old_log_probs", "job", f"old_log_probs is {spec.workload.old_log_probs}")
    yield from _model_refusals(subject)


def _model_refusals(subject: Subject) -> Iterator[Broken]:
    """Models and losses that some frameworks lack."""
    for role, model in subject.job.models.items():
        if model.lora_rank:
            yield Broken("adapters", role, f"lora has rank {model.lora_rank}")
    if subject.says_model and subject.framework.knows("model_layers"):
        why = unsaid(subject.job.models["actor"].architecture)
        if why is not None:
            yield Broken("architecture", "actor", why)


def _loop_refusals(subject: Subject) -> Iterator[Broken]:
    """What trainers whose loop is fixed lack."""
    spec = subject.job.spec
    if subject.apart and spec.search.staleness:
        yield Broken("staleness_apart", "actor", f"staleness is {spec.search.staleness}")
    if spec.workload.packed_sequences:
        yield Broken("packed", "job", "packed_sequences is true")
    place = dict(subject.target.kl_places).get(spec.algorithm or "")
    if spec.workload.kl not in ("none", place):
        yield Broken("kl_place", "job", f"kl is {spec.workload.kl}, the algorithm {spec.algorithm}")
    if spec.workload.turns > 1:
        yield Broken("turns", "job", f"turns is {spec.workload.turns}")


def _precision_refusals(subject: Subject) -> Iterator[Broken]:
    workload, framework = subject.job.spec.workload, subject.framework
    if workload.precision not in framework.precisions:
        yield Broken("precision", "job", f"precision is {workload.precision}")
    if workload.training_precision not in (None, workload.precision):
        found = f"training_precision is {workload.training_precision}"
        yield Broken("precision", "job", found)
    for field in MEMORY_SETTINGS:
        if (value := getattr(workload, field)) not in (None, False, "fp32"):
            yield Broken("precision", "job", f"{field} is {value}")
    if workload.rollout_precision not in (
        None,
        workload.precision,
        *framework.rollout_precisions,
    ):
        found = f"rollout_precision is {workload.rollout_precision}"
        yield Broken("precision", "actor", found)
    engine = workload.rollout_engine
    sayable = engine == "vllm" and framework.knows("cache_precision", role="rollout")
    if workload.rollout_cache_precision == "fp8" and not sayable:
        yield Broken("cache_precision", "actor", f"an fp8 cache, and {engine}")
    if engine not in framework.rollout_engines:
        yield Broken("engine_bytes", "actor", f"rollout_engine is {engine}")


def _batch_refusals(subject: Subject) -> Iterator[Broken]:
    workload = subject.job.spec.workload
    if workload.prompts_per_iteration % workload.updates_per_epoch:
        found = f"{workload.updates_per_epoch} updates of {workload.prompts_per_iteration} prompts"
        yield Broken("optimizer_steps", "job", found)
        return
    mini = mini_batch_sequences(subject)
    for copy in subject.trainers:
        ranks = copy.layout.data_parallel_size
        if copy.role != "reference" and mini % ranks:
            found = f"{mini} sequences of a mini-batch on {ranks} data ranks"
            yield Broken("ranks_divide", copy.role, found)
        if copy.layout.context_parallel_size > 1 and not workload.packed_sequences:
            yield Broken("padded_context", copy.role, "packed_sequences is false")
        prompts = workload.prompts_per_iteration
        if prompts % ranks or ranks > mini:
            found = f"{prompts} prompts, {mini} sequences of an update, on {ranks} data ranks"
            yield Broken("prompts_divide", copy.role, found)
        batches = micro_batches(subject, copy)
        train, forward = batches.train_sequences, batches.forward_sequences
        if None not in (train, forward) and train != forward:
            found = f"micro-batches of {train} and {forward} sequences"
            yield Broken("role_micro_batch", copy.role, found)
        if batches.dynamic:
            several = f"{batches.train_sequences} and {batches.forward_sequences}"
            yield Broken("micro_batches", copy.role, f"micro-batches of {several} sequences")
        differ = batches.train_tokens != batches.forward_tokens
        # A budget that a launch has is one for both, whatever a rank's sequences make of it.
        stated = subject.states_budget(copy.role)
        if copy.role == "critic" and batches.dynamic and differ and not stated:
            sizes = f"{batches.train_sequences} and {batches.forward_sequences}"
            found = f"micro-batches of {sizes} do not divide a rank's sequences"
            yield Broken("critic_tokens", copy.role, found)
    yield from _adapter_refusals(subject)
    yield from _shared_refusals(subject)


def _shared_refusals(subject: Subject) -> Iterator[Broken]:
    """Calls that differ in what one argument may say for all of them, or for all of a kind."""
    sizes = {c.id: c.micro_batch_size for c in subject.plan.calls if c.micro_batch_size}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size}" for name, size in sizes.items())
        yield Broken("one_batch_size", "job", f"micro-batches of {found}")
    for kind in ("train", "forward"):
        calls = [c for c in subject.plan.calls if c.kind == kind and c.copy_id is not None]
        for call in calls[1:]:
            first = calls[0]
            if call.micro_batch_size != first.micro_batch_size:
                found = f"{call.micro_batch_size}, {first.id} {first.micro_batch_size}"
                yield Broken("one_micro_batch", call.id, f"a micro-batch of {found}")
            if (call.recompute or "none") != (first.recompute or "none"):
                found = f"recompute {call.recompute}, {first.id} {first.recompute}"
                yield Broken("one_recompute", call.id, found)


def _adapter_refusals(subject: Subject) -> Iterator[Broken]:
    """With LoRA the reference is the actor without its adapter, so one engine."""
    reference, actor = subject.call("reference", "forward"), subject.call("actor", "forward")
    if "reference" in subject.homes or reference is None or actor is None:
        return
    if reference.micro_batch_size != actor.micro_batch_size:
        found = f"micro-batches of {reference.micro_batch_size} and {actor.micro_batch_size}"
        yield Broken("adapter_reference", "reference", found)


def _memory_refusals(subject: Subject) -> Iterator[Broken]:
    for call in subject.generations:
        needed, capacity = start_bytes(subject, call), call.capacity_bytes
        if needed > capacity:
            found = f"{needed / GIB:.1f} GiB of {capacity / GIB:.1f} when the engine starts"
            yield Broken("cache_free", call.id, found)
    yield from _serving_refusals(subject)
    copies = subject.plan.copies
    for pool, node in sorted(subject.nodes(copies)):
        used = host_bytes(subject, pool, node)
        [held] = [each for each in subject.job.pools if each.name == pool]
        if used > HOST_SHARE * held.host_memory_bytes:
            memory = held.host_memory_bytes
            found = f"{used / GIB:.0f} GiB on a host of {memory / GIB:.0f}"
            yield Broken("host_memory", f"node {node} of {pool}", found)


def _serving_refusals(subject: Subject) -> Iterator[Broken]:
    reward, call = subject.reward, subject.call("reward", "forward")
    served = subject.framework.knows("generation_engine", role="reward")
    if reward is None or call is None or not served:
        return
    others = [each for each in subject.plan.copies if each is not reward and overlap(each, reward)]
    needed = serving_bytes(subject, reward, call) + sum(each.resident_bytes for each in others)
    if needed > call.capacity_bytes:
        found = f"{needed / GIB:.1f} GiB of {call.capacity_bytes / GIB:.1f} when it is served"
        yield Broken("cache_free", call.id, found)


def host_bytes(subject: Subject, pool: str, node: int) -> int:
    """Bytes that a plan keeps on one host, and a further copy of the actor where it has one."""
    total = 0
    for copy in subject.plan.copies:
        each = subject.pool(copy).gpus_per_node
        ends = copy.first_gpu + copy.num_gpus, each * (node + 1)
        gpus = max(min(ends) - max(copy.first_gpu, each * node), 0) if copy.pool == pool else 0
        total += gpus * (
            copy.host_bytes + (_swapped_bytes(subject) if copy == subject.actor else 0)
        )
    return total


def _swapped_bytes(subject: Subject) -> int:
    """Bytes per GPU of the actor's weights that wait on the host while others are in their place.

    Where generation is apart, old log-probabilities of further mini-batches may be computed by the
    weights before the first one, unless they are those of the rollout.
    """
    weights, computed = subject.actor.bytes_by_kind.weights, subject.call("actor", "forward")
    if computed is not None:
        weights = max(computed.bytes_by_kind.weights, weights)
    swaps = subject.framework.swaps_weights_for
    if "reference" in swaps and "reference" in subject.homes and subject.actor.offload == "none":
        return weights
    several = subject.apart and subject.job.spec.workload.updates_per_epoch > 1
    return weights if "old_log_probs" in swaps and several and computed is not None else 0
