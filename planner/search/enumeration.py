"""Which layouts and settings are candidates: the space that a proof of optimality covers."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from planner.architecture import ModelArchitecture
from planner.cluster import Pool
from planner.cost.pricing import Engine
from planner.job import Job, Model
from planner.layout import OFFLOADS, RECOMPUTES, SHARDINGS, IntArray, Layouts
from planner.spec import ParallelismConstraint

LONG_CONTEXT_TOKENS = 16_384
"""Context parallelism is tried from this sequence length on."""
MOST_STAGES = 64
MICRO_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
VIRTUAL_SIZES = (1, 2, 4)
CACHE_STEPS = 24
SPACE = (
    "one contiguous, aligned range of one pool per copy; powers of two inside a node, every whole "
    "number of nodes up to 32 and steps of at most one sixteenth beyond; powers of two up to 64 as "
    "tensor sizes, where they divide the heads, pipeline sizes up to 64, cache budgets in steps of "
    "1/24 of a GPU's usable memory, "
    "and the micro-batches, recomputation, sharding, offload and (from 16,384 tokens) context "
    "sizes of planner/search/enumeration.py"
)
"""Over what the optimality is claimed, for the plan's report."""


def device_counts(num_gpus: int, gpus_per_node: int) -> list[int]:
    """Sizes of a range: powers of two inside a node, then whole nodes, coarser as they grow."""
    counts = [2**k for k in range(gpus_per_node.bit_length()) if 2**k < gpus_per_node]
    nodes = 1
    while nodes * gpus_per_node <= num_gpus:
        counts.append(nodes * gpus_per_node)
        nodes += 1 if nodes < 32 else 2 ** (nodes.bit_length() - 1) // 16
    whole = num_gpus // gpus_per_node * gpus_per_node
    return sorted({count for count in [*counts, whole] if 0 < count <= num_gpus})


def usable_gpus(pool: Pool) -> int:
    """GPUs of a pool that a plan may use."""
    return pool.num_gpus - pool.kept_free_gpus


def has_candidates_of(larger: Job, smaller: Job) -> bool:
    """True when every candidate of a job is one of the same job on a larger cluster as well.

    And costs as much there: weight syncs of a cluster of several nodes are priced across nodes.
    """
    alone = [sum(pool.num_nodes for pool in job.pools) == 1 for job in (larger, smaller)]
    return alone[0] == alone[1] and all(
        set(device_counts(usable_gpus(small), small.gpus_per_node))
        <= set(device_counts(usable_gpus(large), large.gpus_per_node))
        and (small.num_gpus <= small.nvlink_domain_gpus)
        == (large.num_gpus <= large.nvlink_domain_gpus)
        for small, large in zip(smaller.pools, larger.pools, strict=True)
    )


def home_layouts(job: Job, role: str, pool: Pool) -> Layouts:
    """Every storage layout of a home, offload included."""
    model, wanted = job.models[role], _wanted(job, role)
    rows: list[tuple[int, ...]] = []
    offloads = _offloads(job, model)
    # All that a layout's shardings depend on: has it a pipeline, has it replicas.
    shardings = {
        kind: [(code, offload) for code in _shardings(model, *kind, wanted) for offload in offloads]
        for kind in itertools.product((1, 2), (1, 2))
    }
    for count in _counts(pool, wanted):
        for sizes in _sizes(job, model, pool, count, wanted):
            _, pipeline, _, context, data, _ = sizes
            rows += [
                (count, *sizes, *rest)
                for rest in shardings[min(pipeline, 2), min(data * context, 2)]
            ]
    return _layouts(rows)


def shadow_layouts(job: Job, role: str, pool: Pool) -> Layouts:
    """Every layout of a shadow: whole replicas, each split as the engine generates."""
    model, wanted = job.models[role], _wanted(job, role)
    rows = [
        (count, tensor, pipeline, 1, 1, data, expert, SHARDINGS.index("none"), 0)
        for count in _counts(pool, None)
        for tensor, pipeline, expert, data in _engine_sizes(job, model, pool, count, wanted)
    ]
    return _layouts(rows)


def engines(job: Job, role: str, pool: Pool, count: int) -> Engine:
    """Generation layouts on a range of `count` GPUs."""
    rows = list(_engine_sizes(job, job.models[role], pool, count, _wanted(job, role)))
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
    return Engine(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3])


