"""The job of a launch inside another framework, with as much of its placement as that can be told.

What a framework cannot be told is often a single thing, say a reference that stays on the GPUs. So
the launch's own choices are constraints first, and are let go step by step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    NotExportableError,
    SpecError,
)
from automap.planner.exports.exporting import export
from automap.planner.exports.launch import Launch
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlacement, CopyPlacement, Placement, Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec, ParallelismConstraint

LAYOUTS, SHARDING = "GPUs and layouts", "sharding"
SETTINGS, ENGINE = "micro-batches and recomputation", "engine sizes"
CACHE, OFFLOAD = "cache", "offload of what trains"
SHARDING_OF = f"{SHARDING} of "
"""What comes before the roles whose sharding is kept, where that of others is not."""
STEPS: tuple[tuple[str, ...], ...] = (
    (LAYOUTS, SHARDING, SETTINGS, ENGINE),
    (LAYOUTS, SHARDING, ENGINE),
    (LAYOUTS, SETTINGS, ENGINE),
    (LAYOUTS, ENGINE),
    (SETTINGS, ENGINE),
    (ENGINE,),
)
"""What is kept, the most first."""
BESIDE = ((CACHE, OFFLOAD), (CACHE,), (OFFLOAD,))
"""What no constraint fixes, and what is put back of it afterwards, the most first."""
EVERYTHING = (*STEPS[0], *BESIDE[0])
SIZES = ("tensor", "pipeline", "data", "expert")
"""Sizes of an engine."""
NO_PLAN = (InfeasibleError, NoSolutionInTimeError, NotExportableError, SpecError)


@dataclass(frozen=True, slots=True)
class Kept:
    """A job with a part of a placement as constraints; `what` says which."""

    spec: JobSpec
    what: tuple[str, ...]


def most_kept(spec: JobSpec, placement: Placement, target: str) -> Kept:
    """The job with as much of a placement fixed as its framework has a plan for.

    Nothing is fixed where no part of it can be.

    Args:
        spec: The job, planned for the framework (`inside_another`).
        placement: What the launch says.
        target: The framework, `name@version`.

    Raises:
        SpecError: the job itself contradicts the framework.
    """
    job = resolve(spec)
    for what in STEPS:
        pinned = _pinned(spec, job, placement, what)
        if _has_plan(pinned, target):
            if SHARDING in what:
                return Kept(pinned, what)
            return _sharded(Kept(pinned, what), job, placement, target)
    return Kept(spec, ())


def _has_plan(spec: JobSpec, target: str) -> bool:
    """Whether there is a plan of a job that its framework can be told."""
    try:
        # Why it does not fit is of no use to anybody, and takes long.
        export(make_plan(spec, explain=lambda _: []), target)
    except NO_PLAN:
        return False
    return True


def _sharded(kept: Kept, job: Job, placement: Placement, target: str) -> Kept:
    """The job with the sharding of each role as well, where there is a plan with it."""
    spec, roles = kept.spec, list[str]()
    for copy in _homes(job, placement):
        constraints = spec.constraints
        known = constraints.parallelism.get(copy.role, ParallelismConstraint())
        pin = known.model_copy(update={"sharding": copy.layout.sharding})
        parallelism = {**constraints.parallelism, copy.role: pin}
        update = {"constraints": constraints.model_copy(update={"parallelism": parallelism})}
        tried = spec.model_copy(update=update)
        if known.sharding is None and _has_plan(tried, target):
            spec, roles = tried, [*roles, copy.role]
    return Kept(spec, (*kept.what, f"{SHARDING_OF}{', '.join(roles)}") if roles else kept.what)


def put_back(
    plan: Plan,
    placement: Placement,
    target: str,
    price: Callable[[JobSpec, Placement], Plan],
    say: Callable[..., Launch] = export,
) -> tuple[Plan, Launch, tuple[str, ...]]:
    """The plan with the launch's cache and offload where they fit, its launch, and which of them.

    `say` makes the launch of a plan as `export` does.

    Raises:
        NotExportableError: the framework cannot be told the plan.
    """
    launch = say(plan, target)
    for what in BESIDE:
        changed = _with(plan.placement(), placement, what)
        try:
            priced = price(plan.spec, changed)
            return priced, say(priced, target, spare_cache=CACHE not in what), what
        except NO_PLAN:
            continue
    return plan, launch, ()


def _with(planned: Placement, placement: Placement, what: tuple[str, ...]) -> Placement:
    """A placement with what another one has of the same copies and calls."""
    trained = {call.copy_id for call in planned.calls if call.kind == "train" and OFFLOAD in what}
    offloads = {copy.id: copy.offload for copy in placement.copies if copy.id in trained}
    caches = {call.id: call.kv_cache_bytes for call in placement.calls if CACHE in what}
    copies = [
        copy.model_copy(update={"offload": offloads.get(copy.id, copy.offload)})
        for copy in planned.copies
    ]
    calls = [
        call.model_copy(update={"kv_cache_bytes": caches.get(call.id, call.kv_cache_bytes)})
        for call in planned.calls
    ]
    return planned.model_copy(update={"copies": copies, "calls": calls})


def _pinned(spec: JobSpec, job: Job, placement: Placement, what: tuple[str, ...]) -> JobSpec:
    """The job with this part of a placement as constraints, below those that it has."""
    constraints = spec.constraints
    pins = {key: ParallelismConstraint(**sizes) for key, sizes in _pins(job, placement, what)}
    update: dict[str, Any] = {"parallelism": {**pins, **constraints.parallelism}}
    if LAYOUTS in what:
        pairs = list(combinations(_homes(job, placement), 2))
        update["colocate"] = [
            *constraints.colocate,
            *((one.role, other.role) for one, other in pairs if _range(one) == _range(other)),
        ]
        update["separate"] = [
            *constraints.separate,
            *((one.role, other.role) for one, other in pairs if not _meet(one, other)),
        ]
        if all(copy.kind == "home" for copy in placement.copies):
            update["allow_shadow_copies"] = False
    return spec.model_copy(update={"constraints": constraints.model_copy(update=update)})


def _pins(
    job: Job, placement: Placement, what: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Role or call → what of it is fixed."""
    for copy in _homes(job, placement):
        sizes: dict[str, Any] = {}
        if LAYOUTS in what:
            sizes = {"num_gpus": copy.num_gpus}
            for name in (*SIZES, "context"):
                field = f"{name}_parallel_size"
                sizes[field] = getattr(copy.layout, field)
        if SHARDING in what:
            sizes["sharding"] = copy.layout.sharding
        if sizes:
            yield copy.role, sizes
    flow = {call.id for call in job.dataflow.calls if call.model in job.models}
    for call in placement.calls:
        has_weights = call.id in flow and call.copy_id is not None
        if has_weights and call.id not in job.models and (fixed := _of_call(call, what)):
            yield call.id, fixed


