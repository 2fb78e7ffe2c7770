"""Plans' ranges on Ray clusters of fake nodes with eight GPUs each."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import PlacementGroup, remove_placement_group

from automap.executor.errors import PlacementError, RunCancelledError
from automap.executor.runtime import placement
from automap.executor.runtime.placement import (
    POOL_LABEL,
    Device,
    DevicePool,
    DeviceRange,
    Reservation,
    device_pools,
    reserve,
)
from automap.planner.spec import ClusterSpec, PoolSpec

pytestmark = pytest.mark.many_processes

POOLS = {
    "a": DevicePool("a", gpus_per_node=8, resource="GPU"),
    "b": DevicePool("b", gpus_per_node=4, resource="GPU"),
    "cores": DevicePool("cores", gpus_per_node=2, resource="CPU"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with 8 GPUs; the head has none."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 0})
    for _ in range(2):
        made.add_node(num_cpus=1, num_gpus=8, object_store_memory=80 * 2**20)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


class Probe:
    def where(self) -> tuple[str, str]:
        """Node, and what CUDA would see."""
        return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES", "")


def located(reservation: Reservation, *devices: Device) -> list[tuple[str, str]]:
    """Of a process on each device; they run at the same time."""
    actors = [
        ray.remote(Probe).options(**reservation.actor_options(each)).remote() for each in devices
    ]
    return ray.get([actor.where.remote() for actor in actors], timeout=60)


def free_gpus() -> float:
    return ray.available_resources().get("GPU", 0.0)


def await_free(count: float) -> None:
    deadline = time.monotonic() + 60  # Ray counts again when it gets to it
    while free_gpus() != count and time.monotonic() < deadline:
        time.sleep(0.05)
    assert free_gpus() == count


@pytest.mark.slow
def test_a_plans_node_is_one_node_and_idle_devices_stay_free(cluster: Cluster) -> None:
    first, second = DeviceRange("a", 0, 4), DeviceRange("a", 8, 2)
    reservation = reserve([first, second], POOLS, timeout_seconds=20)
    await_free(10)
    seen = located(reservation, *first.devices[2:], *second.devices)
    assert len({node for node, _ in seen[:2]}) == 1
    assert len({node for node, _ in seen[2:]}) == 1
    assert len(set(seen)) == 4
    assert all(gpus.isdigit() for _, gpus in seen)
    reservation.release()
    await_free(16)


@pytest.mark.slow
def test_a_range_over_nodes_keeps_their_borders(cluster: Cluster) -> None:
    whole = DeviceRange("a", 0, 16)
    reservation = reserve([whole], POOLS, timeout_seconds=20)
    seen = located(reservation, *whole.devices[::4])
    assert seen[0][0] == seen[1][0] != seen[2][0] == seen[3][0]
    reservation.release()


def test_ranges_that_overlap_share_the_devices_they_have_in_common(cluster: Cluster) -> None:
    outer, inner, overlapping = (DeviceRange("a", *each) for each in ((0, 3), (1, 1), (1, 3)))
    reservation = reserve([outer, inner, overlapping, outer], POOLS, timeout_seconds=20)
    await_free(12)
    ranges = [outer, inner, overlapping]
    seen = located(reservation, *(device for each in ranges for device in each.devices))
    by_device: dict[Device, set[tuple[str, str]]] = {}
    for device, place in zip((d for each in ranges for d in each.devices), seen, strict=True):
        by_device.setdefault(device, set()).add(place)
    assert all(len(places) == 1 for places in by_device.values())
    assert len(set.union(*by_device.values())) == 4
    reservation.release()
    await_free(16)


def test_a_group_that_cannot_be_removed_keeps_no_other_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = reserve([DeviceRange("a", 0, 16)], POOLS, timeout_seconds=20)
    first, *others = reversed(reservation.groups)
    assert others

    def fails_once(group: PlacementGroup) -> None:
        if group is first:
            raise ConnectionError("the head does not answer")
        remove_placement_group(group)

    monkeypatch.setattr(placement, "remove_placement_group", fails_once)
    with pytest.raises(ConnectionError):
        reservation.release()
    await_free(16 - 8)
    monkeypatch.undo()
    reservation.release()
    await_free(16)


@pytest.mark.slow
def test_cores_are_devices_too(cluster: Cluster) -> None:
    cores = DeviceRange("cores", 0, 2)
    reservation = reserve([cores], POOLS, timeout_seconds=20)
    assert {gpus for _, gpus in located(reservation, *cores.devices)} == {""}
    reservation.release()


def test_what_no_node_could_hold_is_refused_at_once(cluster: Cluster) -> None:
    large = {"a": DevicePool("a", gpus_per_node=16, resource="GPU")}
    started = time.monotonic()
    with pytest.raises(PlacementError) as caught:
        reserve([DeviceRange("a", 0, 9)], large, timeout_seconds=60)
    assert "1 × 9 GPU on one node (pool a)" in str(caught.value)
    assert "2 × 8 GPU and 1 CPU" in str(caught.value)
    with pytest.raises(PlacementError, match=r"2 × 8 GPU on one node \(pool a\), 1 × 1 GPU"):
        reserve([DeviceRange("a", 0, 17)], POOLS, timeout_seconds=60)
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_what_is_taken_by_others_is_awaited(cluster: Cluster) -> None:
    """However long that takes: others are not done within the time that a start may take."""
    other = reserve([DeviceRange("a", 0, 1), DeviceRange("a", 8, 1)], POOLS, timeout_seconds=20)
    blocked = [DeviceRange("a", 0, 8), DeviceRange("a", 8, 8)]
    began = time.monotonic()
    told: list[str] = []

    def check() -> None:
        if time.monotonic() - began > 8 and other.groups:
            await_free(14)  # the part that there is, is not kept from others for ever
            other.release()

    mine = reserve(blocked, POOLS, timeout_seconds=1, check=check, on_wait=told.append)
    (what,) = told
    assert "2 × 8 GPU on one node" in what
    assert "free now: " in what
    await_free(0)
    mine.release()
    await_free(16)


def test_a_cluster_that_may_grow_is_waited_for(cluster: Cluster) -> None:
    with pytest.raises(PlacementError, match="within 1 s"):
        reserve([DeviceRange("a", 0, 17)], POOLS, timeout_seconds=1, cluster_may_grow=True)
    await_free(16)


def test_waiting_can_be_cancelled(cluster: Cluster) -> None:
    def check() -> None:
        raise RunCancelledError("cancelled")

    with pytest.raises(RunCancelledError):
        reserve(
            [DeviceRange("a", 0, 17)],
            POOLS,
            timeout_seconds=60,
            cluster_may_grow=True,
            check=check,
        )
    await_free(16)


@pytest.mark.slow
def test_giving_up_at_any_moment_keeps_no_device(cluster: Cluster) -> None:
    for _ in range(60):
        test_waiting_can_be_cancelled(cluster)


def test_a_group_is_not_removed_while_nodes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray forgets what a node promised to a group that is removed before it is confirmed."""
    states = {
        "first": ["CREATED"],
        "second": ["PENDING QUEUED", "PENDING SCHEDULING_STARTED", "PREPARED QUEUED", "CREATED"],
        "third": ["PENDING NO_RESOURCES"],
    }
    seen: list[tuple[str, str]] = []

    def table(group: str) -> dict[str, Any]:
        if group in dict(seen):
            return {"state": "REMOVED"}
        state, *scheduling = states[group][0].split()
        if len(states[group]) > 1:
            states[group].pop(0)
        return {"state": state, "stats": {"scheduling_state": "".join(scheduling)}}

    monkeypatch.setattr(placement, "placement_group_table", table)
    monkeypatch.setattr(
        placement,
        "remove_placement_group",
        lambda group: seen.append((group, states[group][0])),
    )
    reservation = Reservation({}, Counter(), groups=cast(Any, list(states)))
    reservation.release()
    assert seen == [
        ("third", "PENDING NO_RESOURCES"),
        ("second", "CREATED"),
        ("first", "CREATED"),
    ]
    assert not reservation.groups


