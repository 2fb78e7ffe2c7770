"""A plan that verl can run, as the launch of it: everything that the plan decides is set."""

from automap.planner.cost.constants import PREFILL_CHUNK_TOKENS
from automap.planner.exports.collected import collected
from automap.planner.exports.launch import Launch
from automap.planner.exports.layouts import attention_replicas
from automap.planner.exports.lines import Lines, plain
from automap.planner.exports.memory_share import engine_cache, memory_share, share_below
from automap.planner.exports.models import model_of
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.exports.serving import (
    longest_scored,
    longest_sequence,
    serving_bytes,
)
from automap.planner.exports.subject import Subject
from automap.planner.exports.verl.hydra import hydra_quoted
from automap.planner.exports.verl.role_settings import add_role, add_scoring
from automap.planner.exports.verl.script import script_of
from automap.planner.exports.workload import (
    ENDLESS,
    add_clips,
    add_iterations,
    add_prompts,
    add_range,
    sequences_at_once,
)
from automap.planner.plan.types import CallPlan


def launch_of(subject: Subject) -> Launch:
    """The launch of a plan that nothing refuses."""
    lines = Lines(subject.framework, subject.engine, lambda value, _: plain(value), hydra_quoted)
    _add_algorithm(subject, lines)
    _add_synchrony(subject, lines)
    _add_pools(subject, lines)
    _add_batch(subject, lines)
    for copy in subject.trainers:
        add_role(subject, copy, lines)
    add_scoring(subject, lines)
    _add_generation(subject, lines)
    _add_reward(subject, lines)
    _add_run(subject, lines)
    environment = {"HYDRA_FULL_ERROR": "1"}
    if subject.engine == "megatron":
        # Collectives of tensor groups and products start in the order in which they are queued.
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    launch = collected(subject, lines, environment=environment)
    return launch.model_copy(update={"script": script_of(subject, launch)})


def _add_algorithm(subject: Subject, lines: Lines) -> None:
    workload, algorithm = subject.job.spec.workload, subject.job.spec.algorithm or ""
    because = f"algorithm: {algorithm}"
    engine = "dp" if subject.engine == "fsdp" else subject.engine
    lines.add("engine", engine, f"engine of the actor: {subject.engine}")
    lines.add("advantage", subject.framework.algorithms[algorithm], because)
    lines.add("with_critic", "critic" in subject.homes, because)
    lines.add("dynamic_sampling", algorithm == "dapo", because)
    add_clips(subject, lines)
    for kind in ("reward", "loss"):
        lines.add(f"kl_in_{kind}", workload.kl == kind, f"workload.kl: {workload.kl}")
    recomputed = subject.call("actor", "forward") is not None
    why = "actor.forward computes them again" if recomputed else "no call computes them again"
    lines.add("old_log_probs_of_rollout", not recomputed, why)


def _add_synchrony(subject: Subject, lines: Lines) -> None:
    spec = subject.job.spec
    lines.add("trainer", spec.algorithm != "remax", f"algorithm: {spec.algorithm}")
    where = "on GPUs of its own" if subject.apart else "on the actor's GPUs"
    generates = f"{subject.generations[0].id} {where}"
    lines.add("synchrony", "separate_async" if subject.apart else "sync", generates)
    lines.add("engines_on_training_gpus", not subject.apart, generates)
    if subject.apart:
        staleness = spec.search.staleness
        because = f"search.staleness: {staleness}"
        lines.add("staleness", staleness, because)
        lines.add("version_span", staleness + 1, because)
        lines.add("stale_responses", "wait", "no response is dropped")
        updates = spec.workload.updates_per_epoch
        lines.add("syncs", updates, f"workload.updates_per_epoch: {updates}")
        lines.add("weight_transfer", "nccl", generates)


def _add_pools(subject: Subject, lines: Lines) -> None:
    add_range(subject, subject.actor, lines, role="actor")
    if subject.apart:
        add_range(subject, subject.rollout, lines, role="rollout")
    reward = subject.reward
    lines.add("with_reward_model", reward is not None, _scores(subject))
    apart = reward is not None and reward.first_gpu != subject.actor.first_gpu
    apart = apart or (reward is not None and reward.pool != subject.actor.pool)
    lines.add("reward_pool", apart, _scores(subject))
    if reward is not None and apart:
        add_range(subject, reward, lines, role="reward")


