"""The share of a GPU's memory that an engine is told, and the sum that it is a share of."""

import math

from automap.planner.cost.generation.kv_cache import bytes_of_every_token
from automap.planner.cost.memory import fillable_bytes
from automap.planner.exports.engine_memory import (
    buffer_bytes,
    engine_layouts,
    engine_weights,
    start_bytes,
)
from automap.planner.exports.subject import Subject
from automap.planner.plan.types import CallPlan
from automap.planner.units import GIB

STEPS = 10_000
"""Parts of a whole in which shares are written."""
FILLED_WITH_A_CHANCE_OF = 0.005
"""Chance of running out of memory up to which an engine's cache takes what a plan leaves free."""


def spare_cache_bytes(subject: Subject, chance: float = FILLED_WITH_A_CHANCE_OF) -> int:
    """Bytes of cache that engines may have beyond the plan's, on each GPU, in whole GiB.

    A plan counts on the cache that its lengths need; responses grow, and validation sends more of
    them at once. So engines are told the memory that is free while they generate, too, up to a
    `chance` of running out of it.
    """
    pool = subject.pool(subject.rollout)
    fillable = fillable_bytes(pool, max_out_of_memory_probability=chance)
    # One engine serves all generations, with one cache.
    taken = [
        max(
            call.peak_bytes - call.bytes_by_kind.kv_cache + (call.kv_cache_bytes or 0),
            start_bytes(subject, call),
        )
        for call in subject.generations
    ]
    return max(fillable - max(taken), 0) // GIB * GIB


def engine_cache(subject: Subject, call: CallPlan) -> tuple[int, str]:
    """Bytes of cache that an engine is told on each GPU, and what they are, in words."""
    planned, spare = call.kv_cache_bytes or 0, subject.spare_cache_bytes
    why = f"{call.id}: kv_cache_bytes {planned}"
    return planned + spare, f"{why}, and {spare} that the plan leaves free" if spare else why


def memory_share(
    subject: Subject, call: CallPlan, *, bounded: int | None = None
) -> tuple[float, str]:
    """The share of a GPU that the engine of a generation takes, and the sum in bytes, in words.

    vLLM's share is of weights, buffers and cache, SGLang's (`mem_fraction_static`) of weights and
    cache alone. `bounded`: bytes of cache that an engine is told beside the share, as tokens. It
    takes the smaller of both, so the share is then rounded up.
    """
    cache = engine_cache(subject, call)[0] if bounded is None else bounded
    memory = subject.pool(subject.rollout).gpu.memory_bytes
    kinds, other = "weights", engine_weights(subject, call)
    if subject.job.spec.workload.rollout_engine == "vllm":
        kinds, other = "weights and buffers", other + buffer_bytes(call)
    spare = subject.spare_cache_bytes
    beyond = f" ({spare} spare)" if spare else ""
    why = f"{call.id}: {other} bytes of {kinds} and {cache} of cache{beyond}, of {memory}"
    share = share_below(other + cache, memory)
    return share if bounded is None else round(share + 1 / STEPS, 4), why


def cache_tokens(subject: Subject, call: CallPlan) -> tuple[int, int] | None:
    """(tokens that an engine's cache holds, bytes of each); None: they do not say its bytes."""
    [of] = [each for each in subject.job.dataflow.calls if each.id == call.id]
    found = bytes_of_every_token(
        subject.job.models[of.model or of.role],
        engine_layouts(call),
        precision=subject.job.spec.workload.rollout_cache_precision,
    )
    if found is None or not call.kv_cache_bytes:
        return None
    each = int(found[0])
    return max(engine_cache(subject, call)[0] // each, 1), each


def share_below(part: int, whole: int) -> float:
    """A share in ten-thousandths, rounded down: more might not be free."""
    return math.floor(STEPS * part / whole) / STEPS
