"""A plan that AReaL can run, as the launch of it: everything that the plan decides is set."""

from automap.planner.exports.areal.backends import BUILT, backend_of, engine_backend, joined
from automap.planner.exports.areal.document import CONFIG, document_of, written
from automap.planner.exports.areal.script import PROGRAM, script_of
from automap.planner.exports.batches import micro_batches
from automap.planner.exports.collected import collected
from automap.planner.exports.documents import yaml_text
from automap.planner.exports.launch import Launch, LaunchSetting, Placeholder
from automap.planner.exports.lines import Lines
from automap.planner.exports.memory_share import memory_share
from automap.planner.exports.models import model_of
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.exports.serving import longest_sequence
from automap.planner.exports.subject import Subject
from automap.planner.exports.workload import (
    add_iterations,
    prompts_at_once,
    sequences_at_once,
)
from automap.planner.plan.types import CopyPlan

LOGGED = ("saver", "recover", "evaluator", "stats_logger")
"""Sections that ask for the names and the folder of the run."""


def launch_of(subject: Subject) -> Launch:
    """The launch of a plan that nothing refuses."""
    lines = Lines(subject.framework, subject.engine, written, yaml_text)
    _add_run(subject, lines)
    _add_rollout(subject, lines)
    for role in BUILT:
        if role in subject.homes:
            _add_model(subject, subject.homes[role], lines)
    _add_algorithm(subject, lines)
    _add_batches(subject, lines)
    _add_engine(subject, lines)
    program = Placeholder(
        variable=PROGRAM,
        what="program that makes a PPOTrainer of its configuration: your own, or an example's",
    )
    launch = collected(subject, lines, placeholders=[program])
    files = {CONFIG: document_of(subject, launch)}
    return launch.model_copy(update={"script": script_of(subject, launch), "files": files})


def _refer(
    lines: Lines, decision: str, to: str, because: str, *, role: str, below: str = ""
) -> None:
    """Set a key to what another one is, or to a path `below` it."""
    [setting] = [s for s in lines.framework.settings if s.decision == decision and role in s.keys]
    value = f"${{{to}}}{below}"
    lines.settings.append(LaunchSetting(key=setting.keys[role], value=value, because=because))


def _add_run(subject: Subject, lines: Lines) -> None:
    nodes, each = len(subject.nodes(subject.plan.copies)), len(subject.gpus_of_node())
    because, named = f"{nodes} nodes, of each {each} GPUs", "names and folder of the run"
    lines.add("experiment", "automap", named)
    lines.add("trial", "plan", named)
    lines.add("nodes", nodes, because)
    lines.add("gpus_per_node", each, because)
    lines.ask("folder", "RUN_FOLDER", "folder of logs and checkpoints, on all nodes")
    if nodes > 1:
        what = "folder, on all nodes, in which processes find one another"
        lines.ask("meeting_place", "MEETING_FOLDER", what)
    lines.add("scheduler", "ray" if nodes > 1 else "local", because)
    offloads = any(copy.offload != "none" for copy in subject.homes.values())
    lines.add("with_offload", offloads, "what copies have on the host")
    for section in LOGGED:
        _refer(lines, "experiment", "experiment_name", named, role=section)
        _refer(lines, "trial", "trial_name", named, role=section)
        _refer(lines, "folder", "cluster.fileroot", named, role=section)
    told = "automap calibrate reads what TensorBoard is given"
    _refer(lines, "logger", "cluster.fileroot", told, role="job", below="/tensorboard")
    workload = subject.job.spec.workload
    every = workload.checkpoint_every_iterations
    lines.add("checkpoints", every, f"workload.checkpoint_every_iterations: {every}")
    iterations = workload.iterations
    add_iterations(subject, lines)
    prompts = workload.prompts_per_iteration
    what = f"passes over the prompts: as many as {iterations} × {prompts} prompts need"
    lines.ask("passes_over_prompts", "PASSES", what)
    _refer(lines, "tokenizer", "actor.path", "the actor's", role="job")


def _add_rollout(subject: Subject, lines: Lines) -> None:
    call, role = subject.generations[0], "rollout"
    layout, engine = call.parallelism, subject.job.spec.workload.rollout_engine
    assert layout is not None, "a generation has a layout"
    backend = engine_backend(engine, layout)
    lines.add("engine_backend", backend, f"{call.id}: {engine}, {layout.in_short()}", role=role)
    lines.add("sharing", "separation", f"{call.id} on GPUs of its own", role=role)
    lines.add("workers", "separate", f"{call.id} on GPUs of its own", role=role)
    _refer(lines, "tokenizer", "actor.path", "the actor's", role=role)
    workload, staleness = subject.job.spec.workload, subject.job.spec.search.staleness
    prompts = workload.prompts_per_iteration
    because = f"workload.prompts_per_iteration: {prompts}"
    lines.add("consumed", prompts, because)
    lines.add("concurrent_prompts", *prompts_at_once(subject))
    lines.add("staleness", staleness, f"search.staleness: {staleness}")


