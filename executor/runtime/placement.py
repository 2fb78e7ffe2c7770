"""From the ranges of a plan to Ray placement groups: one bundle per device, one group per node.

Devices of a plan's node are reserved together on one node of the Ray cluster (STRICT_PACK), and
only those that some copy lies on: the others stay free. Processes of several ranges on one
device share its bundle, each with an equal fraction; Ray then shows all of them that one GPU.
A pool of `cpu` devices takes cores.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from automap.executor.errors import PlacementError
from automap.planner import catalogue
from automap.planner.plan import CopyPlacement
from automap.planner.spec import ClusterSpec

POOL_LABEL = "automap-pool"
"""A Ray node that carries this label takes only devices of the pool that it names."""
_POLL_SECONDS = 0.05
_HOLD_SECONDS = 5.0
"""How long a part of the devices is held while the rest is others'."""


class Device(NamedTuple):
    """A GPU, or a core, of a pool."""

    pool: str
    number: int


@dataclass(frozen=True, slots=True, order=True)
class DeviceRange:
    """Consecutive devices of a pool: what a copy lies on."""

    pool: str
    first: int
    count: int

    @classmethod
    def of(cls, copy: CopyPlacement) -> "DeviceRange":
        """A copy's."""
        return cls(copy.pool, copy.first_gpu, copy.num_gpus)

    @property
    def devices(self) -> tuple[Device, ...]:
        """In the order of the ranks."""
        return tuple(
            Device(self.pool, number) for number in range(self.first, self.first + self.count)
        )

    def __str__(self) -> str:
        last = self.first + self.count - 1
        return f"{self.pool}:{self.first}" + (f"-{last}" if last > self.first else "")


@dataclass(frozen=True, slots=True)
class DevicePool:
    """What reserving needs to know of a plan's pool."""

    name: str
    gpus_per_node: int
    resource: str
    """Ray's name of a device: GPU, or CPU for a core."""


def device_pools(cluster: ClusterSpec) -> dict[str, DevicePool]:
    """The pools of a spec by name; SpecError if the catalogue lacks a GPU."""
    pools = {}
    for pool in cluster.pools:
        gpu = catalogue.gpu_type(pool.gpu)
        pools[pool.name] = DevicePool(
            name=pool.name,
            gpus_per_node=pool.gpus_per_node or catalogue.node_type(gpu.node).gpus_per_node,
            resource="CPU" if gpu.name == "cpu" else "GPU",
        )
    return pools


@dataclass(slots=True)
class Reservation:
    """Placement groups that hold every device of some ranges."""

    resources: dict[str, str]
    """Pool → Ray's name of its devices."""
    sharing: Counter[Device]
    """Device → ranges that cover it."""
    groups: list[PlacementGroup] = field(default_factory=list)
    bundles: dict[Device, tuple[PlacementGroup, int]] = field(default_factory=dict)

    def actor_options(self, device: Device) -> dict[str, Any]:
        """Ray's options of a process on a device that it may share."""
        group, bundle = self.bundles[device]
        # Ray counts in ten-thousandths; rounded down, so that all shares fit.
        share = 10_000 // self.sharing[device] / 10_000
        on_gpu = self.on_gpu(device)
        return {
            "num_cpus": 0 if on_gpu else share,
            "num_gpus": share if on_gpu else 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=bundle
            ),
        }

    def on_gpu(self, device: Device) -> bool:
        """False for a core."""
        return self.resources[device.pool] == "GPU"

    def release(self, *, timeout_seconds: float = 10.0) -> None:
        """Remove the groups, and with them whatever still runs in them; wait until it is done.

        Where Ray fails at one of them, the others are removed all the same.
        """
        # Last first, as the stack calls back: what waits is not given, while it is removed, what
        # the others free.
        with ExitStack() as removals:
            for group in self.groups:
                removals.callback(_remove, group, timeout_seconds=timeout_seconds)
        for group in self.groups:
            _wait_while(_exists, group, seconds=timeout_seconds)
        self.groups.clear()


