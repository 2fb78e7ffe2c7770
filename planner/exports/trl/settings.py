"""A plan that TRL can run, as the launch of it: everything that the plan decides is set."""

from automap.planner.cost.constants import PREFILL_CHUNK_TOKENS
from automap.planner.exports.batches import micro_batches, mini_batch_sequences
from automap.planner.exports.collected import collected
from automap.planner.exports.launch import Launch
from automap.planner.exports.lines import Lines
from automap.planner.exports.memory_share import engine_cache, memory_share
from automap.planner.exports.models import model_of
from automap.planner.exports.serving import longest_sequence
from automap.planner.exports.subject import Subject
from automap.planner.exports.trl.files import (
    ACCELERATE_FILE,
    TRAINER_FILE,
    accelerate_file,
    trainer_file,
    written,
)
from automap.planner.exports.trl.script import script_of
from automap.planner.exports.workload import add_clips, of_updates, recompute_of, unsaid_iterations
from automap.planner.exports.zero import STAGES, stage_of

SERVER_SECONDS = 3600.0
"""Seconds that the trainer waits for its server: a large model loads and compiles for minutes.
Chosen: TRL's 240 are too few for it."""


def launch_of(subject: Subject) -> Launch:
    """The launch of a plan that nothing refuses."""
    lines = Lines(subject.framework, subject.engine, written, str)
    _add_processes(subject, lines)
    _add_sharding(subject, lines)
    _add_run(subject, lines)
    _add_batches(subject, lines)
    _add_algorithm(subject, lines)
    _add_generation(subject, lines)
    launch = collected(subject, lines)
    title = f"{subject.plan.name}: a plan of Automap for {launch.target}, read by launch.sh."
    files = {
        ACCELERATE_FILE: accelerate_file(launch.settings, title=title),
        TRAINER_FILE: trainer_file(launch.settings, title=title),
    }
    return launch.model_copy(update={"script": script_of(subject, launch), "files": files})


def _add_processes(subject: Subject, lines: Lines) -> None:
    actor = subject.actor
    last = actor.first_gpu + actor.num_gpus - 1
    because = f"copy {actor.id}: GPUs {actor.first_gpu}-{last}"
    lines.add("nodes", len(subject.nodes([actor])), because)
    lines.add("gpus", actor.num_gpus, because)


def _add_sharding(subject: Subject, lines: Lines) -> None:
    """What shards: FSDP2 where it shards fully and there is no reference, else DeepSpeed.

    TRL wraps a reference in FSDP as one unit, all of whose weights are gathered at once.
    """
    actor, workload = subject.actor, subject.job.spec.workload
    because = f"copy {actor.id}: {actor.layout.in_short()}, sharding {actor.layout.sharding}"
    beside = "reference" in subject.homes
    stage = stage_of(subject)
    fsdp = actor.num_gpus > 1 and stage == STAGES["full"] and not beside
    # DeepSpeed also on one GPU: without either there are no masters of 32 bits.
    lines.add("distribution", "FSDP" if fsdp else "DEEPSPEED", because)
    stated = f"workload.precision: {workload.precision}"
    lines.add("precision", workload.precision, stated)
    lines.add("bf16", True, stated)
    lines.add("weights", "bfloat16", f"{stated}; what trains has masters of 32 bits")
    lines.add("attention", "flash_attention_2", "what the price assumes")
    offload = f"copy {actor.id}: offload {actor.offload}"
    if fsdp:
        lines.add("fsdp_version", 2, because)
        lines.add("fsdp_resharding", "True", because)
        lines.add("fsdp_offload", False, offload)
        lines.add("fsdp_recompute", False, "recomputation is the trainer's")
    else:
        lines.add("zero_stage", stage, because)
        lines.add("offload_optimizer", "none", offload)
        lines.add("offload_weights", "none", offload)
    recompute, chosen = recompute_of(subject)
    lines.add("recompute", recompute == "full", chosen)


