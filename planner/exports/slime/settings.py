"""A plan that slime can run, as the launch of it: everything that the plan decides is set."""

import math

from automap.planner.cost.constants import PREFILL_CHUNK_TOKENS
from automap.planner.exports.arguments import argument
from automap.planner.exports.collected import collected
from automap.planner.exports.launch import Launch, Placeholder
from automap.planner.exports.layouts import attention_replicas
from automap.planner.exports.lines import Lines
from automap.planner.exports.memory_share import cache_tokens, engine_cache, memory_share
from automap.planner.exports.models import model_of
from automap.planner.exports.serving import longest_sequence
from automap.planner.exports.slime.model import add_model
from automap.planner.exports.slime.performance import add_performance
from automap.planner.exports.slime.script import script_of
from automap.planner.exports.subject import NodeRange, Subject
from automap.planner.exports.workload import (
    add_clips,
    add_host_optimizer,
    add_iterations,
    add_mini_batch,
    add_prompts,
    sequences_at_once,
)
from automap.planner.plan.types import CallPlan

NONZERO_STD = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
"""slime's own filter of prompts whose responses all score alike."""
FOLDERS = (
    Placeholder(variable="SLIME_FOLDER", what="folder of slime, at its release"),
    Placeholder(variable="MEGATRON_FOLDER", what="folder of the Megatron-LM that slime patches"),
)


def launch_of(subject: Subject) -> Launch:
    """The launch of a plan that nothing refuses."""
    lines = Lines(subject.framework, subject.engine, argument, str)
    _add_cluster(subject, lines)
    add_model(subject.job.models["actor"].architecture, lines)
    _add_checkpoints(subject, lines)
    _add_rollout(subject, lines)
    add_performance(subject, lines)
    _add_algorithm(subject, lines)
    _add_engine(subject, lines)
    # Collectives of tensor groups and products start in the order in which they are queued.
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    launch = collected(subject, lines, environment=environment, placeholders=FOLDERS)
    return launch.model_copy(update={"script": script_of(subject, launch)})


def _add_cluster(subject: Subject, lines: Lines) -> None:
    actor, rollout = subject.actor, subject.rollout
    used = subject.node_range(actor) or NodeRange(1, actor.num_gpus)
    because = f"copy {actor.id}: GPUs {actor.first_gpu}-{actor.first_gpu + actor.num_gpus - 1}"
    lines.add("nodes", used.num_nodes, because, role="actor")
    lines.add("gpus_per_node", used.gpus_per_node, because, role="actor")
    each = len(subject.gpus_of_node())
    lines.add("node_gpus", each, f"{each} GPUs of a node are used")
    where = "on GPUs of its own" if subject.apart else "on the actor's GPUs"
    generates = f"{subject.generations[0].id} {where}"
    lines.add("rollout_gpus", rollout.num_gpus, generates)
    lines.add("colocated", not subject.apart, generates)
    offload = f"copy {actor.id}: offload {actor.offload}"
    lines.add("offload_weights", actor.offload == "weights", offload)
    lines.add("engine_sleeps", not subject.apart, generates, role="rollout")
    staleness = subject.job.spec.search.staleness
    lines.add("syncs", 1, f"search.staleness: {staleness}")


def _add_checkpoints(subject: Subject, lines: Lines) -> None:
    lines.ask("model", "ACTOR_MODEL", model_of(subject, "actor"), role="actor")
    form = "in Megatron's form (torch_dist)"
    lines.ask("start_weights", "ACTOR_CHECKPOINT", f"checkpoint of the actor {form}")
    for role in (role for role in ("reference", "critic") if role in subject.homes):
        what = f"checkpoint of the {role} {form}"
        lines.ask("weights", f"{role.upper()}_CHECKPOINT", what, role=role)
    every = subject.job.spec.workload.checkpoint_every_iterations
    because = f"workload.checkpoint_every_iterations: {every}"
    lines.add("checkpoints", every, because)
    if every is not None:
        lines.ask("save", "SAVE_FOLDER", "folder that checkpoints go to")


