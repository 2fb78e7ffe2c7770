"""A client that leaves holds no planner, and what others ask is answered."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.service.support.databases import migrated
from tests.service.support.samples import large_spec, tiny_spec
from tests.service.support.servers import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path_factory.mktemp('leaving')}/automap.db"
    migrated(url).dispose()
    with serving(url, queue_planners=0, max_simulated_sequences=10_000) as server:
        yield server


def long_search() -> dict[str, object]:
    """Robust planning of a large job: minutes of work."""
    spec = large_spec()
    spec["search"] = {"time_limit_seconds": 300, "explain_infeasible": True, "robust": True}
    return spec


def leave_in_the_middle(server: Server, body: bytes) -> None:
    port = server.client.base_url.port
    assert port is not None
    head = (
        f"POST /v1/plans HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"
    )
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(head.encode() + body)
        time.sleep(2.0)  # the search has begun
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)


@pytest.mark.slow
def test_a_client_that_leaves_holds_no_planner(server: Server) -> None:
    leave_in_the_middle(server, json.dumps(long_search()).encode())
    asked = time.monotonic()
    assert server.client.post("/v1/plans", json=tiny_spec()).status_code == 201
    assert time.monotonic() - asked < 20
    assert server.client.get("/v1/strategies").status_code == 200


def test_a_simulation_has_so_many_sequences_at_most(server: Server) -> None:
    spec = tiny_spec()
    workload = spec["workload"]
    plan = server.client.post("/v1/plans", json=spec).json()
    each = workload["prompts_per_iteration"] * workload["responses_per_prompt"]
    url = f"/v1/plans/{plan['id']}/simulate"
    assert server.client.post(url, json={"iterations": 10_000 // each}).status_code == 200
    refused = server.client.post(url, json={"iterations": 10_000 // each + 1})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "iterations"
