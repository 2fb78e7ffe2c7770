"""Seconds of collectives among equally spaced GPUs of a pool.

Inside a fast domain (a node, or an NVLink rack) measured tables apply. Across domains a collective
is hierarchical: every GPU works on its own share over its own network port, and the two levels
are pipelined. docs/cost-model/operators.md has the formulas; the constants below are all there are.
`size_bytes` is the whole buffer as in nccl-tests: for all_gather and reduce_scatter the gathered
one, for all_to_all what each rank holds.
"""

from typing import Literal

import numpy as np

from planner.cluster import Pool
from planner.interpolation import ANALYTICAL, MEASURED, Grid, Timed
from planner.layout import FloatArray, IntArray
from planner.profile import Profile

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]

NETWORK_FRACTION = 0.84
"""Part of a port's bandwidth that collectives across domains reach with large messages."""
POINT_TO_POINT_FRACTION = 0.75
"""Part of a link's bandwidth (NVLink or network) that one sender and one receiver reach."""
NETWORK_STEP_SECONDS = 21e-6
"""One dependent step between two nodes: kernel, proxy thread, port and switches."""
LOCAL_STEP_SECONDS = 6e-6
"""The same inside a domain, where no table says: kernel start and one NVLink or PCIe exchange."""
PIPELINE_BYTES = 80e6
"""A buffer up to this size is not split finely enough for the two levels to overlap."""

_STEPS_ARE_LINEAR = ("all_gather", "reduce_scatter")
"""NCCL runs these as rings, one step per domain; the others as trees."""

Numbers = FloatArray | IntArray | float | int