def _of_call(call: CallPlacement, what: tuple[str, ...]) -> dict[str, Any]:
    if call.kind == "generate" and ENGINE in what and call.parallelism is not None:
        # Data-parallel engines follow from the GPUs, where these are kept.
        fields = [f"{name}_parallel_size" for name in SIZES if name != "data" or LAYOUTS in what]
        return {field: getattr(call.parallelism, field) for field in fields}
    if call.kind == "generate" or SETTINGS not in what:
        return {}
    fixed: dict[str, Any] = {"micro_batch_size": call.micro_batch_size}
    return {**fixed, "recompute": call.recompute} if call.kind == "train" else fixed


def _homes(job: Job, placement: Placement) -> list[CopyPlacement]:
    return [copy for copy in placement.copies if copy.kind == "home" and copy.role in job.models]


def _range(copy: CopyPlacement) -> tuple[str, int, int]:
    return copy.pool, copy.first_gpu, copy.num_gpus


def _meet(one: CopyPlacement, other: CopyPlacement) -> bool:
    """Whether two copies have a GPU in common."""
    ends = [copy.first_gpu + copy.num_gpus for copy in (one, other)]
    apart = one.first_gpu >= ends[1] or other.first_gpu >= ends[0]
    return one.pool == other.pool and not apart
