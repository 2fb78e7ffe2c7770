"""A plan that NeMo-RL can run, as the launch of it: everything that the plan decides is set."""

import math

from automap.planner.cost.constants import PREFILL_CHUNK_TOKENS
from automap.planner.exports.batches import micro_batches
from automap.planner.exports.collected import collected
from automap.planner.exports.documents import yaml_text, yaml_value
from automap.planner.exports.launch import Launch, Placeholder
from automap.planner.exports.layouts import SIZES, VIRTUAL, attention_replicas, stages_of
from automap.planner.exports.lines import Lines
from automap.planner.exports.memory_share import engine_cache, memory_share
from automap.planner.exports.models import model_of
from automap.planner.exports.nemo_rl.recipe import RECIPE, recipe_of
from automap.planner.exports.nemo_rl.script import FOLDER, script_of
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.exports.serving import longest_sequence
from automap.planner.exports.subject import Subject
from automap.planner.exports.workload import (
    ENDLESS,
    add_clips,
    add_host_optimizer,
    add_iterations,
    add_mini_batch,
    add_prompts,
    recompute_of,
    sequences_at_once,
)

OPTIMIZERS = {
    ("megatron", "adam"): "adam",
    ("megatron", "sgd"): "sgd",
    ("fsdp", "adam"): "torch.optim.AdamW",
    ("fsdp", "sgd"): "torch.optim.SGD",
}
"""(engine, `workload.optimizer`) → its name there."""


def launch_of(subject: Subject) -> Launch:
    """The launch of a plan that nothing refuses."""
    lines = Lines(subject.framework, subject.engine, yaml_value, yaml_text)
    _add_cluster(subject, lines)
    _add_run(subject, lines)
    _add_algorithm(subject, lines)
    _add_batches(subject, lines)
    _add_layout(subject, lines)
    _add_engine(subject, lines)
    environment = {}
    if subject.engine == "megatron":
        # Collectives of tensor groups and products start in the order in which they are queued.
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    folder = Placeholder(variable=FOLDER, what="folder of NeMo-RL, at its release")
    launch = collected(subject, lines, environment=environment, placeholders=[folder])
    files = {RECIPE: recipe_of(subject, launch)}
    return launch.model_copy(update={"script": script_of(subject, launch), "files": files})


def _add_cluster(subject: Subject, lines: Lines) -> None:
    nodes, each = len(subject.nodes(subject.plan.copies)), len(subject.gpus_of_node())
    because = f"{nodes} nodes, of each {each} GPUs"
    lines.add("nodes", nodes, because)
    lines.add("gpus_per_node", each, because)
    rollout, role = subject.rollout, "rollout"
    where = "on GPUs of its own" if subject.apart else "on the policy's GPUs"
    generates = f"{subject.generations[0].id} {where}"
    lines.add("colocated", not subject.apart, generates)
    several = nodes > 1
    own = subject.apart
    on_nodes = rollout.num_gpus // each if several else 1
    lines.add("rollout_nodes", on_nodes if own else None, generates, role=role)
    of_each = each if several else rollout.num_gpus
    lines.add("rollout_gpus_per_node", of_each if own else None, generates, role=role)
    staleness = subject.job.spec.search.staleness
    because = f"search.staleness: {staleness}"
    lines.add("synchrony", staleness > 0, because)
    lines.add("staleness", max(staleness, 1), because)
    lines.add("importance_correction", staleness > 0, because)
    search = subject.job.spec.search
    flows, keeps = bool(search.continuous_rollouts), bool(search.keep_cache_at_sync)
    lines.add("weights_in_flight", flows, f"search.continuous_rollouts: {flows}")
    because, again = f"search.keep_cache_at_sync: {keeps}", flows and not keeps
    lines.add("caches_again", again, because)


