"""The key-value cache of the engines that generate, from bytes, or from a share of the memory."""

import math
from collections.abc import Iterator

import numpy as np

from automap.planner.assembly.parts import PricedCopy, price_call, price_copy, pricing_of
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.generation.continuous import (
    Admission,
    cached_tokens,
    cached_variance,
)
from automap.planner.cost.generation.kv_cache import (
    CACHE_SIGMAS,
    bytes_of_every_token,
    kv_bytes_per_token,
    minimum_kv_cache_bytes,
)
from automap.planner.cost.memory import fillable_bytes
from automap.planner.dataflow.graph import Call
from automap.planner.exports.layouts import attention_replicas
from automap.planner.exports.memory_share import FILLED_WITH_A_CHANCE_OF
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.layout import GenerationLayouts
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement
from automap.planner.units import GIB

ROUNDS = 6
"""Prices until the engine's other bytes, which grow with its cache, are those of its cache."""


def cache_bytes(
    settings: Settings, job: Job, call: Call, placement: CallPlacement, copies: list[CopyPlacement]
) -> int:
    """Bytes of cache on each GPU."""
    share = settings.share("memory_share", "rollout")
    for decision in ("prefill_tokens", "longest_sequence"):
        if settings.knows(decision, "rollout"):
            settings.value(decision, "rollout")
    if settings.knows("engine_sleeps", "rollout"):
        settings.flag("engine_sleeps", "rollout")
    on_vllm = job.spec.workload.rollout_engine == "vllm" and settings.knows(
        "cache_bytes", "rollout"
    )
    stated = settings.whole("cache_bytes", "rollout") if on_vllm else None
    if stated is not None:
        return stated
    assert placement.parallelism is not None, "a generation has a layout"
    bound = _of_tokens(settings, job, call, placement.parallelism)
    return _of_share(settings, job, call, placement, copies, share, bound)


def _of_tokens(settings: Settings, job: Job, call: Call, layout: Parallelism) -> int | None:
    """Bytes of the most tokens that an engine is to hold; None: it is not told."""
    if not settings.knows("cache_tokens", "rollout"):
        return None
    tokens = settings.whole("cache_tokens", "rollout")
    if tokens is None:
        return None
    model, given = job.models[call.model or call.role], settings.given("cache_tokens", "rollout")
    each = bytes_of_every_token(model, _layouts(layout), precision=_precision(job))
    where = settings.where("cache_tokens", "rollout")
    if each is None:
        told = f"{where}: {tokens} tokens have no one size where layers keep windows or states"
        settings.note("not priced", told, given)
        return None
    found, least = tokens * int(each[0]), _least(job, call, layout)
    if found < least:
        told = (
            f"{where}: {tokens} tokens are {found / GIB:.1f} GiB of cache, and one longest "
            f"sequence needs {least / GIB:.1f} GiB; priced with that"
        )
        settings.note("does not fit", told, given)
    return max(found, least)


def _of_share(
    settings: Settings,
    job: Job,
    call: Call,
    placement: CallPlacement,
    copies: list[CopyPlacement],
    share: float,
    bound: int | None,
) -> int:
    """What a share of the memory leaves beside the engine's weights and, in vLLM, all else.

    It is at most `bound`, where an engine has one.
    """
    pricing = pricing_of(job, copies)
    [copy] = [each for each in copies if each.id == placement.copy_id]
    priced: PricedCopy = price_copy(pricing, copy)
    pool: Pool = priced.pool
    # A byte more than the share, which is written rounded down.
    total = int(share * pool.gpu.memory_bytes) + 1
    assert placement.parallelism is not None, "a generation has a layout"
    least, cache = _least(job, call, placement.parallelism), total
    for _ in range(ROUNDS):
        found = price_call(
            pricing,
            call,
            placement.model_copy(update={"kv_cache_bytes": max(cache, least)}),
            priced,
        ).bytes_by_kind
        # A shadow's weights are its own bytes, not the call's.
        weights = found.weights or priced.bytes_by_kind.weights
        whole = job.spec.workload.rollout_engine == "vllm"
        other = found.total - found.kv_cache - found.weights + weights if whole else weights
        cache = total - other
    if cache >= least and _is_alone(copy, copies):
        # It takes what it finds free, so what is estimated wrongly is not missing but less cache.
        capacity = fillable_bytes(pool, max_out_of_memory_probability=FILLED_WITH_A_CHANCE_OF)
        beside = found.total - found.kv_cache + priced.resident_bytes
        cache = max(min(cache, capacity - beside), least)
    if cache < least:
        where = settings.where("memory_share", "rollout")
        told = (
            f"{where}: {share:g} of {pool.gpu.memory_bytes / GIB:.0f} GiB leaves "
            f"{max(cache, 0) / GIB:.1f} GiB of cache beside the {(total - cache) / GIB:.1f} GiB of "
            f"the engine itself, and one longest sequence needs {least / GIB:.1f} GiB; priced with "
            "that"
        )
        settings.note("does not fit", told, settings.given("memory_share", "rollout"))
        return least
    if bound is not None and bound <= cache:
        return bound
    settings.assume(
        f"the engine's cache is what {share:g} of a GPU leaves by estimate: {cache / GIB:.1f} GiB"
    )
    return cache


