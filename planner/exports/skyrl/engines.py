"""What SkyRL is told of the engines that generate."""

from automap.planner.cost.constants import PREFILL_CHUNK_TOKENS
from automap.planner.exports.layouts import attention_replicas
from automap.planner.exports.lines import Lines
from automap.planner.exports.memory_share import engine_cache, memory_share
from automap.planner.exports.refusals import PRECISIONS
from automap.planner.exports.serving import longest_sequence
from automap.planner.exports.subject import Subject
from automap.planner.exports.workload import sequences_at_once
from automap.planner.plan.types import CallPlan

ROLE = "rollout"


def add_engines(subject: Subject, lines: Lines) -> None:
    """Sizes, cache and limits of the engines."""
    workload, call = subject.job.spec.workload, subject.generations[0]
    layout = call.parallelism
    assert layout is not None, "a generation has a layout"
    engine = workload.rollout_engine
    lines.add("generation_engine", engine, f"workload.rollout_engine: {engine}", role=ROLE)
    because = f"{call.id}: {layout.in_short()}"
    replicas, tensor = attention_replicas(layout), layout.tensor_parallel_size
    lines.add("engines", subject.rollout.num_gpus // (tensor * replicas), because, role=ROLE)
    lines.add("engine_tensor_parallel_size", tensor, because, role=ROLE)
    lines.add("engine_pipeline_parallel_size", 1, because, role=ROLE)
    lines.add("engine_data_parallel_size", replicas, because, role=ROLE)
    lines.add("engine_expert_parallel_size", layout.expert_parallel_size, because, role=ROLE)
    of_replicas = layout.data_parallel_size
    each, shared = sequences_at_once(subject, call, of_replicas, of="replicas")
    lines.add("concurrent_sequences", each, shared, role=ROLE)
    _add_cache(subject, call, lines)
    lines.add("prefill_tokens", PREFILL_CHUNK_TOKENS, "what the price assumes", role=ROLE)
    longest = longest_sequence(subject)
    lines.add("longest_sequence", longest, "longest prompt and response", role=ROLE)
    precision = PRECISIONS[workload.precision]
    lines.add("precision", precision, f"workload.precision: {workload.precision}", role=ROLE)
    lines.add("weight_transfer", "nccl", "what the price assumes", role=ROLE)


def _add_cache(subject: Subject, call: CallPlan, lines: Lines) -> None:
    lines.add("cache_bytes", *engine_cache(subject, call), role=ROLE)
    precision = subject.job.spec.workload.rollout_cache_precision
    if precision == "fp8":
        stated = f"workload.rollout_cache_precision: {precision}"
        lines.add("cache_precision", precision, stated, role=ROLE)
    share, why = memory_share(subject, call)
    lines.add("memory_share", share, why, role=ROLE)