def _add_rollout(subject: Subject, lines: Lines) -> None:
    spec = subject.job.spec
    workload = spec.workload
    lines.ask("train_files", "PROMPT_DATA", "JSON lines of prompts, each with prompt and label")
    fields = "what a line of the prompts is taken to have"
    lines.add("prompt_field", "prompt", fields)
    lines.add("label_field", "label", fields)
    lines.add("chat_template", True, fields)
    lines.ask("reward_function", "REWARD_FUNCTION", "Python path of the function that scores")
    if workload.turns > 1:
        what = f"Python path of the function that generates in {workload.turns} turns"
        lines.ask("turns_function", "GENERATE_FUNCTION", what)
    add_iterations(subject, lines)
    add_prompts(subject, lines)
    add_mini_batch(subject, lines)
    for what, longest in (
        ("prompt", workload.prompt_length.max_tokens),
        ("response", workload.response_length.max_tokens),
    ):
        lines.add(f"{what}_length", longest, f"workload.{what}_length: at most {longest}")
    longest = longest_sequence(subject)
    lines.add("longest_sequence", longest, "longest prompt and response")
    lines.add("balanced", True, "the price takes data ranks to have equally many tokens")
    if spec.algorithm == "dapo":
        accepted = workload.expected_acceptance
        at_once = math.ceil(workload.prompts_per_iteration / accepted)
        because = f"workload.expected_acceptance: {accepted:g}"
        lines.add("generated_prompts", at_once, because)
        lines.add("dynamic_sampling", NONZERO_STD, f"algorithm: {spec.algorithm}")


def _add_algorithm(subject: Subject, lines: Lines) -> None:
    workload, algorithm = subject.job.spec.workload, subject.job.spec.algorithm or ""
    because = f"algorithm: {algorithm}"
    lines.add("advantage", subject.framework.algorithms[algorithm], because)
    add_clips(subject, lines)
    because = f"workload.kl: {workload.kl}"
    lines.add("kl_in_loss", workload.kl == "loss", because)
    what = "coefficient of the KL divergence, above 0"
    if workload.kl == "loss":
        lines.ask("kl_loss_coefficient", "KL_COEFFICIENT", what)
    if workload.kl == "reward":
        lines.ask("kl_coefficient", "KL_COEFFICIENT", what)
    else:
        lines.add("kl_coefficient", 0.0, because)
    recomputed = subject.call("actor", "forward") is not None
    why = "actor.forward computes them again" if recomputed else "no call computes them again"
    lines.add("old_log_probs_of_rollout", not recomputed, why)
    lines.add("optimizer", workload.optimizer, f"workload.optimizer: {workload.optimizer}")
    add_host_optimizer(subject, lines)


def _add_engine(subject: Subject, lines: Lines) -> None:
    call, role = subject.generations[0], "rollout"
    layout = call.parallelism
    assert layout is not None, "a generation has a layout"
    because, replicas = f"{call.id}: {layout.in_short()}", attention_replicas(layout)
    lines.add("engine_gpus", layout.tensor_parallel_size * replicas, because, role=role)
    lines.add("engine_data_parallel_size", replicas, because, role=role)
    lines.add("engine_attention_replicas", replicas > 1, because, role=role)
    lines.add("engine_expert_parallel_size", layout.expert_parallel_size, because, role=role)
    lines.add("engine_pipeline_parallel_size", layout.pipeline_parallel_size, because, role=role)
    engines = layout.data_parallel_size // replicas
    each, shared = sequences_at_once(subject, call, engines)
    lines.add("concurrent_sequences", each, shared, role=role)
    lines.add("sent_sequences", each, shared, role=role)
    _add_cache(subject, call, lines)
    lines.add("prefill_tokens", PREFILL_CHUNK_TOKENS, "what the price assumes", role=role)


def _add_cache(subject: Subject, call: CallPlan, lines: Lines) -> None:
    """The cache in tokens, where they say its bytes, below the share that SGLang needs."""
    held, bounded = cache_tokens(subject, call), None
    if held is not None:
        tokens, each = held
        bounded = tokens * each
        why = f"{engine_cache(subject, call)[1]}, {each} bytes a token"
        lines.add("cache_tokens", tokens, why, role="rollout")
    share, why = memory_share(subject, call, bounded=bounded)
    lines.add("memory_share", share, why, role="rollout")