def _remove(group: PlacementGroup, *, timeout_seconds: float) -> None:
    _wait_while(_is_being_placed, group, seconds=timeout_seconds)
    remove_placement_group(group)


@dataclass(frozen=True, slots=True)
class _NodeShare:
    """Devices of one of the plan's nodes."""

    pool: DevicePool
    devices: tuple[Device, ...]
    labels: dict[str, str]


def reserve(
    ranges: Iterable[DeviceRange],
    pools: Mapping[str, DevicePool],
    *,
    timeout_seconds: float,
    cluster_may_grow: bool = False,
    check: Callable[[], None] = lambda: None,
    on_wait: Callable[[str], None] = lambda what: None,
) -> Reservation:
    """Reserve every device of the (distinct) ranges, or nothing.

    What others hold is waited for, as long as it takes.

    Args:
        ranges: One per set of processes.
        pools: By name, at least those of the ranges.
        timeout_seconds: For nodes that are not there yet.
        cluster_may_grow: Wait even if the cluster's nodes, all idle, would not do: an autoscaler
            may add some.
        check: Called while waiting; may raise to give up.
        on_wait: Told once what is waited for, if others hold it.

    Raises:
        PlacementError: the cluster cannot hold the devices, or did not grow in time; the message
            says what was asked for and what there is.
    """
    sharing = Counter(device for each in set(ranges) for device in each.devices)
    shares = _node_shares(sharing, pools)
    if not cluster_may_grow:
        _check_totals(shares)
    reservation = Reservation({pool.name: pool.resource for pool in pools.values()}, sharing)
    try:
        _add_groups(reservation, shares)
        if cluster_may_grow:
            if not _are_ready(reservation.groups, timeout_seconds, check):
                raise PlacementError(
                    f"the Ray cluster had no room for the plan within {timeout_seconds:g} s. "
                    f"{_asked(shares)} {_available()}"
                )
        elif not _are_ready(reservation.groups, _HOLD_SECONDS, check):
            on_wait(f"waits for others to end. {_asked(shares)} {_available()}")
            _await_others(reservation, shares, check)
    except BaseException:
        reservation.release()
        raise
    return reservation


def _add_groups(reservation: Reservation, shares: list[_NodeShare]) -> None:
    for share in shares:
        reservation.groups.append(_create(share))
        for bundle, device in enumerate(share.devices):
            reservation.bundles[device] = (reservation.groups[-1], bundle)


def _await_others(
    reservation: Reservation, shares: list[_NodeShare], check: Callable[[], None]
) -> None:
    """Wait for what others hold, without keeping from them the part that is there already.

    Two who each held one node and waited for the other's would wait for ever.
    """
    while not _are_ready(reservation.groups, _HOLD_SECONDS, check):
        _check_totals(shares)  # a node may have left since
        if len(shares) > 1:
            reservation.release()
            pause = time.monotonic() + random.uniform(0, _HOLD_SECONDS)  # not both at once again  # nosec B311
            while time.monotonic() < pause:
                check()
                time.sleep(_POLL_SECONDS)
            _add_groups(reservation, shares)