def _add_run(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    lines.ask("model", "ACTOR_MODEL", model_of(subject, "actor"), role="actor")
    iterations, every = workload.iterations, workload.checkpoint_every_iterations
    add_iterations(subject, lines)
    lines.add("passes_over_prompts", ENDLESS, f"workload.iterations: {iterations}")
    lines.add("validation", 0, "the plan has no validation")
    lines.add("validation_first", False, "the plan has no validation")
    lines.add("logger", True, "automap calibrate reads what TensorBoard is given")
    because = f"workload.checkpoint_every_iterations: {every}"
    lines.add("with_checkpoints", every is not None, because)
    if every is not None:
        lines.add("checkpoints", every, because)
        lines.ask("save", "SAVE_FOLDER", "folder that checkpoints go to")


def _add_algorithm(subject: Subject, lines: Lines) -> None:
    workload, algorithm = subject.job.spec.workload, subject.job.spec.algorithm or ""
    because = f"algorithm: {algorithm}"
    lines.add("advantage", subject.framework.algorithms[algorithm], because)
    add_clips(subject, lines)
    lines.add("dynamic_sampling", algorithm == "dapo", because)
    accepted = workload.expected_acceptance if algorithm == "dapo" else 1.0
    # Whole prompts: NeMo-RL multiplies, and takes the whole number below.
    at_once = math.ceil(workload.prompts_per_iteration / accepted)
    multiplier = at_once / workload.prompts_per_iteration
    lines.add("batch_multiplier", multiplier, f"workload.expected_acceptance: {accepted:g}")
    because = f"workload.kl: {workload.kl}"
    lines.add("kl_in_reward", workload.kl == "reward", because)
    if workload.kl == "none":
        lines.add("kl_loss_coefficient", 0.0, because)
    else:
        what = "coefficient of the KL divergence, above 0"
        lines.ask("kl_loss_coefficient", "KL_COEFFICIENT", what)


def _add_batches(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    add_prompts(subject, lines)
    add_mini_batch(subject, lines)
    for what, longest in (
        ("prompt", workload.prompt_length.max_tokens),
        ("response", workload.response_length.max_tokens),
    ):
        lines.add(f"{what}_length", longest, f"workload.{what}_length: at most {longest}")
    longest = longest_sequence(subject)
    lines.add("longest_sequence", longest, "longest prompt and response")
    lines.add("longest_sequence", longest, "longest prompt and response", role="rollout")
    lines.add("turns", workload.turns, f"workload.turns: {workload.turns}")
    found = micro_batches(subject, subject.actor)
    sizes = f"{found.train_sequences} and {found.forward_sequences}"
    because = f"micro-batches of sequences: {sizes}; as packed tokens"
    lines.add("dynamic_batches", True, because)
    lines.add("train_tokens", found.train_tokens, because)
    lines.add("forward_tokens", found.forward_tokens, because)
    lines.add("padded_tokens", False, because)
    # One number for both: with larger tensor sizes NeMo-RL asks for that, and the tokens count.
    for decision in ("train_micro_batch", "forward_micro_batch"):
        lines.add(decision, found.train_sequences, because)


def _add_layout(subject: Subject, lines: Lines) -> None:
    actor, engine = subject.actor, subject.engine
    layout = actor.layout
    chosen = f"engine of copy {actor.id}: {engine}"
    lines.add("with_megatron", engine == "megatron", chosen)
    lines.add("with_dtensor", engine == "fsdp", chosen)
    workload = subject.job.spec.workload
    precision = PRECISIONS[workload.precision]
    lines.add("precision", precision, f"workload.precision: {workload.precision}")
    offload = f"copy {actor.id}: offload {actor.offload}"
    lines.add("offload_weights", actor.offload == "weights", offload)
    because = f"copy {actor.id}: {layout.in_short()}"
    sizes = [size for size in SIZES if size != VIRTUAL]
    for size in sizes if engine == "megatron" else ("tensor_parallel_size",):
        lines.add(size, getattr(layout, size), because)
    if engine == "megatron":
        _add_megatron(subject, lines)
    else:
        for size in ("context_parallel_size", "expert_parallel_size", "replica_groups"):
            lines.add(size, 1, f"copy {actor.id}: sharding {layout.sharding}")
    recompute, because = recompute_of(subject)
    lines.add("recompute_on", recompute != "none", because)
    if engine == "megatron" and recompute != "none":
        lines.add("recompute", recompute, because)
        lines.add("recompute_modules", ["core_attn"], because)
    optimizer = OPTIMIZERS[engine, workload.optimizer]
    lines.add("optimizer", optimizer, f"workload.optimizer: {workload.optimizer}")


def _add_megatron(subject: Subject, lines: Lines) -> None:
    actor = subject.actor
    layout = actor.layout
    because = f"copy {actor.id}: {layout.in_short()}"
    lines.add("sequence_parallel", layout.tensor_parallel_size > 1, because)
    # Experts are split over the expert groups first, each over what is left of the tensor size.
    experts = subject.job.models["actor"].architecture.num_experts
    each = max(layout.tensor_parallel_size // layout.expert_parallel_size, 1) if experts else 1
    lines.add("expert_tensor_parallel_size", each, because)
    lines.add("sharded_optimizer", True, f"copy {actor.id}: sharding {layout.sharding}")
    add_host_optimizer(subject, lines)
    layers = stages_of(subject, actor)
    shown = "equally long stages" if layers is None else f"stages of {layers} layers"
    for name, place in (("first_stage_layers", 0), ("last_stage_layers", -1)):
        lines.add(name, None if layers is None else layers[place], f"copy {actor.id}: {shown}")


def _add_engine(subject: Subject, lines: Lines) -> None:
    call, role = subject.generations[0], "rollout"
    workload, layout = subject.job.spec.workload, call.parallelism
    assert layout is not None, "a generation has a layout"
    because, replicas = f"{call.id}: {layout.in_short()}", attention_replicas(layout)
    engine = workload.rollout_engine
    lines.add("generation_engine", engine, f"workload.rollout_engine: {engine}", role=role)
    lines.add("engine_tensor_parallel_size", layout.tensor_parallel_size, because, role=role)
    lines.add("engine_pipeline_parallel_size", 1, because, role=role)
    lines.add("engine_expert_parallel_size", layout.expert_parallel_size, because, role=role)
    stale = subject.job.spec.search.staleness > 0
    one_by_one = stale or replicas > 1
    why = "sequences one by one for stale rollouts, and for attention replicas"
    lines.add("engine_async", one_by_one, why, role=role)
    engines = layout.data_parallel_size // replicas
    each, shared = sequences_at_once(subject, call, engines)
    lines.add("concurrent_sequences", each, shared, role=role)
    lines.add("cache_bytes", *engine_cache(subject, call), role=role)
    share, why = memory_share(subject, call)
    lines.add("memory_share", share, why, role=role)
    lines.add("prefill_tokens", PREFILL_CHUNK_TOKENS, "what the price assumes", role=role)
    quantised = workload.rollout_precision == "fp8"
    stated = f"workload.rollout_precision: {workload.rollout_precision}"
    precision = "fp8" if quantised else PRECISIONS[workload.precision]
    lines.add("rollout_precision", precision, stated, role=role)
