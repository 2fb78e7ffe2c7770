"""Seconds of collectives among equally spaced GPUs of a pool.

Inside a fast domain (a node, or an NVLink rack) measured tables apply. Across domains a collective
is hierarchical: every GPU works on its own share over its own network port, and the two levels
are pipelined. Where each pair of GPUs has a link of its own, a group has those among its members.
docs/concepts/cost-model/operators.md has the formulas.
`size_bytes` is the whole buffer as in nccl-tests: for all_gather and reduce_scatter the gathered
one, for all_to_all what each rank holds.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.operators.interpolation import ANALYTICAL, MEASURED, Grid, Timed
from automap.planner.cost.operators.profile import Profile, broadcast_columns
from automap.planner.layout import FloatArray, IntArray

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]
Numbers = FloatArray | IntArray | float | int


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What no table says of links; the only constants of this module.

    `benchmarks/fit_communication.py` recomputes the network figures from published nccl-tests
    runs on 2 and 8 nodes, and prints what remains of the error.
    """

    network_fraction: float = 0.87
    """Part of a port's bandwidth that collectives across domains reach with large messages."""
    network_start_seconds: float = 24e-6
    """First crossing of the network in one direction: kernel, proxy thread, port, switches."""
    pipeline_bytes: float = 20e6
    """Buffer in flight before the two levels of a hierarchical collective overlap."""
    fill_starts: float = 3.7
    """Filling the chain of nodes with chunks takes at most as long as so many starts."""
    network_hop_seconds: float = 8e-6
    """Latency of each further node in a chain of crossings. No published run separates hop from
    start; chosen between the 5 µs and 14 µs that NCCL's own choice of algorithm assumes for small
    and for large messages."""
    point_to_point_fraction: float = 0.75
    """Part of a link's bandwidth that one sender and one receiver reach: 0.72 to 0.78 in three
    measured pairs (A100 and H100 NVLink, H100 network), messages of 8 MB and more."""
    local_start_seconds: float = 8e-6
    """One exchange inside a domain: messages up to 64 kB took 5 to 15 µs between two GPUs."""


FITTED = LinkModel()
EFA_FIRST_GENERATION = LinkModel(network_start_seconds=70e-6)
"""The first Elastic Fabric Adapter, whose packets cross in software: messages to 16 kB took 70 µs
a direction on 2 × p4de. Later ones take no longer than InfiniBand."""