def _node_shares(devices: Iterable[Device], pools: Mapping[str, DevicePool]) -> list[_NodeShare]:
    """Per node of the plan, largest first, so that small ones cannot take a large one's node."""
    by_node: dict[tuple[str, int], list[Device]] = defaultdict(list)
    for device in sorted(devices):
        by_node[device.pool, device.number // pools[device.pool].gpus_per_node].append(device)
    labels = _labels({pool for pool, _ in by_node}, pools)
    shares = [
        _NodeShare(pools[pool], tuple(members), labels[pool])
        for (pool, _), members in by_node.items()
    ]
    return sorted(shares, key=lambda share: -len(share.devices))


def _labels(used: set[str], pools: Mapping[str, DevicePool]) -> dict[str, dict[str, str]]:
    """Pool → the labels of its nodes; none where the cluster's nodes have none."""
    labelled = any(POOL_LABEL in node.get("Labels", {}) for node in _alive_nodes())
    if labelled:
        return {pool: {POOL_LABEL: pool} for pool in used}
    alike = Counter(pools[pool].resource for pool in used)
    if max(alike.values(), default=0) > 1:
        raise PlacementError(
            f"the plan uses the pools {', '.join(sorted(used))}, but no node of the Ray cluster "
            f"says which pool it belongs to; start nodes with `ray start --labels "
            f"{POOL_LABEL}=<pool>`"
        )
    return {pool: {} for pool in used}


def _create(share: _NodeShare) -> PlacementGroup:
    bundles = [{share.pool.resource: 1.0} for _ in share.devices]
    selector = [share.labels for _ in share.devices] if share.labels else None
    return placement_group(bundles, strategy="STRICT_PACK", bundle_label_selector=selector)


def _are_ready(
    groups: list[PlacementGroup], timeout_seconds: float, check: Callable[[], None]
) -> bool:
    """Whether all are reserved within this time."""
    deadline = time.monotonic() + timeout_seconds
    for group in groups:
        # Ray's own wait counts in whole seconds.
        while placement_group_table(group).get("state") != "CREATED":
            check()
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
    return True


def _check_totals(shares: list[_NodeShare]) -> None:
    """Refuse at once what no order of events can place."""
    for pool in {share.pool.name: share.pool for share in shares}.values():
        mine = [share for share in shares if share.pool.name == pool.name]
        nodes = [
            node["Resources"].get(pool.resource, 0.0)
            for node in _alive_nodes()
            if mine[0].labels.items() <= node.get("Labels", {}).items()
        ]
        if not _may_fit([len(share.devices) for share in mine], nodes):
            raise PlacementError(
                f"the Ray cluster is too small for the plan. {_asked(shares)} {_available()}"
            )


def _may_fit(shares: list[int], nodes: list[float]) -> bool:
    """False where whole shares cannot all lie on nodes: of those of a size or more, too many."""
    return sum(shares) <= sum(nodes) and all(
        sum(share >= size for share in shares) <= sum(room // size for room in nodes)
        for size in set(shares)
    )


def _asked(shares: list[_NodeShare]) -> str:
    alike = Counter((share.pool, len(share.devices)) for share in shares)
    parts = [
        f"{count} × {size} {pool.resource} on one node (pool {pool.name})"
        for (pool, size), count in sorted(alike.items(), key=lambda each: each[0][0].name)
    ]
    return f"Asked for: {', '.join(parts)}."


def _available() -> str:
    free = ray.available_resources()
    nodes = Counter(
        (
            node["Resources"].get("GPU", 0.0),
            node["Resources"].get("CPU", 0.0),
            node.get("Labels", {}).get(POOL_LABEL),
        )
        for node in _alive_nodes()
    )
    parts = [
        f"{count} × {gpu:g} GPU and {cpu:g} CPU" + (f" (pool {pool})" if pool else "")
        for (gpu, cpu, pool), count in nodes.items()
    ]
    return (
        f"The cluster's nodes have: {', '.join(parts) or 'no node'}; "
        f"free now: {free.get('GPU', 0.0):g} GPU and {free.get('CPU', 0.0):g} CPU."
    )


def _wait_while(
    condition: Callable[[PlacementGroup], bool], group: PlacementGroup, *, seconds: float
) -> None:
    deadline = time.monotonic() + seconds
    while condition(group) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_being_placed(group: PlacementGroup) -> bool:
    """Whether nodes are just being asked to hold its bundles.

    Ray 2.60 removes a group between a node's promise and its confirmation without telling the
    node, which then keeps the devices until it is restarted.
    """
    table = placement_group_table(group)
    scheduling = table.get("stats", {}).get("scheduling_state")
    return table.get("state") == "PREPARED" or (
        table.get("state") in ("PENDING", "RESCHEDULING")
        and scheduling in ("QUEUED", "SCHEDULING_STARTED")
    )


def _exists(group: PlacementGroup) -> bool:
    return placement_group_table(group).get("state") not in (None, "REMOVED")


def _alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]