def _add_model(subject: Subject, copy: CopyPlan, lines: Lines) -> None:
    role, workload, layout = copy.role, subject.job.spec.workload, copy.layout
    engine, train = subject.engine_of(copy), subject.call(copy.role, "train")
    because = f"copy {copy.id}: {engine}, {layout.in_short()}, sharding {layout.sharding}"
    lines.ask("model", f"{role.upper()}_MODEL", model_of(subject, role), role=role)
    lines.add("backend", backend_of(subject, copy), because, role=role)
    if role == "critic":
        lines.add("value_head", True, "what makes it a critic", role=role)
    target = joined(subject, copy)
    where = f"copy {copy.id}: GPUs {copy.first_gpu}-{copy.first_gpu + copy.num_gpus - 1}"
    lines.add("sharing", "colocation" if target else "separation", where, role=role)
    lines.add("sharing_with", target, where, role=role)
    lines.add("workers", None, where, role=role)
    _refer(lines, "experiment", "experiment_name", "names of the run", role=role)
    _refer(lines, "trial", "trial_name", "names of the run", role=role)
    lines.add(
        "offload_weights",
        copy.offload == "weights",
        f"copy {copy.id}: offload {copy.offload}",
        role=role,
    )
    batches = micro_batches(subject, copy)
    sequences = batches.train_sequences or batches.forward_sequences
    tokens = batches.train_tokens or batches.forward_tokens
    told = f"micro-batches of {sequences} sequences, as packed tokens"
    lines.add("train_tokens", tokens, told, role=role)
    stated = f"workload.precision: {workload.precision}"
    lines.add("precision", PRECISIONS[workload.precision], stated, role=role)
    if engine == "fsdp":
        kept = "float32" if train else PRECISIONS[workload.precision]
        lines.add("kept_precision", kept, "what the price assumes", role=role)
    if train is not None:
        _add_training(subject, copy, train.recompute or "none", lines)
    elif engine == "megatron":
        lines.add(
            "virtual_pipeline_parallel_size",
            layout.virtual_pipeline_parallel_size,
            because,
            role=role,
        )


def _add_training(subject: Subject, copy: CopyPlan, recompute: str, lines: Lines) -> None:
    role, workload, layout = copy.role, subject.job.spec.workload, copy.layout
    because = f"{role}.train: recompute {recompute}"
    lines.add("recompute_on", recompute != "none", because, role=role)
    if subject.engine_of(copy) == "megatron":
        if recompute != "none":
            whole = recompute == "full"
            lines.add("recompute", recompute, because, role=role)
            lines.add("recompute_method", "uniform" if whole else None, because, role=role)
            lines.add("recompute_layers", 1 if whole else None, because, role=role)
            parts = None if whole else ["core_attn"]
            lines.add("recompute_modules", parts, because, role=role)
        laid = f"copy {copy.id}: {layout.in_short()}, sharding {layout.sharding}"
        lines.add(
            "virtual_pipeline_parallel_size", layout.virtual_pipeline_parallel_size, laid, role=role
        )
        lines.add("sharded_optimizer", layout.sharding == "optimizer", laid, role=role)
    updates = workload.updates_per_epoch
    lines.add("updates", updates, f"workload.updates_per_epoch: {updates}", role=role)
    chosen = f"workload.optimizer: {workload.optimizer}"
    lines.add("optimizer", workload.optimizer, chosen, role=role)
    variable = "LEARNING_RATE" if role == "actor" else f"{role.upper()}_LEARNING_RATE"
    lines.ask("learning_rate", variable, f"learning rate of the {role}", role=role)


def _add_algorithm(subject: Subject, lines: Lines) -> None:
    workload, algorithm = subject.job.spec.workload, subject.job.spec.algorithm or ""
    because, responses = f"algorithm: {algorithm}", workload.responses_per_prompt
    if algorithm in ("grpo", "rloo"):
        compared = algorithm == "grpo"
        lines.add("reward_mean", "group", because)
        lines.add("reward_deviation", "group" if compared else None, because)
        lines.add("reward_without_own", not compared, because)
        lines.add("reward_group", responses, because)
    if algorithm != "rloo":
        for decision in ("advantage_mean", "advantage_deviation"):
            lines.add(decision, "batch", because)
    if "reference" in subject.homes:
        what = "coefficient of the KL divergence in the rewards, above 0"
        lines.ask("kl_coefficient", "KL_COEFFICIENT", what)
    else:
        lines.add("kl_coefficient", 0.0, f"workload.kl: {workload.kl}")
    again, stale = workload.old_log_probs == "recompute", subject.job.spec.search.staleness > 0
    stated = f"workload.old_log_probs: {workload.old_log_probs}"
    lines.add("log_probs_again", again, stated)
    lines.add("decoupled_loss", again and stale, f"{stated}, search.staleness above 0: {stale}")
    lines.add("weight_backend", "xccl", "what the price assumes")


def _add_batches(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    prompts, responses = workload.prompts_per_iteration, workload.responses_per_prompt
    lines.add("responses_per_prompt", responses, f"workload.responses_per_prompt: {responses}")
    longest, prompt = workload.response_length.max_tokens, workload.prompt_length.max_tokens
    lines.add("response_length", longest, f"workload.response_length: at most {longest}")
    lines.add("sequence_length", longest_sequence(subject), "longest prompt and response")
    lines.add("prompts", prompts, f"workload.prompts_per_iteration: {prompts}")
    lines.add("prompt_length", prompt, f"workload.prompt_length: at most {prompt}")
    lines.ask("train_files", "PROMPT_DATA", "prompts: a folder or a name of a data set")
    lines.add("prompts_kind", "rl", "what the prompts are for")


def _add_engine(subject: Subject, lines: Lines) -> None:
    call, workload = subject.generations[0], subject.job.spec.workload
    engine, layout = workload.rollout_engine, call.parallelism
    assert layout is not None, "a generation has a layout"
    _refer(lines, "engine_model", "actor.path", "the actor's", role=engine)
    stated = f"workload.precision: {workload.precision}"
    lines.add("precision", PRECISIONS[workload.precision], stated, role=engine)
    lines.add(
        "longest_sequence", longest_sequence(subject), "longest prompt and response", role=engine
    )
    each, shared = sequences_at_once(subject, call, layout.data_parallel_size)
    lines.add("concurrent_sequences", each, shared, role=engine)
    share, why = memory_share(subject, call)
    lines.add("memory_share", share, why, role=engine)
