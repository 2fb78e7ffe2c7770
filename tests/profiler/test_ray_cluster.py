"""Profiles of the nodes of a Ray cluster: two raylets on this machine stand for two nodes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import yaml
from ray.cluster_utils import Cluster

from planner import catalogue
from planner.measured import profile_folder
from planner.spec import ClusterSpec
from profiler import ray_cluster
from profiler.errors import ProfileError
from profiler.ray_cluster import profile_cluster
from profiler.report import Progress
from profiler.settings import ProfileSettings

pytestmark = pytest.mark.slow


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
    monkeypatch.setattr(ray_cluster, "WAIT_SECONDS", 20.0)
    ray.init(address=address, log_to_driver=False)
    try:
        other = Other.remote()
        ray.get(other.here.remote())
        with pytest.raises(ProfileError, match="its devices were not free for 20 s"):
            ray_cluster.nodes(None)
    finally:
        ray.shutdown()


def test_no_ray_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no Ray answers at 127\.0\.0\.1:1"):
        profile_cluster(settings("127.0.0.1:1", tmp_path), lambda _: None)