def test_pools_that_look_alike_need_labels(cluster: Cluster) -> None:
    both = [DeviceRange("a", 0, 2), DeviceRange("b", 0, 2)]
    with pytest.raises(PlacementError, match=f"--labels {POOL_LABEL}=<pool>"):
        reserve(both, POOLS, timeout_seconds=5)


@pytest.mark.slow
def test_labels_tell_pools_apart(cluster: Cluster) -> None:
    """Last, because nodes without a label take no part from here on."""
    nodes: list[Any] = [
        cluster.add_node(
            num_cpus=1, num_gpus=4, object_store_memory=80 * 2**20, labels={POOL_LABEL: pool}
        )
        for pool in ("a", "b")
    ]
    cluster.wait_for_nodes()
    labels = {node["NodeID"]: node["Labels"].get(POOL_LABEL) for node in ray.nodes()}
    both = [DeviceRange("b", 0, 2), DeviceRange("a", 0, 2)]
    reservation = reserve(both, POOLS, timeout_seconds=20)
    seen = located(reservation, *(device for each in both for device in each.devices))
    assert [labels[node] for node, _ in seen] == ["b", "b", "a", "a"]
    reservation.release()
    with pytest.raises(PlacementError, match="too small"):
        reserve([DeviceRange("a", 0, 5)], POOLS, timeout_seconds=5)
    for node in nodes:
        cluster.remove_node(node)


def test_pools_come_from_the_spec_and_the_catalogue() -> None:
    spec = ClusterSpec(
        pools=[
            PoolSpec(name="x", gpu="h100", num_nodes=2),
            PoolSpec(name="y", gpu="cpu", num_nodes=1, gpus_per_node=2),
        ]
    )
    assert device_pools(spec) == {
        "x": DevicePool("x", gpus_per_node=8, resource="GPU"),
        "y": DevicePool("y", gpus_per_node=2, resource="CPU"),
    }


@pytest.mark.parametrize(
    ("shares", "nodes", "fit"),
    [
        ([2, 2], [3.0, 1.0], False),  # enough in all, but no two nodes of two
        ([2, 2], [3.0, 2.0], True),
        ([2, 1, 1], [1.0, 3.0], True),
        ([4], [2.0, 2.0], False),
        ([4, 3, 2], [5.0, 4.0], True),
        ([1], [], False),
    ],
)
def test_whole_shares_must_fit_on_nodes(shares: list[int], nodes: list[float], fit: bool) -> None:
    assert placement._may_fit(shares, nodes) is fit