def _add_batch(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    add_prompts(subject, lines)
    longest = workload.prompt_length.max_tokens, workload.response_length.max_tokens
    lines.add("prompt_length", longest[0], f"workload.prompt_length: at most {longest[0]}")
    lines.add("longer_prompts", True, f"workload.prompt_length: at most {longest[0]}")
    lines.add("response_length", longest[1], f"workload.response_length: at most {longest[1]}")
    because = f"workload.turns: {workload.turns}"
    lines.add("with_turns", workload.turns > 1, because)
    if workload.turns > 1:
        lines.add("turns", workload.turns, because)
        lines.add("agent_loop", "tool_agent", because)
        lines.ask("tools", "TOOL_CONFIG", "YAML file of the environment's tools")


def _add_generation(subject: Subject, lines: Lines) -> None:
    spec, call = subject.job.spec, subject.generations[0]
    workload, layout = spec.workload, call.parallelism
    assert layout is not None, "a generation has a layout"
    engine, role = workload.rollout_engine, "rollout"
    lines.add("generation_engine", engine, f"workload.rollout_engine: {engine}", role=role)
    because = f"{call.id}: {layout.in_short()}"
    replicas = attention_replicas(layout)
    lines.add("engine_tensor_parallel_size", layout.tensor_parallel_size, because, role=role)
    lines.add("engine_data_parallel_size", replicas, because, role=role)
    lines.add("engine_expert_parallel_size", layout.expert_parallel_size, because, role=role)
    lines.add("engine_pipeline_parallel_size", 1, because, role=role)
    engines = layout.data_parallel_size // replicas
    each, shared = sequences_at_once(subject, call, engines)
    lines.add("concurrent_sequences", each, shared, role=role)
    _add_cache(subject, call, lines)
    lines.add("prefill_tokens", PREFILL_CHUNK_TOKENS, "what the price assumes", role=role)
    longest = longest_sequence(subject)
    lines.add("longest_sequence", longest, "longest prompt and response", role=role)
    precision = PRECISIONS[workload.precision]
    lines.add("precision", precision, f"workload.precision: {workload.precision}", role=role)
    quantised = workload.rollout_precision == "fp8"
    stated = f"workload.rollout_precision: {workload.rollout_precision}"
    lines.add("rollout_precision", "fp8" if quantised else None, stated, role=role)
    if subject.engine == "fsdp" and subject.job.models["actor"].lora_rank:
        # Else every rank gathers the whole base on its host to send it: a node holds eight of a
        # 70B model in 32 bits nowhere (utils/fsdp_utils.py, collect_lora_params).
        because = "models.actor.lora: engines read the base, and are sent adapters alone"
        lines.add("engine_weights", "safetensors", because, role=role)
        lines.add("adapters_by_layer", True, because, role=role)


def _add_cache(subject: Subject, call: CallPlan, lines: Lines) -> None:
    workload, role = subject.job.spec.workload, "rollout"
    cache, because = engine_cache(subject, call)
    if workload.rollout_engine == "vllm":
        lines.add("cache_bytes", cache, because, role=role)
        stated = f"workload.rollout_cache_precision: {workload.rollout_cache_precision}"
        if workload.rollout_cache_precision == "fp8":
            lines.add("cache_precision", "fp8", stated, role=role)
    share, why = memory_share(subject, call)
    lines.add("memory_share", share, why, role=role)
    where = "of its own" if subject.apart else "that others use too"
    lines.add("engine_sleeps", not subject.apart, f"{call.id} on GPUs {where}", role=role)


def _scores(subject: Subject) -> str:
    reward = subject.reward
    if reward is None:
        return "the reward is a function or a service"
    last = reward.first_gpu + reward.num_gpus - 1
    return f"copy {reward.id}: GPUs {reward.first_gpu}-{last} of {reward.pool}"


def _add_reward(subject: Subject, lines: Lines) -> None:
    reward, role = subject.reward, "reward"
    if reward is None:
        lines.ask("reward_function", "REWARD_FUNCTION", "Python file with the compute_score")
        return
    spec, call = subject.job.spec, subject.call("reward", "forward")
    engine = spec.workload.rollout_engine
    lines.add("generation_engine", engine, f"workload.rollout_engine: {engine}", role=role)
    tensor, because = reward.layout.tensor_parallel_size, f"copy reward: {reward.layout.in_short()}"
    lines.add("engine_tensor_parallel_size", tensor, because, role=role)
    if call is not None and call.micro_batch_size:
        because = f"{call.id}: micro-batch {call.micro_batch_size}"
        lines.add("concurrent_sequences", call.micro_batch_size, because, role=role)
        memory = subject.pool(reward).gpu.memory_bytes
        needed = serving_bytes(subject, reward, call)
        share = share_below(needed, memory)
        lines.add("memory_share", share, f"{call.id}: {needed} of {memory} bytes", role=role)
    why = "longest prompt and response, in the template of the reward model"
    lines.add("longest_sequence", longest_scored(subject), why, role=role)
    sleeps = reward.offload == "weights"
    lines.add("engine_sleeps", sleeps, f"copy reward: offload {reward.offload}", role=role)
    lines.ask("model", "REWARD_MODEL", model_of(subject, "reward"), role=role)


def _add_run(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    lines.ask("model", "ACTOR_MODEL", model_of(subject, "actor"), role="actor")
    if "critic" in subject.homes:
        lines.ask("model", "CRITIC_MODEL", model_of(subject, "critic"), role="critic")
    lines.ask("train_files", "TRAIN_FILES", "Parquet file of prompts, as verl reads them")
    lines.ask("validation_files", "VALIDATION_FILES", "likewise; it is opened, and not used")
    iterations, every = workload.iterations, workload.checkpoint_every_iterations
    add_iterations(subject, lines)
    lines.add("passes_over_prompts", ENDLESS, f"workload.iterations: {iterations}")
    because = f"workload.checkpoint_every_iterations: {every}"
    lines.add("checkpoints", -1 if every is None else every, because)
    lines.add("validation", -1, "the plan has no validation")
    lines.add("validation_first", False, "the plan has no validation")
    lines.add("critic_warmup", 0, "every iteration trains the actor")
    lines.add("logger", ["console", "file"], "automap calibrate reads the file")
    lines.add("project", "automap", "where its files go")
    lines.add_text("name", subject.plan.name, "name of the plan")
