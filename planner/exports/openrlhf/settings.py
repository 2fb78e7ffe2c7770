"""A plan that OpenRLHF can run, as the launch of it: everything that the plan decides is set."""

from automap.planner.exports.arguments import argument
from automap.planner.exports.batches import micro_batches
from automap.planner.exports.collected import collected
from automap.planner.exports.launch import Launch
from automap.planner.exports.lines import Lines
from automap.planner.exports.memory_share import memory_share
from automap.planner.exports.models import model_of
from automap.planner.exports.openrlhf.script import script_of
from automap.planner.exports.serving import longest_sequence
from automap.planner.exports.subject import Subject, same_range
from automap.planner.exports.workload import (
    CLIP,
    add_mini_batch,
    add_prompts,
    add_range,
    recompute_of,
    unsaid_iterations,
    upper_clip,
)
from automap.planner.exports.zero import homes_of, stage_of, trained


def launch_of(subject: Subject) -> Launch:
    """The launch of a plan that nothing refuses."""
    lines = Lines(subject.framework, subject.engine, argument, str)
    _add_pools(subject, lines)
    _add_engines(subject, lines)
    _add_zero(subject, lines)
    _add_micro_batches(subject, lines)
    _add_batches(subject, lines)
    _add_algorithm(subject, lines)
    _add_data(subject, lines)
    launch = collected(subject, lines)
    return launch.model_copy(update={"script": script_of(subject, launch)})


def _add_pools(subject: Subject, lines: Lines) -> None:
    homes = subject.homes
    critic, reward = homes.get("critic"), homes.get("reward")
    for copy in homes_of(subject):
        add_range(subject, copy, lines, role=copy.role)
    together = all(same_range(copy, subject.actor) for copy in homes_of(subject))
    others = critic is not None or reward is not None
    whole = not subject.apart or (together and others)
    names = ", ".join(homes)
    where = "on GPUs of its own" if subject.apart else "on the actor's GPUs"
    because = f"{subject.generations[0].id} {where}; {names}"
    lines.add("colocated", whole, because)
    beside = "reference" in homes and same_range(homes["reference"], subject.actor)
    lines.add("colocated_reference", beside and not whole, because)
    paired = critic is not None and (
        (reward is not None and same_range(reward, critic)) or not subject.apart
    )
    own = critic is not None and not same_range(critic, subject.actor)
    lines.add("colocated_reward", paired and own, because)
    if critic is not None and reward is None and paired and own:
        # It compares their GPUs, also of a reward model that is not there.
        add_range(subject, critic, lines, role="reward")


