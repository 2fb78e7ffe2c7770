"""Costs of moving weights: reshard on the same GPUs, sync to others, reload from hosts.

A rank must receive its generation shard minus what it already holds of it.
"""

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture, layers_by_mixer
from automap.planner.catalogue.hardware import Pool
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS, weight_bytes
from automap.planner.cost import constants, memory
from automap.planner.cost.communication import collective_seconds, point_to_point_seconds
from automap.planner.cost.operators.profile import Profile
from automap.planner.cost.rows import ceil_div
from automap.planner.cost.shards import expert_shards
from automap.planner.cost.stacks import stack_of
from automap.planner.job.job import Model
from automap.planner.layout import BoolArray, FloatArray, GenerationLayouts, IntArray, Layouts
from automap.planner.spec import WorkloadSpec

POWERS_OF_TWO = tuple(1 << n for n in range(17))


def sync_bucket_bytes() -> int:
    """Bytes of buffer per GPU that a weight sync or a streamed reshard needs on either side."""
    return constants.SYNC_BUCKET_BYTES


def reload_seconds(num_bytes: IntArray, pool: Pool) -> FloatArray:
    """Seconds to copy bytes between the host and its GPU, all GPUs of a node at once."""
    rate = pool.host_link_bytes_per_second * constants.HOST_LINK_EFFICIENCY
    return np.asarray(num_bytes / rate, dtype=np.float64)


def model_bytes(model: Model, precision: str) -> tuple[int, int]:
    """(bytes outside routed experts, bytes of routed experts) of a whole model."""
    return weight_bytes(model.architecture, precision, scalar_head=model.scalar_head)


