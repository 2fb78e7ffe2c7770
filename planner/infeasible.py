"""Why a job fits nowhere, in numbers, and the smallest changes with which it would fit."""

from collections.abc import Iterator
from math import ceil

from planner.errors import Reason, SpecError
from planner.job import Job
from planner.lengths import LengthSpec
from planner.resolve import resolve
from planner.search.baselines import STRATEGIES
from planner.search.candidates import price
from planner.search.objectives import best_placement
from planner.search.space import skeleton
from planner.shortfall import Shortfall, fits_somewhere, least_shortfall
from planner.spec import JobSpec, LoraSpec

GIB = 2**30
MOST_NODES = 4096
"""Larger clusters are not proposed."""
SHORTEST_RESPONSE = 64
LORA_RANK = 16


def explain_infeasible(job: Job) -> list[Reason]:
    """The call that is over, by how many bytes, and every kind of change that would help."""
    found = shortfall_of(job.spec)
    target = job.spec.search.target_iteration_seconds
    if found is not None and found.over_bytes == 0 and target is not None:
        return [_too_slow(job.spec, target)]
    if found is None or found.over_bytes == 0:
        stuck = _without_layout(job)
        if stuck:
            return stuck
        return [
            Reason(
                summary="every model fits, but the constraints leave no common placement",
                remedy="relax constraints.colocate, constraints.separate, constraints.parallelism "
                "or constraints.pools",
            )
        ]
    return [_cause(found), *_remedies(job)]


def _without_layout(job: Job) -> list[Reason]:
    """Calls for which no layout is even tried, whatever the memory."""
    tables = price(job, fits_only=False)
    served = {table.call for table in tables.calls if len(table)}
    return [
        Reason(
            summary=(
                f"{call.id} has no layout: no tried sizes divide its heads, its GPUs and the "
                f"{call.num_sequences} sequences of an iteration as the spec demands"
            ),
            phase=call.id,
            remedy="relax constraints.parallelism or constraints.require_even_batch, or change "
            "gpus_per_node",
        )
        for number, call in enumerate(job.dataflow.calls)
        if call.model is not None and number not in served
    ]


def _too_slow(spec: JobSpec, target_seconds: float) -> Reason:
    """Everything fits, but even the fastest plan on all GPUs misses the target."""
    search = spec.search.model_copy(
        update={"objective": "throughput", "target_iteration_seconds": None}
    )
    job = resolve(spec.model_copy(update={"search": search}))
    tables = price(job)
    best = best_placement(job, tables, skeleton(job, tables), list(STRATEGIES))
    assert best.selected is not None, "the job fits"
    # Rounded up, so that the plan just meets it.
    reachable = ceil(best.selected.timing.period * 1000 + 1) / 1000
    return Reason(
        summary=(
            f"no plan meets search.target_iteration_seconds {target_seconds:g}: the fastest takes "
            f"{best.selected.timing.period:.3f} s on the whole cluster"
        ),
        remedy=f"raise search.target_iteration_seconds to {reachable:.3f}, or add GPUs",
    )


def shortfall_of(spec: JobSpec) -> Shortfall | None:
    """How far the best placement for memory is over; None when something fits."""
    job = resolve(spec)
    tables = price(job, fits_only=False)
    return least_shortfall(skeleton(job, tables), tables)


def _cause(found: Shortfall) -> Reason:
    required = found.capacity_bytes + found.over_bytes
    held = ""
    if found.holder_bytes > 0.1 * required:
        held = f"; {found.holder} alone holds {found.holder_bytes / GIB:.2f} GiB all the time"
    return Reason(
        summary=(
            f"{found.calls[0]} does not fit: even the leanest placement (on {found.num_gpus} GPUs) "
            f"needs {required / GIB:.2f} GiB per GPU and {found.capacity_bytes / GIB:.2f} GiB are "
            f"usable, {found.over_bytes / GIB:.2f} GiB too many{held}"
        ),
        phase=found.calls[0],
        required_bytes=required,
        capacity_bytes=found.capacity_bytes,
        over_bytes=found.over_bytes,
    )


def fits(spec: JobSpec) -> bool:
    """True when some placement fits; a spec that contradicts itself fits nowhere."""
    try:
        job = resolve(spec)
    except SpecError:
        return False
    tables = price(job)
    return fits_somewhere(skeleton(job, tables), tables)