def _add_engines(subject: Subject, lines: Lines) -> None:
    call, role = subject.generations[0], "rollout"
    layout = call.parallelism
    assert layout is not None, "a generation has a layout"
    because = f"{call.id}: {layout.in_short()}"
    tensor = layout.tensor_parallel_size
    lines.add("engines", subject.rollout.num_gpus // tensor, because, role=role)
    lines.add("engine_tensor_parallel_size", tensor, because, role=role)
    share, why = memory_share(subject, call)
    lines.add("memory_share", share, why, role=role)
    where = "of its own" if subject.apart else "that others use too"
    lines.add("engine_sleeps", not subject.apart, f"{call.id} on GPUs {where}", role=role)
    lines.add("weight_backend", "nccl", "what the price assumes")
    staleness = subject.job.spec.search.staleness
    lines.add("asynchronous", staleness > 0, f"search.staleness: {staleness}")
    lines.add("staleness", staleness or None, f"search.staleness: {staleness}")


def _add_zero(subject: Subject, lines: Lines) -> None:
    actor, workload = subject.actor, subject.job.spec.workload
    layout = actor.layout
    because = f"copy {actor.id}: {layout.in_short()}, sharding {layout.sharding}"
    lines.add("zero_stage", stage_of(subject), because)
    lines.add("tensor_parallel_size", layout.tensor_parallel_size, because)
    lines.add("context_parallel_size", layout.context_parallel_size, because)
    sleeps = any(copy.offload != "none" for copy in trained(subject))
    lines.add("offload_optimizer", sleeps, f"copy {actor.id}: offload {actor.offload}")
    for role in ("reference", "reward"):
        if role in subject.homes:
            copy = subject.homes[role]
            offload = f"copy {copy.id}: offload {copy.offload}"
            lines.add("offload_weights", copy.offload == "weights", offload, role=role)
    recompute, chosen = recompute_of(subject)
    lines.add("recompute", recompute == "full", chosen)
    packed = workload.packed_sequences
    lines.add("packed", packed, f"workload.packed_sequences: {packed}")
    lines.add("precision", "bf16", f"workload.precision: {workload.precision}")


def _add_micro_batches(subject: Subject, lines: Lines) -> None:
    """One number of sequences where it divides every rank's; else numbers of tokens."""
    found = [micro_batches(subject, copy) for copy in homes_of(subject)]
    dynamic = any(each.dynamic for each in found)
    given = ", ".join(
        f"{call.id} {call.micro_batch_size}"
        for call in subject.plan.calls
        if call.micro_batch_size and call.copy_id
    )
    because = f"micro-batches of sequences: {given}"
    actor = micro_batches(subject, subject.actor)
    scored = next((b.forward_tokens for b in found if b.forward_tokens), actor.train_tokens)
    lines.add("dynamic_batches", dynamic, because)
    lines.add("train_tokens", actor.train_tokens if dynamic else None, because)
    lines.add("forward_tokens", scored if dynamic else None, because)
    forward = next((b.forward_sequences for b in found if b.forward_sequences), None)
    # It asks of these numbers also where those of tokens count.
    lines.add("train_micro_batch", 1 if dynamic else actor.train_sequences, because)
    size = forward or actor.train_sequences
    lines.add("forward_micro_batch", 1 if dynamic else size, because)


def _add_batches(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    prompts = workload.prompts_per_iteration
    add_prompts(subject, lines)
    add_mini_batch(subject, lines)
    lines.add("epochs", workload.epochs, f"workload.epochs: {workload.epochs}")
    longest = workload.response_length.max_tokens
    lines.add("longest_sequence", longest_sequence(subject), "longest prompt and response")
    lines.add("response_length", longest, f"workload.response_length: at most {longest}")
    iterations = workload.iterations
    said = unsaid_iterations(subject)
    because = f"workload.iterations: {iterations} of {prompts} prompts{said}"
    lines.add("samples", iterations * prompts, because)
    lines.add("episodes", 1, because)


def _add_algorithm(subject: Subject, lines: Lines) -> None:
    workload, algorithm = subject.job.spec.workload, subject.job.spec.algorithm or ""
    because = f"algorithm: {algorithm}"
    lines.add("advantage", subject.framework.algorithms[algorithm], because)
    lines.add("clips", [str(CLIP), str(upper_clip(subject))], because)
    lines.add("dynamic_sampling", algorithm == "dapo", because)
    because = f"workload.kl: {workload.kl}"
    if "reference" in subject.homes:
        lines.ask("kl_coefficient", "KL_COEFFICIENT", "coefficient of the KL divergence, above 0")
    else:
        lines.add("kl_coefficient", 0.0, because)
    in_loss = workload.kl == "loss"
    lines.add("kl_in_loss", in_loss, because)
    lines.add("kl_estimator", "k3" if in_loss else "k1", because)
    for copy in trained(subject):
        chosen = workload.optimizer
        lines.add("optimizer", chosen, f"workload.optimizer: {chosen}", role=copy.role)


def _add_data(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    for role in ("actor", "critic", "reward"):
        if role in subject.homes:
            variable = f"{role.upper()}_MODEL"
            lines.ask("model", variable, model_of(subject, role), role=role)
    if subject.reward is None and workload.turns == 1:
        lines.ask("reward_function", "REWARD_FUNCTION", "Python file, or address, that scores")
    if workload.turns > 1:
        what = f"Python file of the agent that generates in {workload.turns} turns"
        lines.ask("turns_function", "AGENT_FUNCTION", what)
    lines.ask("train_files", "PROMPT_DATA", "prompts: a folder or a name of a data set")
    fields = "what a line of the prompts is taken to have"
    lines.add("prompt_field", "prompt", fields)
    lines.add("label_field", "label", fields)
    lines.add("chat_template", True, fields)
    every = workload.checkpoint_every_iterations
    because = f"workload.checkpoint_every_iterations: {every}"
    lines.add("checkpoints", every, because)
    if every is not None:
        lines.ask("save", "SAVE_FOLDER", "folder that checkpoints go to")
    lines.ask("logger", "LOG_FOLDER", "folder that metrics go to, on all nodes")