def _add_run(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    lines.ask("model", "ACTOR_MODEL", model_of(subject, "actor"), role="actor")
    scores = "functions that score, for instance accuracy_reward or module.function"
    lines.ask("reward_function", "REWARD_FUNCTIONS", scores)
    lines.ask("train_files", "PROMPT_DATA", "prompts: a folder or a name of a data set")
    lines.ask("save", "OUTPUT_FOLDER", "folder that logs and checkpoints go to")
    steps = workload.updates_per_epoch * workload.epochs
    iterations, every = workload.iterations, workload.checkpoint_every_iterations
    said = unsaid_iterations(subject)
    because = f"workload.iterations: {iterations}, of each so many optimizer steps: {steps}{said}"
    lines.add("iterations", iterations * steps, because)
    because = f"workload.checkpoint_every_iterations: {every}"
    lines.add("with_checkpoints", "no" if every is None else "steps", because)
    if every is not None:
        lines.add("checkpoints", every * steps, because)
    lines.add("validation", "no", "the plan has no validation")


def _add_batches(subject: Subject, lines: Lines) -> None:
    workload, actor = subject.job.spec.workload, subject.actor
    responses = workload.responses_per_prompt
    size = micro_batches(subject, actor).train_sequences or 1
    because = f"actor.train: micro-batches of {size}"
    lines.add("train_micro_batch", size, because)
    lines.add("forward_micro_batch", size, because)
    mini, why = mini_batch_sequences(subject), of_updates(subject)
    lines.add("accumulation", mini // (size * actor.num_gpus), f"{why}; on {actor.num_gpus} GPUs")
    lines.add("generation_batch", workload.num_sequences, why)
    # A launch that is written into says either.
    lines.add("generation_steps", None, why)
    lines.add("responses_per_prompt", responses, f"workload.responses_per_prompt: {responses}")
    lines.add("epochs", workload.epochs, f"workload.epochs: {workload.epochs}")
    longest = workload.response_length.max_tokens
    lines.add("response_length", longest, f"workload.response_length: at most {longest}")


def _add_algorithm(subject: Subject, lines: Lines) -> None:
    workload, algorithm = subject.job.spec.workload, subject.job.spec.algorithm or ""
    because = f"algorithm: {algorithm}"
    if algorithm == "grpo":
        lines.add("loss", "grpo", because)
        old = f"workload.old_log_probs: {workload.old_log_probs}"
        lines.add("importance_correction", True, old)
    add_clips(subject, lines)
    because = f"workload.kl: {workload.kl}"
    if "reference" in subject.homes:
        lines.ask("kl_coefficient", "KL_COEFFICIENT", "coefficient of the KL divergence, above 0")
    else:
        lines.add("kl_coefficient", 0.0, because)
    chosen = workload.optimizer
    lines.add("optimizer", "adamw_torch_fused", f"workload.optimizer: {chosen}")


def _add_generation(subject: Subject, lines: Lines) -> None:
    call = subject.generations[0]
    layout = call.parallelism
    assert layout is not None, "a generation has a layout"
    role, where = "rollout", "on the policy's GPUs"
    if subject.apart:
        role, where = "server", "on GPUs of its own"
    generates = f"{call.id} {where}"
    lines.add("with_vllm", True, generates)
    lines.add("mode", "server" if subject.apart else "colocate", generates)
    because, tensor = f"{call.id}: {layout.in_short()}", layout.tensor_parallel_size
    lines.add("engine_tensor_parallel_size", tensor, because, role=role)
    share, why = memory_share(subject, call)
    lines.add("memory_share", share, why, role=role)
    longest = longest_sequence(subject)
    lines.add("longest_sequence", longest, "longest prompt and response", role=role)
    if not subject.apart:
        lines.add("engine_sleeps", True, f"{call.id} on GPUs that others use too", role=role)
        return
    lines.add("engines", layout.data_parallel_size, because, role=role)
    lines.add("cache_bytes", *engine_cache(subject, call), role=role)
    sequences = subject.job.spec.workload.num_sequences
    each = -(-sequences // layout.data_parallel_size)
    engines = f"{sequences} sequences on engines: {layout.data_parallel_size}"
    lines.add("concurrent_sequences", each, engines, role=role)
    lines.add("prefill_tokens", PREFILL_CHUNK_TOKENS, "what the price assumes", role=role)
    _add_connection(subject, lines)


def _add_connection(subject: Subject, lines: Lines) -> None:
    """How trainer and server meet; all but the address is what TRL asks of any server."""
    asked, role = "what TRL asks of a server", "server"
    lines.add("weight_transfer", '{"backend": "nccl"}', asked, role=role)
    lines.add("sampled_log_probs", "processed_logprobs", asked, role=role)
    lines.add("most_log_probs", -1, asked, role=role)
    nodes = len(subject.nodes(subject.plan.copies))
    if nodes > 1:
        what = f"address of the node that generates, number {nodes - 1}"
        lines.ask("server", "SERVER_ADDRESS", what)
    else:
        lines.add("server", "127.0.0.1", "the server is on this node")
    lines.add("server_timeout", SERVER_SECONDS, "a large model loads for minutes")
