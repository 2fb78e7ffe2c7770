"""Changes to a job spec that may make an impossible job possible."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from automap.planner.catalogue import gpu_type, gpu_types
from automap.planner.catalogue.hardware import GpuType
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS, BYTES_PER_WEIGHT
from automap.planner.errors import SpecError
from automap.planner.job.job import allowing
from automap.planner.job.resolution import resolve
from automap.planner.spec import ClusterSpec, ConstraintsSpec, JobSpec, LoraSpec, PoolSpec
from automap.planner.spec.lengths import LengthSpec
from automap.planner.targets.automap import AUTOMAP
from automap.planner.targets.tables import FRAMEWORKS

ChangeKind = Literal[
    "margin",
    "offload",
    "recompute",
    "constraint",
    "keep_free",
    "target",
    "strategy",
    "gpu",
    "nodes",
    "response_length",
    "across_nodes",
    "precision",
    "adapters",
]
"""What a change that makes a job possible changes."""
LORA_RANK = 16
NO_PROFILES: Mapping[str, str] = MappingProxyType({})
"""GPU type → measured profile of pools that a change gives GPUs of this type; else the tables that
come along."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a spec; `text` completes "it would fit if you …"."""

    kinds: tuple[ChangeKind, ...]
    text: str
    spec: JobSpec
    """The changed spec."""


def riskier(spec: JobSpec, percent: int) -> Change:
    """A larger chance of running out of memory allowed."""
    text = f"set search.max_out_of_memory_probability to {percent / 100:g}"
    changed = allowing(spec, out_of_memory_probability=percent / 100)
    return Change(("margin",), text, changed)


def permissions(spec: JobSpec) -> list[Change]:
    """What the constraints forbid, allowed again."""
    given, changes = spec.constraints, []
    if not given.allow_offload:
        text = "allow offload to host memory (constraints.allow_offload: true)"
        changes.append(Change(("offload",), text, _constrained(spec, "allow_offload", True)))
    if not given.allow_recompute:
        text = "allow recomputation (constraints.allow_recompute: true)"
        changes.append(Change(("recompute",), text, _constrained(spec, "allow_recompute", True)))
    for field in ("pools", "parallelism", "colocate", "separate", "require_even_batch"):
        if getattr(given, field):
            default = ConstraintsSpec.model_fields[field].default
            text = f"leave out constraints.{field}"
            changes.append(Change(("constraint",), text, _constrained(spec, field, default)))
    return changes


def across_nodes(spec: JobSpec) -> list[Change]:
    """Tensor and expert groups that may leave an NVLink domain, where there is more than one."""
    if spec.constraints.tensor_parallel_across_nodes:
        return []
    if all(pool.reach_gpus == pool.num_gpus for pool in resolve(spec).pools):
        return []
    text = (
        "let tensor and expert groups leave the NVLink domain "
        "(constraints.tensor_parallel_across_nodes: true)"
    )
    return [
        Change(("across_nodes",), text, _constrained(spec, "tensor_parallel_across_nodes", True))
    ]


def optimizer_on_host(spec: JobSpec) -> list[Change]:
    """The optimizer updated on the host, where the job's target can have that.

    A job that names no target is then planned for the first framework that can.
    """
    workload, job = spec.workload, resolve(spec)
    if workload.optimizer != "adam" or workload.optimizer_cpu_offload:
        return []
    update = {"workload": workload.model_copy(update={"optimizer_cpu_offload": True})}
    changed = spec.model_copy(update=update)
    if not any(model.trainable for model in job.models.values()):
        return []
    try:
        target = resolve(changed).target
    except SpecError:
        return []
    text = "update the optimizer on the host (workload.optimizer_cpu_offload: true)"
    if target is job.target:
        return [Change(("offload",), text, changed)]
    if target not in FRAMEWORKS:
        return []
    return [Change(("offload", "target"), f"{text}, as {target.name} can", changed)]


def another_framework(spec: JobSpec) -> list[Change]:
    """Each framework that can run a job, where it names no target and automap is to run it."""
    if spec.search.target is not None or resolve(spec).target is not AUTOMAP:
        return []
    found = []
    for target in FRAMEWORKS:
        search = spec.search.model_copy(update={"target": target.name})
        changed = spec.model_copy(update={"search": search})
        with suppress(SpecError):
            resolve(changed)
            text = f"plan it for {target.name} (search.target: {target.name})"
            found.append(Change(("target",), text, changed))
    return found