def collective_seconds(
    pool: Pool,
    profile: Profile,
    collective: Collective,
    size_bytes: Numbers,
    *,
    group_size: Numbers,
    stride: Numbers,
    links: LinkModel = FITTED,
) -> Timed:
    """Seconds of one collective in groups of `group_size` GPUs, `stride` apart, all at once.

    Arguments broadcast. A group of one costs nothing. Groups start at a domain's first GPU or
    tile it; `send_recv` is one step of a ring: each GPU of a group sends to the next.
    """
    (size, group, gap), shape = broadcast_columns(size_bytes, group_size, stride)
    if collective == "send_recv":
        sent = point_to_point_seconds(
            pool, profile, size, crosses_node=gap * group > pool.nvlink_domain_gpus, links=links
        )
        seconds, source = sent
    else:
        local = np.clip(pool.nvlink_domain_gpus // gap, 1.0, group)
        domains = np.ceil(group / local)
        local = group / domains
        part = size / domains if collective == "all_to_all" else size
        inside, source = _inside(pool, profile, collective, part, local, links)
        across = _across(pool, collective, size, local, domains, links)
        overlapping = np.minimum(1.0, links.pipeline_bytes / np.maximum(size, 1.0))
        seconds = np.maximum(inside, across) + np.minimum(inside, across) * overlapping
        start, chain = _crossing(collective, domains, links)
        # A buffer in n chunks takes (1 + starts ÷ n) · across + n · start over the chain; the best
        # n makes that the start, the transfer and twice their geometric mean. Chunks have a
        # largest size, so with many of them filling the chain takes no longer.
        fill = np.minimum(2.0 * np.sqrt(start * across), links.fill_starts * start)
        seconds = start + np.maximum(seconds + fill, chain)
        source = np.where(domains > 1, ANALYTICAL, source)
    seconds = np.where(group > 1, seconds, 0.0)
    source = np.where(group > 1, source, MEASURED)
    return Timed(seconds.reshape(shape), source.reshape(shape))


def custom_all_reduce_seconds(
    pool: Pool, profile: Profile, size_bytes: Numbers, *, group_size: Numbers
) -> Timed:
    """An inference engine's all-reduce: its own among neighbours, or NCCL's if that is faster.

    A group that leaves the fast domain or the measured sizes of group, or a GPU without such a
    table, has NCCL's all-reduce.
    """
    nccl = collective_seconds(
        pool, profile, "all_reduce", size_bytes, group_size=group_size, stride=1
    )
    grid = profile.tables.custom_all_reduce if profile.tables else None
    if grid is None:
        return nccl
    (size, group), shape = broadcast_columns(size_bytes, group_size)
    seconds, source = _from_grid(pool, profile, grid, "all_reduce", size, group)
    largest = min(float(grid.axes[0][-1]), pool.nvlink_domain_gpus)
    own = ((group > 1) & (group <= largest)).reshape(shape)
    own &= seconds.reshape(shape) < nccl.seconds
    return Timed(
        np.where(own, seconds.reshape(shape), nccl.seconds),
        np.where(own, source.reshape(shape), nccl.source),
    )


def point_to_point_seconds(
    pool: Pool,
    profile: Profile,
    size_bytes: Numbers,
    *,
    crosses_node: bool | npt.NDArray[np.bool_],
    links: LinkModel = FITTED,
) -> Timed:
    """One GPU sends `size_bytes` to another; over the network where `crosses_node`.

    Inside a node at the rate that a profile measured, if it has one; shipped tables have none.
    """
    (size, crosses), shape = broadcast_columns(
        size_bytes, np.asarray(crosses_node, dtype=np.float64)
    )
    network = crosses > 0
    link = np.where(
        network,
        pool.inter_node_bytes_per_second,
        pool.group_bytes_per_second(np.full(len(size), 2.0)),
    )
    start = np.where(network, links.network_start_seconds, links.local_start_seconds)
    seconds = start + size / (links.point_to_point_fraction * link)
    source = np.full(len(size), ANALYTICAL)
    grid = profile.tables.collective("send_recv") if profile.tables else None
    if grid is not None:
        pair = np.full(len(size), 2.0)
        measured, known = _from_grid(pool, profile, grid, "send_recv", size, pair)
        seconds = np.where(network, seconds, measured)
        source = np.where(network, source, known)
    return Timed(seconds.reshape(shape), source.reshape(shape))


def sent_part(collective: Collective, group: FloatArray) -> FloatArray:
    """Part of the buffer that each rank sends: the bus bandwidth factor of nccl-tests.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    if collective == "broadcast":
        return np.where(group > 1, 1.0, 0.0)
    part = (group - 1.0) / group
    return 2.0 * part if collective == "all_reduce" else part


def _across(
    pool: Pool,
    collective: Collective,
    size: FloatArray,
    local: FloatArray,
    domains: FloatArray,
    links: LinkModel,
) -> FloatArray:
    """Seconds in which each GPU's port carries its share."""
    port = links.network_fraction * pool.inter_node_bytes_per_second
    if collective == "all_to_all":
        return size * sent_part(collective, domains) / port
    return size / local * sent_part(collective, domains) / port


def _crossing(
    collective: Collective, domains: FloatArray, links: LinkModel
) -> tuple[FloatArray, FloatArray]:
    """(latency over the network, seconds of a chain of hops that overlaps the transfer).

    Gathers are rings: one crossing starts them, the hops run while others transfer. The others are
    trees.
    """
    levels, chain = np.ceil(np.log2(domains)), np.zeros_like(domains)
    if collective in ("all_gather", "reduce_scatter"):
        levels = np.minimum(levels, 1.0)
        chain = (domains - 1.0) * links.network_hop_seconds
    once = links.network_start_seconds + (levels - 1.0) * links.network_hop_seconds
    passes = 2.0 if collective == "all_reduce" else 1.0
    return np.where(domains > 1, passes * once, 0.0), chain


def _inside(
    pool: Pool,
    profile: Profile,
    collective: Collective,
    size: FloatArray,
    local: FloatArray,
    links: LinkModel,
) -> tuple[FloatArray, IntArray]:
    """Seconds among the members inside one domain, and their provenance."""
    measured = "all_gather" if collective == "broadcast" else collective
    grid = profile.tables.collective(measured) if profile.tables else None
    if grid is not None:
        seconds, source = _from_grid(pool, profile, grid, collective, size, local)
    else:
        link = links.point_to_point_fraction * pool.group_bytes_per_second(local)
        passes = 2.0 if collective == "all_reduce" else 1.0
        seconds = passes * links.local_start_seconds * np.ceil(np.log2(local))
        seconds = seconds + size * sent_part(collective, local) / link
        source = np.full(len(size), ANALYTICAL)
    if collective == "broadcast":
        source = np.full(len(size), ANALYTICAL)
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

    What exceeds the smallest buffer's seconds scales with the table's link over the pool's; the
    smallest buffer's seconds, the latency, grow with log2 of the group beyond the measured ones.
    """
    several = np.maximum(group, 2.0)
    smallest = np.full(len(size), grid.axes[1][0])
    at_least = np.maximum(size, smallest)
    asked = np.concatenate([at_least, smallest])
    found, sources = grid.at(np.concatenate([several, several]), asked)
    bandwidth, at_smallest = found[: len(size)], found[len(size) :]
    source = sources[: len(size)]
    sent = sent_part(collective, several)
    latency = smallest * sent / np.exp(at_smallest)
    transfer = np.maximum(at_least * sent / np.exp(bandwidth) - latency, 0.0)
    depth = np.maximum(np.log(several) / np.log(grid.axes[0][-1]), 1.0)
    table_link = profile.table_link_bytes_per_second
    seconds = latency * depth + transfer * (table_link / pool.group_bytes_per_second(several))
    if profile.derived or table_link != pool.intra_node_bytes_per_second:
        source = np.full(len(size), ANALYTICAL)
    return seconds, source
