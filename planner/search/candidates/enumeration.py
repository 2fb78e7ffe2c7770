"""Which layouts and settings are candidates: the space that a proof of optimality covers."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.pricing import GenerationLayouts
from automap.planner.cost.transition import base_fits_host
from automap.planner.dataflow.graph import Call
from automap.planner.job import pins
from automap.planner.job.job import Job, Model
from automap.planner.layout import OFFLOADS, RECOMPUTES, SHARDINGS, BoolArray, IntArray, Layouts
from automap.planner.search.candidates.tables import FREE, CallTable
from automap.planner.spec import ParallelismConstraint
from automap.planner.targets import DIMENSIONS, all_hold

CONTEXT_SIZES = (1, 2, 4, 8, 16, 32, 64)
LEAST_CONTEXT_TOKENS = 2_048
"""Tokens of the longest sequence that every rank of a context group has at least: with fewer its
kernels no longer fill a GPU, and what the ranks exchange outweighs what they share."""
LONG_CONTEXT_TOKENS, MANY_GPUS = 16_384, 4_096
"""In pools of more GPUs context parallelism is tried from this sequence length on: their layouts
are many, and shorter sequences gain 1 to 4 % at most."""
MOST_STAGES = 64
MICRO_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
TENSOR_SIZES = (1, 2, 4, 8, 16, 32, 64)
VIRTUAL_SIZES = (1, 2, 4)
CACHE_STEPS = 24
SPACE = (
    "one contiguous, aligned range of one pool per copy; powers of two inside a node, every whole "
    "number of nodes up to 32 and steps of at most one sixteenth beyond; powers of two up to 64 as "
    "tensor sizes, where they divide the heads, pipeline sizes up to 64, micro-batches of 1 to 64 "
    "sequences in powers of two, cache budgets in steps of 1/24 of a GPU's usable memory; "
    "virtual stages up to 4, expert sizes, context sizes that leave a rank 2,048 tokens (in "
    "pools of more than 4,096 GPUs from 16,384 tokens on), sharding, recomputation and offload as "
    "the spec and the target allow"
)
"""The searched space in words: a plan's report claims optimality over it and no more."""


def device_counts(num_gpus: int, gpus_per_node: int) -> list[int]:
    """Sizes of a range: powers of two inside a node, then whole nodes, coarser as they grow."""
    counts = [2**k for k in range(gpus_per_node.bit_length()) if 2**k < gpus_per_node]
    nodes = 1
    while nodes * gpus_per_node <= num_gpus:
        counts.append(nodes * gpus_per_node)
        nodes += 1 if nodes < 32 else 2 ** (nodes.bit_length() - 1) // 16
    whole = num_gpus // gpus_per_node * gpus_per_node
    return sorted({count for count in [*counts, whole] if 0 < count <= num_gpus})


def shares_candidates(larger: Job, smaller: Job) -> bool:
    """True when every candidate of a job is one of the same job on a larger cluster as well.

    And costs as much there: weight syncs of a cluster of several nodes are priced across nodes.
    """
    alone = [sum(pool.num_nodes for pool in job.pools) == 1 for job in (larger, smaller)]
    return alone[0] == alone[1] and all(
        set(device_counts(small.usable_gpus, small.gpus_per_node))
        <= set(device_counts(large.usable_gpus, large.gpus_per_node))
        and (small.num_gpus <= small.nvlink_domain_gpus)
        == (large.num_gpus <= large.nvlink_domain_gpus)
        and set(_context_sizes(smaller, small)) <= set(_context_sizes(larger, large))
        for small, large in zip(smaller.pools, larger.pools, strict=True)
    )


def home_layouts(job: Job, role: str, pool: Pool) -> Layouts:
    """Every storage layout of a home, offload included."""
    model, wanted = job.models[role], pins.home_sizes(job, role)
    sizes = _sizes(job, model, pool, wanted)
    count, tensor, pipeline, context, expert, virtual = sizes.T
    data = count // (tensor * pipeline * context)
    # All that a layout's shardings depend on: has it a pipeline, has it replicas.
    allowed = np.zeros((2, 2, len(SHARDINGS)), dtype=np.bool_)
    for piped, repeated in itertools.product((0, 1), (0, 1)):
        allowed[piped, repeated, _shardings(model, piped + 1, repeated + 1, wanted)] = True
    rows, sharding = np.nonzero(allowed[1 * (pipeline > 1), 1 * (data * context > 1)])
    offloads = np.array(_offloads(job, model), dtype=np.int64)
    each, offload = settings_grid(len(rows), offloads)
    rows, sharding = rows[each], sharding[each]
    layouts = Layouts(
        num_gpus=count[rows],
        tensor_parallel_size=tensor[rows],
        pipeline_parallel_size=pipeline[rows],
        virtual_pipeline_parallel_size=virtual[rows],
        context_parallel_size=context[rows],
        data_parallel_size=data[rows],
        expert_parallel_size=expert[rows],
        sharding=sharding,
        offload=offload,
    )
    rules = job.range_rules(pool, layouts, trains=model.trainable)
    allowed = job.engines_of(role).allows(layouts) & all_hold(rules, len(layouts))
    return layouts.take(np.flatnonzero(allowed))