def cache_budgets(least: IntArray, full: IntArray, *, usable_bytes: int) -> IntArray:
    """[budget, row]: cache bytes that are tried per engine, rising; bytes trade against seconds.

    The least with which anything runs, then steps of 1/24 of a GPU's usable memory, up to the
    budget with which no sequence ever waits.
    """
    steps = np.arange(1, CACHE_STEPS + 1, dtype=np.int64) * usable_bytes // CACHE_STEPS
    rising = np.minimum(np.maximum(steps[:, None], least[None, :]), full[None, :])
    return np.concatenate([least[None, :], rising])


def micro_batch_sizes(wanted: ParallelismConstraint | None) -> tuple[int, ...]:
    """Micro-batch sizes that are tried."""
    if wanted is not None and wanted.micro_batch_size is not None:
        return (wanted.micro_batch_size,)
    return MICRO_BATCH_SIZES


def recomputes(job: Job, wanted: ParallelismConstraint | None) -> list[int]:
    """Recomputation codes that are tried."""
    if wanted is not None and wanted.recompute is not None:
        return [RECOMPUTES.index(wanted.recompute)]
    return [0, 1, 2] if job.spec.constraints.allow_recompute else [0]


def constraint_of(job: Job, role: str) -> ParallelismConstraint | None:
    """What the spec fixes for a role."""
    return _wanted(job, role)


def _wanted(job: Job, role: str) -> ParallelismConstraint | None:
    return job.spec.constraints.parallelism.get(role)


def _layouts(rows: Sequence[tuple[int, ...]]) -> Layouts:
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 9)
    return Layouts(*(np.ascontiguousarray(columns[:, i]) for i in range(9)))


def _counts(pool: Pool, wanted: ParallelismConstraint | None) -> list[int]:
    counts = device_counts(usable_gpus(pool), pool.gpus_per_node)
    if wanted is None or wanted.num_gpus is None:
        return counts
    # A size that the user asks for is tried although the steps would leave it out.
    count, per_node = wanted.num_gpus, pool.gpus_per_node
    whole_nodes = count % per_node == 0 and count <= usable_gpus(pool)
    return [count] if count in counts or whole_nodes else []


