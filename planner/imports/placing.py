"""The placement of a launch: copies on their ranges, and what each call is told."""

from collections.abc import Callable
from typing import Any

from automap.planner.cost.constants import PREFILL_CHUNK_TOKENS
from automap.planner.imports.cache import cache_bytes, usable
from automap.planner.imports.layouts import (
    Offload,
    Recompute,
    engine_layout,
    offload_of,
    one_process,
    recompute_of,
    training_layout,
)
from automap.planner.imports.micro_batches import (
    micro_batch_of,
    note_budgets,
    note_stated,
)
from automap.planner.imports.pools import Pools, Range
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement

SHADOW = "actor.shadow"


def placement_of(
    settings: Settings,
    job: Job,
    pools: Pools,
    *,
    offload: Callable[[Settings, str], Offload] = offload_of,
    engine: Callable[[Settings, int], Parallelism] = engine_layout,
    layout: Callable[[Settings, Job, str, int], Parallelism] = training_layout,
    recompute: Callable[[Settings, str], Recompute] = recompute_of,
    home: Callable[[str], tuple[Range, Parallelism]] | None = None,
    micro_batch: Callable[[CopyPlacement], int] | None = None,
) -> tuple[Placement, int]:
    """The placement, and the cache bytes on each GPU of an engine.

    Args:
        settings: The launch.
        job: What it trains.
        pools: Its GPUs.
        offload: What of a role is on the host between its calls.
        engine: The layout of what generates on so many GPUs.
        layout: That of a role which trains or scores.
        recompute: Which activations of its training are computed again.
        home: The GPUs of a role and its layout there, where models have GPUs of their own.
        micro_batch: Sequences that all calls of a model compute at once, where these have one
            number of tokens.
    """
    if home is None:
        one_process(settings, job)
        copies = [_home(settings, job, pools, role, offload, layout) for role in job.models]
    else:
        copies = [
            _copy(job, used, role, own_layout, offload=offload(settings, role))
            for role in job.models
            for used, own_layout in [home(role)]
        ]
    actor = next(copy for copy in copies if copy.role == "actor")
    generated = engine(settings, (pools.rollout or pools.trainer).num_gpus)
    if pools.rollout is not None:
        copies.append(_copy(job, pools.rollout, "actor", generated, kind="shadow", id=SHADOW))
    homes = {copy.role: copy for copy in copies if copy.kind == "home"}
    calls, cache = [], 0
    for call in job.dataflow.calls:
        settings_of: dict[str, Any] = {"id": call.id, "role": call.role, "kind": call.kind}
        own = homes.get(call.model or "")
        if own is None:
            calls.append(CallPlacement(**settings_of))
            continue
        settings_of |= {"copy": own.id, "parallelism": own.layout}
        if call.kind == "generate":
            where = SHADOW if pools.apart else actor.id
            settings_of |= {"copy": where, "parallelism": generated, "kv_cache_bytes": 0}
            placed = CallPlacement(**settings_of)
            cache = cache_bytes(settings, job, call, placed, copies)
            cache_used = usable(settings, job, call, generated, cache)
            calls.append(placed.model_copy(update={"kv_cache_bytes": cache_used}))
            continue
        settings_of["micro_batch_size"] = (
            _micro_batch(settings, job, call.role, call.kind, own)
            if micro_batch is None
            else micro_batch(own)
        )
        if call.kind == "train":
            settings_of["recompute"] = recompute(settings, call.role)
        calls.append(CallPlacement(**settings_of))
    layouts: dict[str, Parallelism] = {
        role: homes[role].layout for role in ("actor", "reference", "critic") if role in homes
    }
    if micro_batch is None:
        note_budgets(settings, job.spec.workload, layouts)
    return Placement(copies=copies, calls=calls), cache


def _home(
    settings: Settings,
    job: Job,
    pools: Pools,
    role: str,
    offload: Callable[[Settings, str], Offload],
    layout_of: Callable[[Settings, Job, str, int], Parallelism],
) -> CopyPlacement:
    if role == "reward":
        used = pools.reward or pools.trainer
        layout = engine_layout(settings, used.num_gpus, "reward")
        for decision in ("generation_engine", "memory_share", "longest_sequence"):
            settings.value(decision, role)
        sleeps = settings.flag("engine_sleeps", role)
        return _copy(job, used, role, layout, offload="weights" if sleeps else "none")
    layout = layout_of(settings, job, role, pools.trainer.num_gpus)
    return _copy(job, pools.trainer, role, layout, offload=offload(settings, role))


def _copy(job: Job, used: Range, role: str, layout: Parallelism, **more: str) -> CopyPlacement:
    given: dict[str, Any] = {"id": role, "kind": "home", **more}
    return CopyPlacement(
        role=role,
        pool=job.pools[0].name,
        first_gpu=used.first_gpu,
        num_gpus=used.num_gpus,
        layout=layout,
        **given,
    )


def _micro_batch(settings: Settings, job: Job, role: str, kind: str, home: CopyPlacement) -> int:
    workload = job.spec.workload
    if role == "reward" and settings.knows("concurrent_sequences", role):
        served = settings.whole("concurrent_sequences", role) or 1
        # An engine computes so many tokens at once, whatever number of sequences it takes.
        longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
        served = min(served, max(PREFILL_CHUNK_TOKENS // longest, 1))
        of_rank = -(-workload.num_sequences // home.layout.data_parallel_size)
        return max(min(served, of_rank), 1)
    if settings.knows("stated_micro_batch", role):
        note_stated(settings, role)
    return micro_batch_of(settings, workload, role, kind, home.layout)