def process_columns(job: Job, role: str, layouts: Layouts) -> IntArray | None:
    """[row, column] what a home has in common with others in its process: engine, then sizes.

    FREE where it may differ. None: the model has no others in its process.
    """
    target = job.target
    if role not in target.process_roles | target.alike_roles:
        return None
    engines, trains = job.engines_of(role), job.models[role].trainable
    names = [engine.name for engine in job.target.training]
    number = engines.of_layouts(layouts)
    columns = np.full((len(layouts), 1 + len(DIMENSIONS)), FREE, dtype=np.int64)
    for index, engine in enumerate(engines.engines):
        rows = number == index
        columns[rows, 0] = names.index(engine.name)
        for place, name in enumerate(DIMENSIONS, start=1):
            # A model that only scores has no virtual stages of its own: it takes any.
            if name in engine.process_dimensions and (trains or name != "virtual_pipeline"):
                columns[rows, place] = getattr(layouts, f"{name}_parallel_size")[rows]
    if any(engine.one_sharding for engine in target.training):
        columns = np.column_stack([columns, _state_columns(layouts, trains=trains)])
    return columns


def _state_columns(layouts: Layouts, *, trains: bool) -> IntArray:
    """[row, column] sharding of what trains, whether it is full of all, offload of what trains."""
    columns = np.full((len(layouts), 3), FREE, dtype=np.int64)
    several = layouts.data_parallel_size * layouts.context_parallel_size > 1
    full = layouts.sharding == SHARDINGS.index("full")
    columns[several, 1] = full[several]
    if trains:
        columns[several, 0] = layouts.sharding[several]
        columns[:, 2] = layouts.offload
    return columns


def shared_settings(job: Job, call: Call, table: CallTable) -> IntArray:
    """[row, column] what a call has in common with those of its kind, and FREE for the others.

    The columns are micro-batch and recomputation of what trains, and micro-batch of what scores,
    which is the first one where the target has one micro-batch for both.
    """
    columns = np.full((len(table), 3), FREE, dtype=np.int64)
    if call.kind == "train":
        columns[:, 0], columns[:, 1] = table.micro_batch_size, table.recompute
    else:
        columns[:, 0 if job.target.one_micro_batch else 2] = table.micro_batch_size
    return columns


def settings_of_role(job: Job, call: Call, table: CallTable) -> IntArray | None:
    """[row, role] micro-batch of a call in its model's column; None: the model has no other."""
    models = [
        each.model
        for each in job.dataflow.calls
        if each.model is not None and each.kind != "generate"
    ]
    several = [role for role in job.models if models.count(role) > 1]
    if call.model not in several:
        return None
    columns = np.full((len(table), len(several)), FREE, dtype=np.int64)
    columns[:, several.index(call.model)] = table.micro_batch_size
    return columns


def shadow_layouts(job: Job, role: str, pool: Pool) -> Layouts:
    """Every layout of a shadow: whole replicas, each split as the engine generates."""
    model = job.models[role]
    rows = [
        (count, tensor, pipeline, 1, 1, data, expert, SHARDINGS.index("none"), 0)
        for wanted in pins.shadow_sizes(job, role)
        for count in _counts(pool, wanted)
        for tensor, pipeline, expert, data in _engine_sizes(job, model, pool, count, wanted)
    ]
    layouts = _layouts(list(dict.fromkeys(rows)))
    engines = GenerationLayouts.of(layouts)
    rules = [
        *job.range_rules(pool, layouts, trains=False, is_shadow=True),
        *job.target.engine_rules(engines, pool=pool),
        *job.target.server_rules(model.architecture, engines, pool=pool),
    ]
    allowed = job.target.rollout.allows(model.architecture, engines)
    return layouts.take(np.flatnonzero(allowed & all_hold(rules, len(layouts))))


def home_counts(job: Job, role: str, pool: Pool) -> list[int]:
    """Sizes of the ranges that a home may have, rising."""
    return _counts(pool, pins.home_sizes(job, role))


