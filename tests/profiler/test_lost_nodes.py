"""Kinds of node without a cluster: what their nodes tell is made up, what becomes of it is not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
from automap.profiler.cluster import on_node, ray_cluster
from automap.profiler.cluster.ray_cluster import outcome_of, pools_of
from automap.profiler.cluster.ray_nodes import Node
from automap.profiler.errors import NodeLostError, ProfileError
from automap.profiler.machine import fingerprint
from automap.profiler.results.profile_report import KindReport
from automap.profiler.settings import ProfileSettings

LINE = json.dumps({"table": "gemm", "key": {}, "seconds": 1.0}) + "\n"
SENT = (
    b'{"table": "collectives", "key": {"collective": "send_recv", "num_gpus": 2, '
    b'"size_bytes": 1073741824}, "seconds": 0.5, "low": 0.4, "high": 0.6, "samples": 7, '
    b'"rejected": 0, "disturbed": false}\n'
)
REPORT = {
    "folder": "/runs/1/cpu",
    "device": "cpu",
    "resumed": 0,
    "seconds": 2.0,
    "budget_seconds": 3.0,
    "tables": [],
    "held_out": [],
    "conditions": {"load": 0.1, "cores": 2, "busy": False, "drift": 0.0, "throttled": False},
}
PROGRESS = {"table": "gemm", "done": 1, "wanted": 2, "seconds": 1.0, "budget_seconds": 3.0}


def node(name: str) -> Node:
    found = {"identity": {"device_type": "cpu"}, "count": 2, "host_memory_bytes": 2**34}
    return Node(id=name, name=name, address=name, device="cpu", reserved=2, found=found)


class Told:
    """What each node tells, in place of Ray; the files that each was given before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **by_node: Any) -> None:
        self.before: dict[str, dict[str, bytes]] = {}
        self._by_node = by_node
        monkeypatch.setattr(ray_cluster, "_told", self._told)

    def _told(self, node: Node, wanted: str, before: dict[str, bytes]) -> Iterator[dict[str, Any]]:
        self.before[node.name] = before
        for each in self._by_node[node.name]:
            if isinstance(each, Exception):
                raise each
            yield each


JOURNAL = {"journal": {"fingerprint": "{}", "measurements": LINE}}


def outcome(folder: Path, *nodes: Node) -> tuple[KindReport | ProfileError, list[str]]:
    done: list[str] = []
    settings = ProfileSettings(output=folder)
    found = outcome_of("cpu", nodes, settings, lambda _: None, lambda kind: done.append(kind.name))
    return found, done


def test_the_next_node_is_given_what_the_lost_one_had_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = str(tmp_path / "cpu")
    told = Told(
        monkeypatch,
        a=[{"progress": PROGRESS}, JOURNAL, JOURNAL, NodeLostError("a: was lost")],
        b=[{"error": {"headline": "others use it", "lines": ["python"]}}],
        c=[{"files": {"measurements.jsonl": SENT}}, {"report": REPORT | {"folder": folder}}],
    )
    found, done = outcome(tmp_path, node("a"), node("b"), node("c"))
    assert isinstance(found, KindReport)
    assert done == ["cpu"]
    assert told.before["a"] == {}
    kept = {fingerprint.FILE: b"{}", "measurements.jsonl": 2 * LINE.encode()}
    assert told.before["b"] == told.before["c"] == kept
    assert found.remarks == ["a: was lost", "b: others use it; python"]
    assert found.nodes == ["b", "c"]  # the lost one is no node any more
    assert found.link is None
    assert (tmp_path / "cpu" / "measurements.jsonl").read_bytes() == SENT
    (pool,) = pools_of({"cpu": [node("a"), node("b"), node("c")]}, [found])
    assert (pool["num_nodes"], pool["gpus_per_node"]) == (2, 2)
    assert pool["intra_node_bytes_per_second"] == 2**31


def test_what_was_measured_on_the_last_node_that_was_lost_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Told(monkeypatch, a=[JOURNAL, NodeLostError("a: was lost")], b=[ProfileError("b: busy")])
    found, done = outcome(tmp_path, node("a"), node("b"))
    assert isinstance(found, NodeLostError)
    assert found.headline == "no node of the kind cpu could be measured: a: was lost"
    assert found.lines == ["b: busy"]
    assert done == []
    assert (tmp_path / "cpu" / "measurements.jsonl").read_text() == LINE


def test_a_refusal_is_no_loss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Told(monkeypatch, a=[{"error": {"headline": "others use it", "lines": []}}])
    found, _ = outcome(tmp_path, node("a"))
    assert isinstance(found, ProfileError)
    assert not isinstance(found, NodeLostError)


def test_a_journal_is_read_as_it_grows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(on_node, "JOURNAL_SECONDS", 0.0)
    journal = on_node._JournalReader(tmp_path)
    assert list(journal.news()) == []
    (tmp_path / fingerprint.FILE).write_text("{}")
    file = tmp_path / "measurements.jsonl"
    file.write_text(LINE + LINE[:10])
    assert list(journal.news()) == [JOURNAL]
    assert list(journal.news()) == []  # half a line is none
    with file.open("a") as more:
        more.write(LINE[10:])
    assert list(journal.news()) == [JOURNAL]


def test_a_folder_where_something_was_measured_is_left(tmp_path: Path) -> None:
    files = {fingerprint.FILE: b"{}", "measurements.jsonl": LINE.encode()}
    on_node._put(tmp_path / "new", files)
    assert (tmp_path / "new" / "measurements.jsonl").read_text() == LINE
    on_node._put(tmp_path / "new", {**files, "measurements.jsonl": b""})
    assert (tmp_path / "new" / "measurements.jsonl").read_text() == LINE
    on_node._put(tmp_path / "none", {})
    assert not (tmp_path / "none").exists()