def _sizes(
    job: Job, model: Model, pool: Pool, count: int, wanted: ParallelismConstraint | None
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """(tensor, pipeline, virtual, context, data, expert) that multiply to `count`."""
    largest_data = _most_data_parallel(job, model)
    for tensor in _tensor_sizes(job, model, pool, count, _fixed(wanted, "tensor_parallel_size")):
        for pipeline in _pipeline_sizes(
            model, count // tensor, _fixed(wanted, "pipeline_parallel_size")
        ):
            rest = count // (tensor * pipeline)
            for context in _context_sizes(job, rest, _fixed(wanted, "context_parallel_size")):
                data = rest // context
                fixed_data = _fixed(wanted, "data_parallel_size")
                if data > largest_data or fixed_data not in (None, data):
                    continue
                for expert in _expert_sizes(job, model, pool, tensor, context * data, wanted):
                    for virtual in _virtual_sizes(model, pipeline):
                        yield tensor, pipeline, virtual, context, data, expert


def _fixed(wanted: ParallelismConstraint | None, name: str) -> int | None:
    value: int | None = None if wanted is None else getattr(wanted, name)
    return value


def _most_data_parallel(job: Job, model: Model) -> int:
    """Data parallelism is at most the sequences of an update (of a call, where none trains)."""
    workload = job.spec.workload
    return workload.sequences_per_update if model.trainable else workload.num_sequences


def _is_within_reach(job: Job, pool: Pool, size: int) -> bool:
    across_nodes = job.spec.constraints.tensor_parallel_across_nodes
    return bool(pool.is_within_reach(size, across_nodes=across_nodes))


def _tensor_sizes(job: Job, model: Model, pool: Pool, count: int, fixed: int | None) -> list[int]:
    """Divisors of count and heads inside the NVLink domain (or, if asked for, across)."""
    heads = model.architecture.num_attention_heads
    sizes = [2**k for k in range(7)] if fixed is None else [fixed]
    return [
        size
        for size in sizes
        if _is_within_reach(job, pool, size)
        and count % size == 0
        and heads % size == 0
        and pool.is_whole_nodes_or_divides_one(size)
    ]


def _pipeline_sizes(model: Model, rest: int, fixed: int | None) -> list[int]:
    most = min(rest, model.architecture.num_layers, MOST_STAGES)
    sizes = range(1, most + 1) if fixed is None else [fixed]
    return [size for size in sizes if rest % size == 0 and size <= most]


def _context_sizes(job: Job, rest: int, fixed: int | None) -> list[int]:
    workload = job.spec.workload
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    sizes = [1, 2, 4, 8] if longest >= LONG_CONTEXT_TOKENS else [1]
    return [size for size in (sizes if fixed is None else [fixed]) if rest % size == 0]


def _expert_sizes(
    job: Job,
    model: Model,
    pool: Pool,
    tensor: int,
    replicas: int,
    wanted: ParallelismConstraint | None,
) -> list[int]:
    """Expert groups lie inside tensor × context × data ranks of one NVLink domain."""
    experts = model.architecture.num_experts
    if experts == 0:
        return [1]
    fixed = _fixed(wanted, "expert_parallel_size")
    sizes = [2**k for k in range(experts.bit_length())] if fixed is None else [fixed]
    return [
        size
        for size in sizes
        if _is_within_reach(job, pool, size)
        and experts % size == 0
        and (tensor * replicas) % size == 0
        and (size % tensor == 0 or tensor % size == 0)
    ]


def _virtual_sizes(model: Model, pipeline: int) -> list[int]:
    if pipeline == 1 or not model.trainable:
        return [1]
    return [v for v in VIRTUAL_SIZES if v * pipeline <= model.architecture.num_layers]


def _shardings(
    model: Model, pipeline: int, replicas: int, wanted: ParallelismConstraint | None
) -> list[int]:
    """ZeRO-2 and -3 do not go with a pipeline; sharding over one rank is none."""
    if not model.trainable:
        names = ["none"] if pipeline > 1 or replicas == 1 else ["none", "full"]
    elif replicas == 1:
        names = ["none"]
    else:
        names = ["optimizer"] if pipeline > 1 else ["optimizer", "gradient", "full"]
    if wanted is not None and wanted.sharding is not None:
        names = [wanted.sharding] if wanted.sharding in [*names, "none"] else []
    return [SHARDINGS.index(name) for name in names]


def _offloads(job: Job, model: Model) -> list[int]:
    if not job.spec.constraints.allow_offload:
        return [0]
    names = ["none", "optimizer", "weights"] if model.trainable else ["none", "weights"]
    return [OFFLOADS.index(name) for name in names]


def _engine_sizes(
    job: Job, model: Model, pool: Pool, count: int, wanted: ParallelismConstraint | None
) -> Iterator[tuple[int, int, int, int]]:
    """(tensor, pipeline, expert, data) of an engine; pipelines only where one shard is too big."""
    fixed = _fixed(wanted, "generation_tensor_parallel_size")
    for tensor in _tensor_sizes(job, model, pool, count, fixed):
        for pipeline in _engine_stages(job, model, pool, tensor, count // tensor):
            data = count // (tensor * pipeline)
            if data > job.spec.workload.num_sequences:
                continue
            for expert in _expert_sizes(job, model, pool, tensor, data, None):
                yield tensor, pipeline, expert, data


def _engine_stages(job: Job, model: Model, pool: Pool, tensor: int, rest: int) -> list[int]:
    """1, and more as long as the weights fill most of a GPU; a pipeline slows every token."""
    stages, bytes_each = [1], 2 * _dense_share(model.architecture) / tensor
    while bytes_each / stages[-1] > 0.6 * pool.gpu.memory_bytes:
        stages.append(2 * stages[-1])
    return [s for s in stages if rest % s == 0 and s <= model.architecture.num_layers]


def _dense_share(architecture: ModelArchitecture) -> float:
    """Parameters that tensor parallelism alone must split: expert groups split the rest."""
    experts = (
        architecture.num_moe_layers * architecture.num_experts * architecture.expert_parameters
    )
    return float(architecture.num_parameters() - experts)


def settings_grid(num_rows: int, *values: IntArray) -> tuple[IntArray, ...]:
    """Row indices and one column per kind of value: every row with every combination."""
    grids = np.meshgrid(np.arange(num_rows, dtype=np.int64), *values, indexing="ij")
    return tuple(grid.reshape(-1) for grid in grids)