def engines(job: Job, call: Call, pool: Pool, count: int) -> GenerationLayouts:
    """Layouts of a generate call on a range of `count` GPUs."""
    model = job.models[call.role]
    rows = list(_engine_sizes(job, model, pool, count, pins.engine_sizes(job, call)))
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
    layouts = GenerationLayouts(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3])
    allowed = job.target.rollout.allows(model.architecture, layouts)
    allowed &= all_hold(job.target.engine_rules(layouts, pool=pool), len(rows))
    allowed &= base_fits_host(model, job.spec.workload, pool, layouts)
    return layouts.take(np.flatnonzero(allowed))


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


def may_serve(job: Job, call: Call, pool: Pool, layouts: Layouts, *, shadow: bool) -> BoolArray:
    """[row] whether the spec lets a call run on a copy of that layout in that pool."""
    kept = np.full(len(layouts), pins.call_pool(job, call) in (None, pool.name))
    if call.kind != "generate":
        return kept
    target = job.target
    if target.offloads_to_generate and not shadow:
        kept &= layouts.offload == OFFLOADS.index("weights")
    if job.spec.search.continuous_rollouts and not shadow:
        return np.zeros(len(layouts), dtype=np.bool_)
    stale = bool(job.spec.search.staleness) and target.stale_rollouts_apart
    apart = stale or target.rollouts_apart
    # A served model would have to leave the GPUs that train once the rollout does.
    served = bool(set(job.models) & target.served_roles) and not apart
    kept_home = served or (target.one_epoch_apart and job.spec.workload.epochs > 1)
    if (apart and not shadow) or (shadow and kept_home):
        return np.zeros(len(layouts), dtype=np.bool_)
    wanted = pins.engine_sizes(job, call)
    # A home reshards to any engine on its GPUs; a shadow is split as its engine.
    for name in ("num_gpus", *(pins.ENGINE_SIZES if shadow else ())):
        fixed = _fixed(wanted, name)
        if fixed is not None:
            kept &= getattr(layouts, name) == fixed
    return kept


def _layouts(rows: Sequence[tuple[int, ...]]) -> Layouts:
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 9)
    return Layouts(*(np.ascontiguousarray(columns[:, i]) for i in range(9)))


def _counts(pool: Pool, wanted: ParallelismConstraint | None) -> list[int]:
    counts = device_counts(pool.usable_gpus, pool.gpus_per_node)
    if wanted is None or wanted.num_gpus is None:
        return counts
    # A size that the user asks for is tried although the steps would leave it out.
    count, per_node = wanted.num_gpus, pool.gpus_per_node
    whole_nodes = count % per_node == 0 and count <= pool.usable_gpus
    return [count] if count in counts or whole_nodes else []