def smaller_rollout(spec: JobSpec) -> list[Change]:
    """Rollout weights in 8 bits, and in 4, while training keeps its precision; the most bits first.

    Only those that the target runs and the GPUs have kernels for, where a model generates.
    """
    workload, job = spec.workload, resolve(spec)
    gpus, known = [pool.gpu for pool in job.pools], job.target.rollout.precisions
    lower: list[tuple[int, str]] = []
    if all(gpu.fp8_flops_per_second is not None for gpu in gpus):
        lower.append((8, "fp8"))
    if all(gpu.unpacks_four_bits for gpu in gpus):
        in_tensor_cores = all(gpu.fp4_flops_per_second is not None for gpu in gpus)
        lower.append((4, "nvfp4" if in_tensor_cores else "int4"))
    given = workload.rollout_precision or workload.precision
    bits_now = 4 if given in BLOCK_FORMATS else 8 * BYTES_PER_WEIGHT[given]
    if all(call.kind != "generate" for call in job.dataflow.calls):
        return []
    return [
        _in_precision(spec, bits, precision)
        for bits, precision in lower
        if bits < bits_now and (known is None or precision in known)
    ]


def _in_precision(spec: JobSpec, bits: int, precision: str) -> Change:
    text = f"keep the rollout's weights in {bits} bits (workload.rollout_precision: {precision})"
    changed = spec.workload.model_copy(update={"rollout_precision": precision})
    return Change(("precision",), text, spec.model_copy(update={"workload": changed}))


def nothing_kept_free(spec: JobSpec) -> list[Change]:
    """All GPUs used, where some are kept free."""
    if not any(spec.constraints.keep_free_gpus.values()):
        return []
    text = "leave out constraints.keep_free_gpus"
    return [Change(("keep_free",), text, _constrained(spec, "keep_free_gpus", {}))]


def keeping_free(spec: JobSpec, pool: str, count: int) -> Change:
    """Another number of GPUs of a pool kept free."""
    kept = spec.constraints.keep_free_gpus
    text = f"set constraints.keep_free_gpus.{pool} to {count}, {kept[pool]} now"
    changed = _constrained(spec, "keep_free_gpus", {**kept, pool: count})
    return Change(("keep_free",), text, changed)


def _constrained(spec: JobSpec, field: str, value: object) -> JobSpec:
    constraints = spec.constraints.model_copy(update={field: value})
    return spec.model_copy(update={"constraints": constraints})


def adapters(spec: JobSpec) -> list[Change]:
    """Adapters on every model that trains, unless all have them."""
    job = resolve(spec)
    roles = [
        role for role, model in job.models.items() if model.trainable and model.lora_rank is None
    ]
    if not roles:
        return []
    lora = LoraSpec(rank=LORA_RANK)
    adapted = {role: spec.models[role].model_copy(update={"lora": lora}) for role in roles}
    fields = " and ".join(f"models.{role}.lora" for role in roles)
    text = f"train adapters instead of all parameters: {fields}: {{rank: {LORA_RANK}}}"
    changed = spec.model_copy(update={"models": {**spec.models, **adapted}})
    return [Change(("adapters",), text, changed)]


def shorter_response(spec: JobSpec, longest: int) -> Change:
    """Responses cut off at `longest` tokens."""
    cut = _cut(spec.workload.response_length, longest)
    mean = "" if cut.mean is None else f" and the mean to {cut.mean:g}"
    workload = spec.workload.model_copy(update={"response_length": cut})
    return Change(
        ("response_length",),
        f"shorten workload.response_length.max to {longest} tokens{mean}",
        spec.model_copy(update={"workload": workload}),
    )


def _cut(length: LengthSpec, longest: int) -> LengthSpec:
    """The lengths in their own form, none above `longest` tokens: what a user would write."""
    if length.histogram is not None:
        return LengthSpec(histogram=[(min(x, float(longest)), w) for x, w in length.histogram])
    given = {name: getattr(length, name) for name in ("p50", "p90", "p99")}
    if length.mean is not None:
        # The cut takes from the spread, which a percentile beside the mean would still state.
        given = {"mean": max(float(int(length.truncated(longest).mean_tokens)), 1.0)}
    kept = {name: min(value, float(longest)) for name, value in given.items() if value is not None}
    return LengthSpec(**kept, max=longest)


