"""Profiles of the nodes of a Ray cluster: two raylets on this machine stand for two nodes."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.cluster_utils import Cluster

from automap.planner import catalogue
from automap.planner.profiles.folder import profile_folder
from automap.planner.spec import ClusterSpec
from automap.profiler.cluster import ray_cluster, ray_nodes
from automap.profiler.cluster.ray_cluster import device_kinds, profile_cluster
from automap.profiler.errors import ProfileError
from automap.profiler.results.profile_report import Progress
from automap.profiler.settings import DeviceKind, ProfileSettings

pytestmark = [pytest.mark.slow, pytest.mark.many_processes]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    # A folder of their own for locks, so that nobody else's profile keeps them out.
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        made.wait_for_nodes()
        yield made.address
        made.shutdown()


def settings(address: str, output: Path, **changes: object) -> ProfileSettings:
    given = {"output": output, "budget_seconds": 4.0, "ranks": 1, "ray_address": address}
    return ProfileSettings.model_validate(given | changes)


def test_one_node_of_a_kind_is_measured_and_the_link_of_two(address: str, tmp_path: Path) -> None:
    told: list[Progress] = []
    report = profile_cluster(settings(address, tmp_path), told.append)
    (kind,) = report.kinds
    assert kind.name == "cpu"
    assert len(kind.nodes) == 2
    assert {each.table.partition(":")[0] for each in told} == {"cpu"}
    assert sum(table.measured for table in kind.profile.tables) > 0
    assert profile_folder(str(tmp_path / "cpu"), catalogue.gpu_type("cpu"), field="")
    assert kind.link is not None, kind.remarks
    assert kind.link.seconds < 0.1
    assert kind.link.bytes_per_second > 1e7
    (pool,) = yaml.safe_load((tmp_path / "cluster.yaml").read_text())["cluster"]["pools"]
    parsed = ClusterSpec.model_validate({"pools": [pool]}).pools[0]
    assert (parsed.num_nodes, parsed.gpus_per_node) == (2, 1)
    assert parsed.inter_node_bytes_per_second == pytest.approx(kind.link.bytes_per_second, abs=1)
    again = profile_cluster(settings(address, tmp_path, budget_seconds=1.0), told.append)
    assert again.kinds[0].profile.resumed >= sum(t.measured for t in kind.profile.tables)


@ray.remote(num_cpus=1)
class Other:
    """Somebody else's, on a node that is to be measured."""

    def here(self) -> None:
        """It has started."""


def test_a_node_that_is_busy_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_nodes, "WAIT_SECONDS", 20.0)
    ray.init(address=address, log_to_driver=False)
    try:
        other = Other.remote()
        ray.get(other.here.remote())
        found, failures = ray_nodes.nodes(None)
        assert len(found) == 1  # the other one is measured
        assert failures[0].partition(": ")[2].startswith("its devices were not free for 20 s")
    finally:
        ray.shutdown()


@pytest.fixture
def two_kinds() -> Iterator[Cluster]:
    """Nodes of one and of two cores on this machine, where one waits for the other's lock."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        yield made
        made.shutdown()


def lose_when_measured(made: Cluster, node: Any, pool: str) -> Callable[[Progress], None]:
    """A listener that takes a node away once something is measured on its kind."""
    gone: list[Any] = []

    def listen(reached: Progress) -> None:
        if reached.table.startswith(f"{pool}: ") and reached.done >= 3 and not gone:
            gone.append(node)
            made.remove_node(node, allow_graceful=False)

    return listen


def test_a_node_that_dies_is_named_and_the_others_are_kept(
    two_kinds: Cluster, tmp_path: Path
) -> None:
    other = two_kinds.add_node(num_cpus=2, object_store_memory=80 * 2**20)
    two_kinds.wait_for_nodes()
    asked = settings(two_kinds.address, tmp_path, wait_seconds=120.0, budget_seconds=6.0)
    ray.init(address=two_kinds.address, log_to_driver=False)
    kinds = {
        name: nodes[0].reserved for name, nodes in device_kinds(ray_nodes.nodes(None)[0]).items()
    }
    ray.shutdown()
    (lost,) = (name for name, cores in kinds.items() if cores == 2)
    (kept,) = set(kinds) - {lost}
    done: list[str] = []
    report = profile_cluster(
        asked,
        lose_when_measured(two_kinds, other, lost),
        measured=lambda kind: done.append(kind.name),
    )
    assert done == [kind.name for kind in report.kinds] == [kept]
    (failure,) = report.failures
    assert failure.startswith(f"no node of the kind {lost} could be measured: ")
    assert "was lost" in failure
    pools = {pool["name"]: pool for pool in report.cluster["pools"]}
    assert pools[kept]["profile"] == str(tmp_path / kept)
    assert "profile" not in pools[lost]
    # What was measured on the node that died is there, too.
    assert (tmp_path / lost / "measurements.jsonl").read_bytes().count(b"\n") >= 3


def test_where_a_node_dies_the_next_of_its_kind_goes_on(
    two_kinds: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = two_kinds.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    two_kinds.wait_for_nodes()

    def other_first(kind: DeviceKind | None) -> tuple[list[ray_nodes.Node], list[str]]:
        found, failures = ray_nodes.nodes(kind)
        return sorted(found, key=lambda node: node.id != other.node_id), failures

    monkeypatch.setattr(ray_cluster, "nodes", other_first)  # the head cannot be taken away
    asked = settings(two_kinds.address, tmp_path, wait_seconds=120.0)
    report = profile_cluster(asked, lose_when_measured(two_kinds, other, "cpu"))
    (kind,) = report.kinds
    assert (len(kind.nodes), kind.link, report.failures) == (1, None, [])
    assert "was lost" in kind.remarks[0]
    assert kind.profile.resumed >= 3


def test_no_ray_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no Ray answers at 127\.0\.0\.1:1"):
        profile_cluster(settings("127.0.0.1:1", tmp_path), lambda _: None)