def _remedies(job: Job) -> Iterator[Reason]:
    """The smallest change of each kind that makes the job possible, if there is one."""
    spec = job.spec
    for changed, remedy in _permissions(spec):
        if fits(changed):
            yield _remedy(remedy)
    length = _longest_response(spec)
    if length is not None:
        short = _with_response(spec, length).workload.response_length
        mean = "" if short.mean is None else f" and the mean to {short.mean:g}"
        yield _remedy(f"shorten workload.response_length.max to {length} tokens{mean}")
    adapted = _with_lora(job)
    if adapted is not None and fits(adapted):
        roles = [role for role, given in adapted.models.items() if given != spec.models[role]]
        fields = " and ".join(f"models.{role}.lora" for role in roles)
        yield _remedy(f"train adapters instead of all parameters: {fields}: {{rank: {LORA_RANK}}}")
    yield from _more_gpus(spec)


def _remedy(text: str) -> Reason:
    return Reason(summary=f"it would fit if you {text}", remedy=text)


def _permissions(spec: JobSpec) -> Iterator[tuple[JobSpec, str]]:
    """What the constraints forbid, allowed again."""
    for field, remedy in (
        ("allow_offload", "allow offload to host memory (constraints.allow_offload: true)"),
        ("allow_recompute", "allow recomputation (constraints.allow_recompute: true)"),
    ):
        if not getattr(spec.constraints, field):
            constraints = spec.constraints.model_copy(update={field: True})
            yield spec.model_copy(update={"constraints": constraints}), remedy


def _longest_response(spec: JobSpec) -> int | None:
    """The longest maximum response that fits, by bisection; None when none above 64 does."""
    longest = spec.workload.response_length.max_tokens
    if not fits(_with_response(spec, SHORTEST_RESPONSE)):
        return None
    low, high = SHORTEST_RESPONSE, longest
    while high - low > max(low // 16, 1):
        middle = (low + high) // 2
        if fits(_with_response(spec, middle)):
            low = middle
        else:
            high = middle
    return low


def _with_response(spec: JobSpec, longest: int) -> JobSpec:
    """The spec with responses cut off at `longest` tokens."""
    cut = _cut(spec.workload.response_length, longest)
    workload = spec.workload.model_copy(update={"response_length": cut})
    return spec.model_copy(update={"workload": workload})


def _cut(length: LengthSpec, longest: int) -> LengthSpec:
    """The lengths in their own form, none above `longest` tokens: what a user would write."""
    if length.histogram is not None:
        return LengthSpec(histogram=[(min(x, float(longest)), w) for x, w in length.histogram])
    given = {name: getattr(length, name) for name in ("p50", "p90", "p99")}
    if length.mean is not None:
        given["mean"] = max(float(int(length.truncated(longest).mean_tokens)), 1.0)
    kept = {name: min(value, float(longest)) for name, value in given.items() if value is not None}
    return LengthSpec(**kept, max=longest)


def _with_lora(job: Job) -> JobSpec | None:
    """The spec with adapters on every model that trains; None when all have them."""
    models = {
        role: given.model_copy(update={"lora": LoraSpec(rank=LORA_RANK)})
        if role in job.models and job.models[role].trainable
        else given
        for role, given in job.spec.models.items()
    }
    if models == job.spec.models:
        return None
    return job.spec.model_copy(update={"models": models})


def _more_gpus(spec: JobSpec) -> Iterator[Reason]:
    """The fewest nodes of the first pool (the others stay) with which the job fits."""
    assert not isinstance(spec.cluster, str)
    pool = spec.cluster.pools[0]
    high = pool.num_nodes
    while not fits(_with_nodes(spec, high)):
        high *= 2
        if high > MOST_NODES:
            return
    low = max(high // 2, pool.num_nodes)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(_with_nodes(spec, middle)):
            high = middle
        else:
            low = middle
    per_node = resolve(_with_nodes(spec, high)).pools[0].gpus_per_node
    more = (high - pool.num_nodes) * per_node
    yield _remedy(
        f"add {more} GPUs: {high} nodes ({high * per_node} GPUs) in pool {pool.name}, "
        f"{pool.num_nodes} now"
    )


def _with_nodes(spec: JobSpec, num_nodes: int) -> JobSpec:
    assert not isinstance(spec.cluster, str)
    first, *others = spec.cluster.pools
    pools = [first.model_copy(update={"num_nodes": num_nodes}), *others]
    return spec.model_copy(update={"cluster": spec.cluster.model_copy(update={"pools": pools})})