def pools_of(spec: JobSpec) -> list[PoolSpec]:
    """The pools of a spec that names no stored cluster."""
    assert isinstance(spec.cluster, ClusterSpec)
    return spec.cluster.pools


def with_pool(spec: JobSpec, pool: PoolSpec) -> JobSpec:
    """The spec with the pool of that name replaced."""
    pools = [pool if each.name == pool.name else each for each in pools_of(spec)]
    return spec.model_copy(update={"cluster": ClusterSpec(pools=pools)})


def with_nodes(spec: JobSpec, pool: PoolSpec, num_nodes: int) -> JobSpec:
    """The spec with another number of nodes in a pool."""
    return with_pool(spec, pool.model_copy(update={"num_nodes": num_nodes}))


def more_nodes(spec: JobSpec, pool: PoolSpec, num_nodes: int) -> Change:
    """Nodes added to a pool."""
    changed = with_nodes(spec, pool, num_nodes)
    per_node = next(p.gpus_per_node for p in resolve(changed).pools if p.name == pool.name)
    text = (
        f"add {gpus_text((num_nodes - pool.num_nodes) * per_node)}: {num_nodes} nodes "
        f"({gpus_text(num_nodes * per_node)}) in pool {pool.name}, {pool.num_nodes} now"
    )
    return Change(("nodes",), text, changed)


def gpus_text(count: int) -> str:
    """1 GPU, 2 GPUs."""
    return f"{count} GPU" + ("" if count == 1 else "s")


def pool_with_gpu(pool: PoolSpec, gpu: str, *, profile: str | None = None) -> PoolSpec:
    """A pool of as many nodes with other GPUs; its links, host and price are the catalogue's."""
    return PoolSpec(
        name=pool.name,
        gpu=gpu,
        num_nodes=pool.num_nodes,
        gpus_per_node=pool.gpus_per_node,
        profile=profile,
    )


def larger_gpus(
    spec: JobSpec, pool: PoolSpec, profiles: Mapping[str, str] = NO_PROFILES
) -> list[tuple[Change, int]]:
    """The pool with every type of GPU that has more memory, the least first, and how much more.

    None that reads its memory more slowly: nobody leaves an H100 for an A100, of 0.4 GiB more.
    """
    own = gpu_type(pool.gpu)
    larger = [
        each
        for each in _usable_gpus(spec, own)
        if each.memory_bytes > own.memory_bytes
        and each.memory_bytes_per_second >= own.memory_bytes_per_second
    ]
    return [
        (_with_gpu(spec, pool, each.name, profiles), each.memory_bytes - own.memory_bytes)
        for each in sorted(larger, key=lambda gpu: gpu.memory_bytes)
    ]


def faster_gpus(
    spec: JobSpec, pool: PoolSpec, profiles: Mapping[str, str] = NO_PROFILES
) -> list[Change]:
    """The pool with every type of GPU that is faster and no smaller, the slowest first.

    Faster is one with more memory bandwidth and no less to compute with.
    """
    own = gpu_type(pool.gpu)
    faster = [
        each
        for each in _usable_gpus(spec, own)
        if each.bf16_flops_per_second >= own.bf16_flops_per_second
        and each.memory_bytes_per_second > own.memory_bytes_per_second
        and each.memory_bytes >= 0.99 * own.memory_bytes
    ]
    return [
        _with_gpu(spec, pool, each.name, profiles)
        for each in sorted(faster, key=lambda gpu: gpu.bf16_flops_per_second)
    ]


def _usable_gpus(spec: JobSpec, own: GpuType) -> list[GpuType]:
    """GPU types that run the software of the pool's own, and compute in the job's precision."""
    with_bf16 = spec.workload.precision == "bf16"
    return [
        each
        for each in gpu_types().values()
        if each.is_assumed == own.is_assumed and (each.has_bf16 or not with_bf16)
    ]


def _with_gpu(spec: JobSpec, pool: PoolSpec, gpu: str, profiles: Mapping[str, str]) -> Change:
    text = f"use {gpu} in pool {pool.name}, {pool.gpu} now"
    changed = pool_with_gpu(pool, gpu, profile=profiles.get(gpu))
    return Change(("gpu",), text, with_pool(spec, changed))
