"""A profile goes on only where it was begun."""

import json
from pathlib import Path

import pytest

from automap.planner.profiles import Row
from automap.profiler.errors import ProfileError
from automap.profiler.machine import fingerprint
from automap.profiler.machine.cluster_spec import measured_links, write_cluster
from automap.profiler.machine.devices import CpuDevice

HERE = fingerprint.identity(CpuDevice())


def kept(folder: Path, **other: object) -> None:
    fingerprint.write(folder, {"identity": {**HERE, **other}, "sessions": []})


def test_a_cpu_is_told_apart_by_what_speed_depends_on() -> None:
    assert HERE["device_type"] == "cpu"
    assert HERE["threads_per_process"] == 1
    assert HERE["torch"]
    assert "cores" in HERE["cpu"]
    assert json.loads(json.dumps(HERE)) == HERE


def test_the_same_machine_goes_on(tmp_path: Path) -> None:
    assert fingerprint.check_same(tmp_path, HERE) is None
    kept(tmp_path)
    assert fingerprint.check_same(tmp_path, HERE) == {"identity": HERE, "sessions": []}


def test_each_difference_is_named(tmp_path: Path) -> None:
    kept(tmp_path, torch="2.9.0", device_name="NVIDIA H200")
    with pytest.raises(ProfileError, match="profile of another device or version") as refused:
        fingerprint.check_same(tmp_path, HERE)
    assert f"torch: the profile has 2.9.0, this machine {HERE['torch']}" in refused.value.lines
    assert any(line.startswith("device_name: ") for line in refused.value.lines)
    assert len(refused.value.lines) == 3


def test_another_format_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, format=1)
    with pytest.raises(ProfileError) as refused:
        fingerprint.check_same(tmp_path, HERE)
    assert refused.value.lines[0] == "format: the profile has 1, this machine 3"


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert fingerprint.check_same(tmp_path, HERE) is None
    (tmp_path / "gemm.parquet").touch()
    with pytest.raises(ProfileError, match=r"not empty: it holds gemm\.parquet$"):
        fingerprint.check_same(tmp_path, HERE)


def test_a_cluster_that_was_changed_is_left(tmp_path: Path) -> None:
    write_cluster(tmp_path, CpuDevice())
    (tmp_path / "cluster.yaml").write_text("mine")
    write_cluster(tmp_path, CpuDevice())
    assert (tmp_path / "cluster.yaml").read_text() == "mine"


def test_links_are_those_of_the_largest_buffers() -> None:
    def sent(size: int, seconds: float, collective: str = "send_recv", num_gpus: int = 2) -> Row:
        key = {"collective": collective, "num_gpus": num_gpus, "size_bytes": size}
        return "collectives", key, seconds

    def copied(direction: str, size: int, seconds: float) -> Row:
        return "host_copies", {"direction": direction, "size_bytes": size}, seconds

    assert measured_links([]) == {}
    assert measured_links([sent(100, 1.0, num_gpus=4), sent(100, 1.0, "all_reduce")]) == {}
    rows = [sent(10, 1.0), sent(1000, 2.0), copied("to_host", 800, 2.0)]
    rows += [copied("to_device", 800, 1.0), copied("to_device", 8, 1e-3)]
    assert measured_links(rows) == {
        "intra_node_bytes_per_second": 500,
        "host_link_bytes_per_second": 500,  # priced at four fifths of it: the 400 measured
    }


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"identity": 3'])
def test_a_damaged_fingerprint_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / fingerprint.FILE).write_text(text)
    with pytest.raises(ProfileError, match="is no fingerprint"):
        fingerprint.check_same(tmp_path, HERE)