def _sizes(job: Job, model: Model, pool: Pool, wanted: ParallelismConstraint | None) -> IntArray:
    """[row, size]: GPUs, tensor, pipeline, context, expert, virtual, as far as they go together."""
    arch, most_data = model.architecture, _most_data_parallel(job, model)
    most_stages = min(arch.num_layers, MOST_STAGES)
    across = job.spec.constraints.tensor_parallel_across_nodes
    data = _fixed(wanted, "data_parallel_size")
    virtual = VIRTUAL_SIZES if model.trainable else (1,)

    def fits_context(count: IntArray, t: IntArray, p: IntArray, c: IntArray) -> BoolArray:
        rest = count // (t * p)
        here = rest // c
        wanted_data = here if data is None else data
        return np.asarray((rest % c == 0) & (here <= most_data) & (here == wanted_data))

    def fits_experts(
        count: IntArray, t: IntArray, p: IntArray, c: IntArray, e: IntArray
    ) -> BoolArray:
        return _splits_experts(model, pool, t, count // (t * p), e, across_nodes=across)

    steps: list[tuple[Sequence[int], Callable[..., BoolArray]]] = [
        (
            _tried(wanted, "tensor_parallel_size", TENSOR_SIZES),
            lambda count, t: _splits_tensors(model, pool, count, t, across_nodes=across),
        ),
        (
            _tried(wanted, "pipeline_parallel_size", range(1, most_stages + 1)),
            lambda count, t, p: ((count // t) % p == 0) & (p <= most_stages),
        ),
        (_tried(wanted, "context_parallel_size", _context_sizes(job, pool)), fits_context),
        (_expert_sizes(model, wanted), fits_experts),
        (virtual, lambda _, t, p, c, e, v: (v == 1) | ((p > 1) & (v * p <= arch.num_layers))),
    ]
    sizes = np.array(_counts(pool, wanted), dtype=np.int64).reshape(-1, 1)
    for values, fits in steps:
        sizes = np.column_stack(
            [np.repeat(sizes, len(values), axis=0), np.tile(np.array(values), len(sizes))]
        )
        sizes = sizes[fits(*sizes.T)]
    return sizes


def _tried(wanted: ParallelismConstraint | None, name: str, sizes: Sequence[int]) -> Sequence[int]:
    """The sizes, or the one that the spec fixes."""
    fixed = _fixed(wanted, name)
    return sizes if fixed is None else (fixed,)


def _fixed(wanted: ParallelismConstraint | None, name: str) -> int | None:
    value: int | None = None if wanted is None else getattr(wanted, name)
    return value


def _most_data_parallel(job: Job, model: Model) -> int:
    """Data parallelism is at most the sequences of an update (of a call, where none trains)."""
    workload = job.spec.workload
    return workload.sequences_per_update if model.trainable else workload.num_sequences


def _splits_tensors(
    model: Model, pool: Pool, count: IntArray | int, size: IntArray, *, across_nodes: bool
) -> BoolArray:
    """Divisors of count and heads inside the NVLink domain (or, if asked for, across)."""
    return np.asarray(
        pool.is_within_reach(size, across_nodes=across_nodes)
        & (count % size == 0)
        & (model.architecture.num_attention_heads % size == 0)
        & pool.is_whole_nodes_or_divides_one(size)
    )


def _context_sizes(job: Job, pool: Pool) -> Sequence[int]:
    workload = job.spec.workload
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    if pool.usable_gpus > MANY_GPUS and longest < LONG_CONTEXT_TOKENS:
        return CONTEXT_SIZES[:1]
    return [c for c in CONTEXT_SIZES if c == 1 or c * LEAST_CONTEXT_TOKENS <= longest]


def _expert_sizes(model: Model, wanted: ParallelismConstraint | None) -> Sequence[int]:
    experts = model.architecture.num_experts
    if experts == 0:
        return (1,)
    return _tried(wanted, "expert_parallel_size", [2**k for k in range(experts.bit_length())])


def _splits_experts(
    model: Model,
    pool: Pool,
    tensor: IntArray | int,
    replicas: IntArray | int,
    size: IntArray,
    *,
    across_nodes: bool,
) -> BoolArray:
    """Expert groups lie inside tensor × context × data ranks, of one NVLink domain or across."""
    experts = model.architecture.num_experts
    if experts == 0:
        return np.asarray(size == 1)
    return np.asarray(
        pool.is_within_reach(size, across_nodes=across_nodes)
        & (experts % size == 0)
        & ((tensor * replicas) % size == 0)
        & ((size % tensor == 0) | (tensor % size == 0))
    )


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
    job: Job, model: Model, pool: Pool, count: int, wanted: ParallelismConstraint
) -> Iterator[tuple[int, int, int, int]]:
    """(tensor, pipeline, expert, data) of an engine; pipelines only where one shard is too big."""
    tensors = np.array(_tried(wanted, "tensor_parallel_size", TENSOR_SIZES))
    experts = np.array(_expert_sizes(model, wanted))
    across = job.rollout_spans_nodes(model.role, pool)
    in_reach = _splits_tensors(model, pool, count, tensors, across_nodes=across)
    for tensor in tensors[in_reach].tolist():
        stages = _engine_stages(model, pool, tensor, count // tensor, wanted, spans_nodes=across)
        for pipeline in stages:
            data = count // (tensor * pipeline)
            if data > job.spec.workload.num_sequences or wanted.data_parallel_size not in (
                None,
                data,
            ):
                continue
            for expert in experts[
                _splits_experts(model, pool, tensor, data, experts, across_nodes=across)
            ]:
                yield tensor, pipeline, int(expert), data


def _engine_stages(
    model: Model,
    pool: Pool,
    tensor: int,
    rest: int,
    wanted: ParallelismConstraint,
    *,
    spans_nodes: bool,
) -> list[int]:
    """1, and more as long as the weights fill most of a GPU; a pipeline slows every token.

    Experts count where the engine spans nodes: otherwise an expert group splits them.
    """
    weights = _dense_share(model.architecture)
    if spans_nodes:
        weights = float(model.architecture.num_parameters())
    stages, bytes_each = [1], 2 * weights / tensor
    while bytes_each / stages[-1] > 0.6 * pool.gpu.memory_bytes:
        stages.append(2 * stages[-1])
    stages = list(_tried(wanted, "pipeline_parallel_size", stages))
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
