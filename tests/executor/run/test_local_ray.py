"""A Ray whose node is late, as on a busy machine, is waited for longer than Ray itself does."""

import pytest
import ray
from ray._private import services

from automap.executor.run import local_ray
from automap.executor.run.local_ray import start_ray


class Node:
    """In place of Ray's question for its node: there is none for a while."""

    def __init__(self, late: int) -> None:
        self.late, self.asked = late, 0

    def __call__(self, address: str, node: str) -> dict[str, str]:
        self.asked += 1
        if self.asked <= self.late:
            raise RuntimeError(f"no node {node} at {address}")
        return {"node": node}


def found(monkeypatch: pytest.MonkeyPatch, node: Node, **seconds: float) -> object:
    """What Ray, while it starts, is told of its node."""
    told: list[object] = []

    def init(**options: object) -> None:
        assert options == {"address": "local", "include_dashboard": False, "num_cpus": 3}
        told.append(services.get_node("here", "mine"))

    monkeypatch.setattr(services, "get_node", node)
    monkeypatch.setattr(ray, "init", init)
    for name, value in seconds.items():
        monkeypatch.setattr(local_ray, name, value)
    try:
        start_ray(num_cpus=3)
    finally:
        assert services.get_node is node, "Ray's own is put back"
    return told[0]


def test_a_node_that_is_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(late=3)
    assert found(monkeypatch, node) == {"node": "mine"}
    assert node.asked == 4


def test_a_node_that_never_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(late=10_000)
    with pytest.raises(RuntimeError, match="no node mine at here"):
        found(monkeypatch, node, START_SECONDS=0.3)
    assert 1 < node.asked < 10
