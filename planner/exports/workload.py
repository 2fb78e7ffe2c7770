"""What launches of all frameworks say alike: batches, iterations, clips, ranges and engines."""

import math

from automap.planner.exports.batches import mini_batch_sequences
from automap.planner.exports.lines import Lines
from automap.planner.exports.subject import NodeRange, Subject
from automap.planner.frameworks.description import JOB
from automap.planner.plan.types import CallPlan, CopyPlan

CLIP = 0.2
"""How far the importance ratio may be from 1."""
UPPER_CLIPS = {"dapo": 0.28}
"""Algorithm → how far it may be above 1, where that is more."""
ENDLESS = 1_000_000
"""Passes over the prompts, so that the number of iterations alone ends a run."""


def upper_clip(subject: Subject) -> float:
    """How far the importance ratio may be above 1."""
    return UPPER_CLIPS.get(subject.job.spec.algorithm or "", CLIP)


def add_clips(subject: Subject, lines: Lines) -> None:
    """The lower and the upper clip of the importance ratio."""
    because = f"algorithm: {subject.job.spec.algorithm}"
    lines.add("clip_low", CLIP, because)
    lines.add("clip_high", upper_clip(subject), because)


def add_prompts(subject: Subject, lines: Lines) -> None:
    """Prompts of an iteration, and responses to each."""
    workload = subject.job.spec.workload
    prompts, responses = workload.prompts_per_iteration, workload.responses_per_prompt
    lines.add("prompts", prompts, f"workload.prompts_per_iteration: {prompts}")
    lines.add("responses_per_prompt", responses, f"workload.responses_per_prompt: {responses}")


def of_updates(subject: Subject) -> str:
    """Where the number of sequences of an update comes from."""
    workload = subject.job.spec.workload
    prompts, responses = workload.prompts_per_iteration, workload.responses_per_prompt
    updates = workload.updates_per_epoch
    return f"{prompts} prompts × {responses} responses in updates: {updates}"


def add_mini_batch(subject: Subject, lines: Lines) -> None:
    """Sequences of an update."""
    lines.add("mini_batch", mini_batch_sequences(subject), of_updates(subject))


def unsaid_iterations(subject: Subject) -> str:
    """What is added to the reason of a number of iterations that the spec does not say."""
    if subject.job.spec.workload.iterations > 1:
        return ""
    return ", as the spec does not say how many to train: set it here"


def add_iterations(subject: Subject, lines: Lines) -> None:
    """Iterations of the run."""
    iterations = subject.job.spec.workload.iterations
    because = f"workload.iterations: {iterations}{unsaid_iterations(subject)}"
    lines.add("iterations", iterations, because)


def recompute_of(subject: Subject) -> tuple[str, str]:
    """(what of the actor's activations is recomputed, the decision that it comes from)."""
    train = subject.call("actor", "train")
    recompute = (train.recompute if train else None) or "none"
    return recompute, f"actor.train: recompute {recompute}"


def add_host_optimizer(subject: Subject, lines: Lines, *, role: str = JOB) -> None:
    """Whether Megatron-core's optimizer updates on the host, and what goes with that."""
    on_host = subject.job.spec.workload.optimizer_cpu_offload
    because = f"workload.optimizer_cpu_offload: {on_host}"
    lines.add("optimizer_cpu_offload", on_host, because, role=role)
    if not on_host:
        return
    lines.add("optimizer_offload_fraction", 1.0, because, role=role)
    lines.add("overlap_cpu_optimizer_d2h_h2d", True, because, role=role)
    # Without it the distributed optimizer has masters on the GPUs as well.
    lines.add("use_precision_aware_optimizer", True, because, role=role)


def add_range(subject: Subject, copy: CopyPlan, lines: Lines, *, role: str) -> None:
    """Nodes of a copy, and its GPUs on each, as those of a role."""
    used = subject.node_range(copy) or NodeRange(1, copy.num_gpus)
    last = copy.first_gpu + copy.num_gpus - 1
    because = f"copy {copy.id}: GPUs {copy.first_gpu}-{last} of {copy.pool}"
    lines.add("nodes", used.num_nodes, because, role=role)
    lines.add("gpus_per_node", used.gpus_per_node, because, role=role)


def sequences_at_once(
    subject: Subject, call: CallPlan, engines: int, *, of: str = "engines"
) -> tuple[int, str]:
    """(sequences on the fullest of so many engines, why); `of`: what engines are called.

    With dynamic sampling they are more than are trained on. Without batches they are those for
    which a replica has the cache.
    """
    each, why = _sequences_at_once(subject, call, engines, of)
    if subject.most_sequences is None:
        return each, why
    most = math.ceil(subject.most_sequences / engines)
    told = f"the launch that this one is made of runs {subject.most_sequences} on all {of}"
    return (most, told) if most < each else (each, why)


def _sequences_at_once(subject: Subject, call: CallPlan, engines: int, of: str) -> tuple[int, str]:
    flow = subject.plan.continuous
    if flow is not None and flow.least_in_flight:
        assert call.parallelism is not None, "a generation has a layout"
        replicas = call.parallelism.data_parallel_size
        held = flow.slots_per_replica * replicas
        why = f"{held} sequences, of {flow.most_in_flight} in flight, on {of}: {engines}"
        return math.ceil(min(held, flow.most_in_flight) / engines), why
    [sequences] = [c.num_sequences for c in subject.job.dataflow.calls if c.id == call.id]
    return math.ceil(sequences / engines), f"{sequences} sequences on {of}: {engines}"


def prompts_at_once(subject: Subject) -> tuple[int, str]:
    """(prompts whose responses may be in flight, why); more of them only the staleness holds back.

    Batch by batch they are those of an iteration.
    """
    workload, flow = subject.job.spec.workload, subject.plan.continuous
    prompts = workload.prompts_per_iteration
    if flow is None or not flow.least_in_flight:
        return prompts, f"one batch of {prompts} prompts is generated at a time"
    staleness = subject.job.spec.search.staleness
    return prompts * (staleness + 1), f"staleness {staleness}: {staleness + 1} batches of {prompts}"