def reshard_volume(
    *, split: IntArray, stages: IntArray, new_split: IntArray, new_stages: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of a model per GPU: (gathered over stages, gathered inside stages, kept in place).

    A GPU holds 1/(t·p) and needs 1/(t_g·p_g). With ranks grouped so that the training shard lies
    inside the generation shard as far as it can, min(1/t, 1/t_g)·min(1/p, 1/p_g) stays. For
    t_g | t and p_g | p the rest is HybridFlow's (d_g − 1)/(t·p), d_g = t·p/(t_g·p_g), without a
    redundant copy (arXiv:2409.19256, Table 2).
    """
    kept = 1.0 / (np.maximum(split, new_split) * np.maximum(stages, new_stages))
    over_stages = 1.0 / (np.maximum(split, new_split) * new_stages) - kept
    whole = 1.0 / (new_split * new_stages)
    return over_stages, whole - kept - over_stages, kept


def reshard(
    model: Model,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    layouts: Layouts,
    *,
    tensor_parallel_size: IntArray,
    pipeline_parallel_size: IntArray,
    expert_parallel_size: IntArray,
    own_weights: bool = False,
) -> tuple[FloatArray, IntArray, IntArray]:
    """Price moving weights from home to generation layouts on the same GPUs, one row per pair.

    Returns (seconds, received bytes per GPU, transient weight bytes per GPU). The transient
    weights are the generation shard beyond what the home's resident weights serve: only what is
    received; the whole shard when the home is fully sharded, keeps its weights on the host, or
    generates in 8 or 4 bits (a quantised copy shares nothing), and always with `own_weights`, where
    the engine's parameters are its own. Full sharding streams each rank's missing (n − 1)/n through
    one bucket.
    """
    dense_bytes, expert_bytes = model_bytes(model, workload.precision)
    shards, _ = _expert_split(layouts.tensor_parallel_size, layouts.expert_parallel_size)
    new_shards, _ = _expert_split(tensor_parallel_size, expert_parallel_size)
    stages = layouts.pipeline_parallel_size
    dense = reshard_volume(
        split=layouts.tensor_parallel_size,
        stages=stages,
        new_split=tensor_parallel_size,
        new_stages=pipeline_parallel_size,
    )
    experts = reshard_volume(
        split=shards, stages=stages, new_split=new_shards, new_stages=pipeline_parallel_size
    )
    over_stages, inside, kept = (
        dense_bytes * share + expert_bytes * expert_share
        for share, expert_share in zip(dense, experts, strict=True)
    )
    streamed = _streamed_bytes(layouts, dense_bytes, expert_bytes, shards)
    received = over_stages + inside + streamed
    seconds = _reshard_seconds(
        pool,
        profile,
        layouts,
        over_stages=over_stages,
        inside=inside,
        streamed=streamed,
        tensor_ratio=ceil_div(layouts.tensor_parallel_size, tensor_parallel_size),
        stage_ratio=ceil_div(stages, pipeline_parallel_size),
    )
    away = layouts.offload == memory.OFFLOAD_WEIGHTS
    stored = memory.weight_bytes(model, layouts, precision=workload.precision)
    seconds = seconds + reload_seconds(np.where(away, stored, 0), pool)
    host = profile.host_work(stack_of(workload).host_work)
    if not host.engine.weights:
        seconds = seconds + refit_seconds(model)
    else:
        layers = ceil_div(model.architecture.num_layers, pipeline_parallel_size)
        copied = profile.memory_bound(2.0 * (over_stages + inside + kept)).seconds
        seconds = seconds + host.weights_seconds(layers) + copied
    one = np.ones_like(tensor_parallel_size)
    engine = (tensor_parallel_size, pipeline_parallel_size, expert_parallel_size, one)
    shard = over_stages + inside + kept
    own = _rollout_shard_bytes(model, workload, GenerationLayouts(*engine), shard)
    whole = own_weights | _keeps_a_copy(workload, layouts)
    buckets = np.minimum(received, constants.SYNC_BUCKET_BYTES)
    transient = np.where(whole, own + buckets, over_stages + inside)
    return seconds, _ceil(received), _ceil(transient)


def reshard_kind(pool: Pool, layouts: Layouts) -> tuple[IntArray, ...]:
    """Columns [layout] of all that a reshard depends on in a home: equal ones reshard alike.

    How many replicas there are matters to full sharding alone; to others it matters whether the
    stages of a pipeline lie inside one NVLink domain.
    """
    repeats = memory.data_shards(layouts)
    tensor = layouts.tensor_parallel_size
    streams = layouts.sharding == memory.FULLY_SHARDED
    return (
        tensor,
        layouts.pipeline_parallel_size,
        layouts.expert_parallel_size,
        np.minimum(tensor * repeats, pool.nvlink_domain_gpus),
        np.where(streams, repeats, 0),
        np.where(layouts.offload == memory.OFFLOAD_WEIGHTS, 1, 0),
    )


def _keeps_a_copy(workload: WorkloadSpec, layouts: Layouts) -> BoolArray:
    """[pair] where the weights of a home cannot serve an engine, which then has a whole shard."""
    rollout = workload.rollout_precision or workload.precision
    away = layouts.offload == memory.OFFLOAD_WEIGHTS
    sharded = (layouts.sharding == memory.FULLY_SHARDED) & (memory.data_shards(layouts) > 1)
    return np.asarray(away | sharded | (rollout != workload.precision))


def _rollout_shard_bytes(
    model: Model, workload: WorkloadSpec, engine: GenerationLayouts, shard: FloatArray
) -> FloatArray:
    """Bytes per GPU [pair] of a generation shard in the rollout's precision; `shard` in training's.

    What 4-bit formats leave in 16 bits lies on the first and last stage: the fullest one counts.
    """
    rollout = workload.rollout_precision or workload.precision
    if rollout in BLOCK_FORMATS:
        low = memory.weight_bytes(model, engine.layouts(), precision=rollout)
        return np.asarray(low, dtype=np.float64)
    return shard * (
        constants.PRECISION_BYTES[rollout] / constants.PRECISION_BYTES[workload.precision]
    )


def _expert_split(tensor: IntArray, expert: IntArray) -> tuple[IntArray, IntArray]:
    return expert_shards(tensor_parallel_size=tensor, expert_parallel_size=expert)


def _ceil(values: FloatArray) -> IntArray:
    # A relative slack below a byte per GB keeps rounding noise from adding a byte.
    return np.ceil(values * (1 - 1e-12) - 1e-6).clip(min=0).astype(np.int64)


def _streamed_bytes(
    layouts: Layouts, dense_bytes: int, expert_bytes: int, shards: IntArray
) -> FloatArray:
    """Bytes per GPU that full sharding gathers over data ranks: (n − 1)/n of the stage's shard."""
    stages = layouts.pipeline_parallel_size
    repeats, expert_repeats = memory.data_shards(layouts), memory.expert_data_shards(layouts)
    dense = dense_bytes / (layouts.tensor_parallel_size * stages) * (repeats - 1) / repeats
    expert = expert_bytes / (shards * stages) * (expert_repeats - 1) / expert_repeats
    return np.where(layouts.sharding == memory.FULLY_SHARDED, dense + expert, 0.0)


def _reshard_seconds(
    pool: Pool,
    profile: Profile,
    layouts: Layouts,
    *,
    over_stages: FloatArray,
    inside: FloatArray,
    streamed: FloatArray,
    tensor_ratio: IntArray,
    stage_ratio: IntArray,
) -> FloatArray:
    """Seconds [pair] of all-gathers over data ranks (full sharding), stages, then neighbours.

    Each bucket adds its latency.

    A rank that receives x bytes in a group of n takes part in an all-gather of x·n/(n − 1).
    """
    tensor, repeats = layouts.tensor_parallel_size, memory.data_shards(layouts)
    groups = (
        (streamed, repeats, tensor),
        (over_stages, stage_ratio, tensor * repeats),
        (inside, tensor_ratio, np.ones_like(tensor)),
    )
    seconds = np.zeros(len(layouts))
    for received, ratio, stride in groups:
        group = np.where(received > 0, np.maximum(ratio, 2), 1)
        size = received * group / np.maximum(group - 1, 1)
        gathered = collective_seconds(
            pool, profile, "all_gather", size, group_size=group, stride=stride
        )
        seconds = seconds + gathered.seconds
    return seconds + _bucket_latency(over_stages + inside + streamed)


def _bucket_latency(num_bytes: FloatArray | IntArray) -> FloatArray:
    buckets = np.ceil(np.asarray(num_bytes, dtype=np.float64) / constants.SYNC_BUCKET_BYTES)
    return buckets * constants.BUCKET_LATENCY_SECONDS


def refit_seconds(model: Model) -> float:
    """Host seconds in which an engine takes on the tensors of a model, whatever their size.

    With LoRA these are the two of each adapter; experts have none.
    """
    every, matrices = refit_tensors(model.architecture)
    count = every if model.lora_rank is None else 2 * matrices
    return count * constants.TENSOR_REFIT_SECONDS


def refit_tensors(architecture: ModelArchitecture) -> tuple[int, int]:
    """(all tensors, matrices outside routed experts) of a model as its checkpoint names them.

    Four matrices stand for a mixer of any kind, and two norms for a layer's; biases are left out.
    """
    per_mlp = 3 if architecture.gated_mlp else 2
    shared = per_mlp if architecture.shared_expert_intermediate_size else 0
    dense, mixtures = architecture.num_dense_mlp_layers, architecture.num_moe_layers
    mixers = sum(count for sizes, count in layers_by_mixer(architecture) if sizes.mixer != "none")
    matrices = 4 * mixers + dense * per_mlp + mixtures * (1 + shared)
    experts = mixtures * architecture.num_experts * per_mlp
    norms = 2 * architecture.num_layers
    ends = 3  # embedding, last norm, head
    return matrices + experts + norms + ends, matrices


def sync_bytes(model: Model, workload: WorkloadSpec) -> tuple[int, int]:
    """(bytes outside routed experts, bytes of experts) that a weight sync moves.

    With LoRA these are the adapters alone.
    """
    if model.lora_rank is None:
        return model_bytes(model, workload.precision)
    size = constants.PRECISION_BYTES[workload.precision]
    return size * model.architecture.lora_parameters(model.lora_rank), 0


def sync_send_seconds(
    model: Model,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    layouts: Layouts,
    multi_node: bool,
    *,
    whole: bool = False,
) -> FloatArray:
    """Seconds of a weight sync on the sender's side [home]: egress of one GPU over its link.

    Data ranks share the sending, so a GPU sends 1/n of the model; receivers pass it on among
    themselves. `whole`: one of them sends all of it. A home on the host reloads first. A sync of a
    pair takes the slower side.
    """
    num_bytes = sum(sync_bytes(model, workload))
    each = np.ceil(num_bytes / (np.ones_like(layouts.num_gpus) if whole else layouts.num_gpus))
    seconds = _link_seconds(pool, profile, each, num_bytes, multi_node=multi_node)
    stored = memory.weight_bytes(model, layouts, precision=workload.precision)
    away = layouts.offload == memory.OFFLOAD_WEIGHTS
    return seconds + reload_seconds(np.where(away, stored, 0), pool) + refit_seconds(model)


def sync_receive_seconds(
    model: Model,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    layouts: Layouts,
    multi_node: bool,
    *,
    whole: bool = False,
) -> FloatArray:
    """Seconds of a weight sync on the receiver's side [shadow]: ingress of one GPU's shard.

    Weights travel in training precision and are quantised where they arrive. `whole`: every GPU
    gets all of them and keeps its shard.
    """
    total = sum(sync_bytes(model, workload))
    each = received_bytes(model, workload, layouts, whole=whole)
    return _link_seconds(pool, profile, each, total, multi_node=multi_node) + refit_seconds(model)


def received_bytes(
    model: Model, workload: WorkloadSpec, layouts: Layouts, *, whole: bool = False
) -> IntArray:
    """Bytes that a weight sync brings to one GPU of a shadow [shadow]: its shard of a stage.

    Dense weights are split over tensor ranks, experts over max(tensor, expert) ranks. `whole`: all
    of them come, of which the GPU keeps its shard.
    """
    moved = sync_bytes(model, workload)
    if whole:
        return np.full(len(layouts), sum(moved), dtype=np.int64)
    return _shard_bytes(moved, layouts)


def _shard_bytes(whole: tuple[int, int], layouts: Layouts) -> IntArray:
    """One GPU's part of (bytes outside routed experts, bytes of experts)."""
    dense, expert = whole
    shards, _ = _expert_split(layouts.tensor_parallel_size, layouts.expert_parallel_size)
    tensor, stages = layouts.tensor_parallel_size, layouts.pipeline_parallel_size
    # Over a common denominator: whole numbers, so that nothing is lost to rounding.
    return ceil_div(dense * shards + expert * tensor, tensor * shards * stages)


def base_copy_bytes(model: Model, workload: WorkloadSpec, layouts: Layouts) -> IntArray:
    """Bytes of pinned host memory per GPU of a shadow [shadow]: with LoRA its part of the base.

    The base is kept as it came; adapters are added to it before every generation, in training
    precision.
    """
    if model.lora_rank is None:
        return np.zeros(len(layouts), dtype=np.int64)
    return _shard_bytes(model_bytes(model, workload.precision), layouts)


def base_copy_limit(model: Model, workload: WorkloadSpec, pool: Pool, *, odd_sizes: bool) -> int:
    """Upper bound on the pinned host bytes per GPU of a home that generates with LoRA.

    What it keeps is divided like the engine's own weights, so over no fewer GPUs than those need
    to fit at all: a power of two, as the sizes of engines are, unless the spec gives an engine
    others (`odd_sizes`). Experts are divided over no fewer than the rest. Which
    generation layout a call takes is not known where copies are priced; engines whose part of the
    base is more than the host has are not tried (`base_fits_host`). The largest part that a tried
    engine may have counts for all: a host with a little more memory may so have to count more.
    """
    usable = memory.usable_bytes(pool)
    if model.lora_rank is None or usable == 0:
        return 0
    rest, experts = model_bytes(model, workload.rollout_precision or workload.precision)
    kept = model_bytes(model, workload.precision)
    fewest = [max(-(-needed // usable), 1) for needed in (rest, rest + experts)]
    if not odd_sizes:
        fewest = [1 << (gpus - 1).bit_length() for gpus in fewest]
    limit = sum(-(-part // gpus) for part, gpus in zip(kept, fewest, strict=True))
    host = memory.usable_host_bytes(pool)
    if limit <= host or odd_sizes:
        return min(limit, host)
    sizes = [[n for n in POWERS_OF_TWO if few <= n <= pool.num_gpus] for few in fewest]
    smaller: list[int] = [-(-kept[0] // a) + -(-kept[1] // b) for a in sizes[0] for b in sizes[1]]
    return max((each for each in smaller if each <= host), default=min([limit, *smaller]))


def base_fits_host(
    model: Model, workload: WorkloadSpec, pool: Pool, engines: GenerationLayouts
) -> BoolArray:
    """Whether the host has room for an engine's part of the base [engine]; always without LoRA."""
    kept = base_copy_bytes(model, workload, engines.layouts())
    return np.asarray(kept <= memory.usable_host_bytes(pool))


def _link_seconds(
    pool: Pool, profile: Profile, each: FloatArray | IntArray, total: int, *, multi_node: bool
) -> FloatArray:
    """Seconds for one GPU's bytes over its link, plus the latency of every bucket of the whole."""
    size = np.asarray(each, dtype=np.float64)
    link = point_to_point_seconds(pool, profile, size, crosses_node=multi_node)
    buckets = max(-(-total // constants.SYNC_BUCKET_BYTES), 1)
    return link.seconds + buckets * constants.BUCKET_LATENCY_SECONDS
