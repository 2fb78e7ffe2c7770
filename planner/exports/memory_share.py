"""The share of a GPU's memory that an engine is told, and the sum that it is a share of."""

import math

from automap.planner.exports.refusals import engine_bytes
from automap.planner.exports.subject import Subject
from automap.planner.plan.types import CallPlan


def memory_share(subject: Subject, call: CallPlan) -> tuple[float, str]:
    """The share of a GPU that the engine of a generation takes, and the sum in bytes, in words.

    vLLM's share is of weights, buffers and cache, SGLang's (`mem_fraction_static`) of weights and
    cache alone.
    """
    cache, memory = call.kv_cache_bytes or 0, subject.pool(subject.rollout).gpu.memory_bytes
    # A shadow's weights are its own bytes, not the call's.
    weights = call.bytes_by_kind.weights or subject.rollout.bytes_by_kind.weights
    kinds, other = "weights", weights
    if subject.job.spec.workload.rollout_engine == "vllm":
        kinds = "weights and buffers"
        other = engine_bytes(call) - call.bytes_by_kind.weights - cache + weights
    why = f"{call.id}: {other} bytes of {kinds} and {cache} of cache, of {memory}"
    return share_below(other + cache, memory), why


def share_below(part: int, whole: int) -> float:
    """A share in ten-thousandths, rounded down: more might not be free."""
    return math.floor(10_000 * part / whole) / 10_000