def usable(settings: Settings, job: Job, call: Call, layout: Parallelism, cache: int) -> int:
    """The part of a cache that the sequences which run at once can use."""
    groups, engines = _engines(settings, layout)
    flows = job.spec.search.continuous_rollouts
    batches = max(job.spec.search.staleness + 1 - job.training_slack, 1) if flows else 1
    bounds = list(_bounds(settings, job, engines))
    if not bounds:
        return cache
    at_once, decision, role = min(bounds)
    if at_once >= call.num_sequences * batches:
        return cache
    # The largest that has no room for a further sequence.
    needed = _bytes_of(job, call, layout, at_once / engines / groups + 1) - 1
    if needed >= cache:
        return cache
    told = (
        f"{settings.where(decision, role)}: an engine runs {-(-at_once // engines)} of the "
        f"{-(-call.num_sequences * batches // engines)} sequences that it could be given: priced "
        f"with the {needed / GIB:.1f} GiB of cache that these can use, of {cache / GIB:.1f} GiB"
    )
    settings.note("assumed", told, settings.given(decision, role))
    return needed


def most_sequences(settings: Settings, placement: Placement) -> int | None:
    """Sequences that all engines of a launch run at once; None: it has no limit."""
    [layout, *_] = [each.parallelism for each in placement.calls if each.kind == "generate"]
    if layout is None or not settings.knows("concurrent_sequences", "rollout"):
        return None
    each = settings.whole("concurrent_sequences", "rollout")
    return None if each is None else each * _engines(settings, layout)[1]


def _engines(settings: Settings, layout: Parallelism) -> tuple[int, int]:
    """(replicas of the attention in an engine that share its limit of sequences, engines)."""
    groups = 1 if settings.framework.sequences_of_replicas else attention_replicas(layout)
    return groups, max(layout.data_parallel_size // groups, 1)


def _bytes_of(job: Job, call: Call, layout: Parallelism, sequences: float) -> int:
    """Bytes of cache on each GPU in which a replica runs so many sequences."""
    model, workload, sizes = (
        job.models[call.model or call.role],
        job.spec.workload,
        _layouts(layout),
    )
    admission = Admission.of(job, call)
    tokens = _mean_running_tokens(job)
    spread = 0.0
    if admission is not None:
        tokens = cached_tokens(call, workload, admission)
        spread = CACHE_SIGMAS * math.sqrt(sequences * cached_variance(workload))
    each = int(kv_bytes_per_token(model, sizes, tokens=tokens, precision=_precision(job))[0])
    return max(math.ceil(sequences * tokens + spread) * each, _least(job, call, layout))


def _bounds(settings: Settings, job: Job, engines: int) -> Iterator[tuple[int, str, str]]:
    """(sequences that all engines run at once at most, decision, role) of each bound."""
    for decision in ("concurrent_sequences", "sent_sequences"):
        if settings.knows(decision, "rollout"):
            each = settings.whole(decision, "rollout")
            if each is not None:
                yield each * engines, decision, "rollout"
    workload = job.spec.workload
    if settings.knows("concurrent_prompts"):
        prompts = settings.whole("concurrent_prompts") or workload.prompts_per_iteration
        yield prompts * workload.responses_per_prompt, "concurrent_prompts", "job"
    if job.spec.search.staleness and settings.knows("parallel_groups"):
        prompts = settings.whole("parallel_groups") or workload.prompts_per_iteration
        yield prompts * workload.responses_per_prompt, "parallel_groups", "job"


def _is_alone(copy: CopyPlacement, copies: list[CopyPlacement]) -> bool:
    """Whether a copy is an engine, and no other copy has GPUs of its range."""
    first, end = copy.first_gpu, copy.first_gpu + copy.num_gpus
    return copy.kind == "shadow" and not any(
        other.id != copy.id
        and other.pool == copy.pool
        and other.first_gpu < end
        and first < other.first_gpu + other.num_gpus
        for other in copies
    )


def _mean_running_tokens(job: Job) -> float:
    """Tokens that a running sequence has in the cache on average, while ended ones are replaced.

    A long response runs longer, and is met half way: E[length²] / 2 E[length].
    """
    workload = job.spec.workload
    lengths, weights = workload.response_length.distribution()
    half = float((lengths**2) @ weights) / float(2 * (lengths @ weights))
    return workload.prompt_length.mean_tokens + half


def _precision(job: Job) -> str:
    return job.spec.workload.rollout_cache_precision


def _least(job: Job, call: Call, layout: Parallelism) -> int:
    model = job.models[call.model or call.role]
    return int(minimum_kv_cache_bytes(model, job.spec.workload, _layouts(layout))[0])


def _layouts(layout: Parallelism) -> GenerationLayouts:
    sizes = (getattr(layout, name) for name in GenerationLayouts.__dataclass_fields__)
    return GenerationLayouts(*(np.array([size], dtype=np.int64) for size in sizes))