def collective_seconds(
    pool: Pool,
    profile: Profile,
    collective: Collective,
    size_bytes: Numbers,
    *,
    group_size: Numbers,
    stride: Numbers,
) -> Timed:
    """Seconds of one collective in groups of `group_size` GPUs, `stride` apart, all at once.

    Arguments broadcast. A group of one costs nothing.
    """
    (size, group, gap), shape = _columns(size_bytes, group_size, stride)
    if collective == "send_recv":
        return point_to_point_seconds(
            pool, profile, size_bytes, crosses_node=np.asarray(stride) >= pool.nvlink_domain_gpus
        )
    local = np.clip(pool.nvlink_domain_gpus // gap, 1.0, group)
    domains = np.ceil(group / local)
    local = group / domains
    inside, source = _inside(pool, profile, collective, size, local)
    across = _across(pool, collective, size, local, domains)
    overlap = np.minimum(inside, across) * np.minimum(1.0, PIPELINE_BYTES / np.maximum(size, 1.0))
    steps = domains - 1.0 if collective in _STEPS_ARE_LINEAR else np.ceil(np.log2(domains))
    if collective == "all_reduce":
        steps = 2.0 * steps
    seconds = np.maximum(inside, across) + overlap + steps * NETWORK_STEP_SECONDS
    source = np.where(domains > 1, ANALYTICAL, source)
    seconds = np.where(group > 1, seconds, 0.0)
    source = np.where(group > 1, source, MEASURED)
    return Timed(seconds.reshape(shape), source.reshape(shape))


def custom_all_reduce_seconds(
    pool: Pool, profile: Profile, size_bytes: Numbers, *, group_size: Numbers
) -> Timed:
    """The inference engine's own all-reduce of small messages among neighbouring GPUs.

    A group that leaves the fast domain, or a GPU without such a table, has NCCL's all-reduce.
    """
    nccl = collective_seconds(
        pool, profile, "all_reduce", size_bytes, group_size=group_size, stride=1
    )
    grid = profile.tables.custom_all_reduce if profile.tables else None
    if grid is None:
        return nccl
    (size, group), shape = _columns(size_bytes, group_size)
    seconds, source = _from_grid(pool, profile, grid, "all_reduce", size, group)
    seconds, source = seconds.reshape(shape), source.reshape(shape)
    largest = min(float(grid.axes[0][-1]), pool.nvlink_domain_gpus)
    own = (np.asarray(group) > 1).reshape(shape) & (np.asarray(group) <= largest).reshape(shape)
    return Timed(np.where(own, seconds, nccl.seconds), np.where(own, source, nccl.source))


def point_to_point_seconds(
    pool: Pool, profile: Profile, size_bytes: Numbers, *, crosses_node: object
) -> Timed:
    """One GPU sends `size_bytes` to another, over the network where `crosses_node`."""
    (size, crosses), shape = _columns(size_bytes, np.asarray(crosses_node, dtype=np.float64))
    network = crosses > 0
    link = np.where(network, pool.inter_node_bytes_per_second, pool.intra_node_bytes_per_second)
    step = np.where(network, NETWORK_STEP_SECONDS, LOCAL_STEP_SECONDS)
    seconds = step + size / (POINT_TO_POINT_FRACTION * link)
    return Timed(seconds.reshape(shape), np.full(shape, ANALYTICAL))


def sent_part(collective: Collective, group: FloatArray) -> FloatArray:
    """Bytes that each rank sends, as a part of the buffer: nccl-tests' bus bandwidth factor."""
    if collective == "broadcast":
        return np.where(group > 1, 1.0, 0.0)
    part = (group - 1.0) / group
    return 2.0 * part if collective == "all_reduce" else part


def _across(
    pool: Pool, collective: Collective, size: FloatArray, local: FloatArray, domains: FloatArray
) -> FloatArray:
    port = NETWORK_FRACTION * pool.inter_node_bytes_per_second
    if collective == "all_to_all":
        return size * (domains - 1.0) / domains / port
    return size / local * sent_part(collective, domains) / port


def _inside(
    pool: Pool, profile: Profile, collective: Collective, size: FloatArray, local: FloatArray
) -> tuple[FloatArray, IntArray]:
    measured = "all_gather" if collective == "broadcast" else collective
    grid = profile.tables.collective(measured) if profile.tables else None
    if grid is None:
        link = POINT_TO_POINT_FRACTION * pool.intra_node_bytes_per_second
        seconds = (
            LOCAL_STEP_SECONDS
            * np.ceil(np.log2(local))
            * (2.0 if collective == "all_reduce" else 1.0)
        )
        seconds = seconds + size * sent_part(collective, local) / link
        return seconds, np.full(len(size), ANALYTICAL)
    seconds, source = _from_grid(pool, profile, grid, collective, size, local)
    if collective == "broadcast":
        source = np.maximum(source, ANALYTICAL)
    return np.where(local > 1, seconds, 0.0), source


def _from_grid(
    pool: Pool,
    profile: Profile,
    grid: Grid,
    collective: Collective,
    size: FloatArray,
    group: FloatArray,
) -> tuple[FloatArray, IntArray]:
    """Seconds from a grid of log bus bandwidth over (group size, buffer size).

    Bandwidth is the table's, scaled by the pool's link against the table's; latency is not scaled.
    """
    several = np.maximum(group, 2.0)
    ends = grid.axes[1][0], grid.axes[1][-1]
    bandwidth, source = grid.at(several, np.maximum(size, ends[0]))
    seconds = np.maximum(size, ends[0]) * sent_part(collective, several) / np.exp(bandwidth)
    floor, _ = grid.at(several, np.full(len(size), ends[0]))
    latency = ends[0] * sent_part(collective, several) / np.exp(floor)
    own_link = pool.intra_node_bytes_per_second
    table_link = profile.table_link_bytes_per_second
    largest = float(grid.axes[0][-1])
    deeper = np.maximum(np.log(several) / np.log(largest), 1.0)
    seconds = latency * deeper + (seconds - latency) * (table_link / own_link)
    if profile.derived or table_link != own_link:
        source = np.full(len(size), ANALYTICAL)
    return seconds, source


def _columns(*arguments: Numbers) -> tuple[list[FloatArray], tuple[int, ...]]:
    arrays = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in arguments))
    return [a.reshape(-1) for a in arrays], arrays[0].shape
