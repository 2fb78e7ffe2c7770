"""A real server, killed without warning in the middle of a plan, and one that takes over."""

import signal
import time
from collections.abc import Iterator

import pytest

from automap.service.schemas.plans import PlanRecord
from tests.service.support.databases import Databases
from tests.service.support.processes import descendants, planners_of, running
from tests.service.support.samples import large_spec, small_spec
from tests.service.support.servers import Server, serving
from tests.service.support.workers import eventually


def wait_for_status(
    server: Server, plan_id: str, *statuses: str, seconds: float = 60
) -> PlanRecord:
    deadline = time.monotonic() + seconds
    while (record := server.plan(plan_id)).status not in statuses:
        assert time.monotonic() < deadline, f"the plan is still {record.status}"
        time.sleep(0.02)
    return record


@pytest.mark.slow_on("postgresql")
def test_a_killed_servers_plan_is_made_once_by_the_next(databases: Databases) -> None:
    url = databases.create("killed")
    with serving(url) as first:
        plan_id = first.post(large_spec())
        second_id = first.post(small_spec())
        assert wait_for_status(first, plan_id, "running").attempts == 1
        eventually(lambda: len(planners_of(first.process.pid)) == 2)
        planners = set(descendants(first.process.pid))
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        # Planners and fork server see that it is gone: nobody computes for nobody.
        deadline = time.monotonic() + 10
        while any(running(planner) for planner in planners):
            assert time.monotonic() < deadline, "a planner process outlived its server"
            time.sleep(0.05)
    with serving(url) as second:
        assert second.plan(plan_id).status == "running"  # as the dead server left it
        record = wait_for_status(second, plan_id, "succeeded", "failed", seconds=120)
        assert (record.status, record.attempts) == ("succeeded", 2)
        assert record.plan is not None
        assert wait_for_status(second, second_id, "succeeded").attempts == 1
        listed = second.client.get("/v1/plans").json()["items"]
        assert sorted(item["id"] for item in listed) == sorted([plan_id, second_id])


@pytest.mark.slow_on("postgresql")
def test_a_stopped_server_puts_its_plan_back(databases: Databases) -> None:
    url = databases.create("stopped")
    with serving(url) as first:
        plan_id = first.post(large_spec())
        wait_for_status(first, plan_id, "running")
        first.process.send_signal(signal.SIGTERM)
        first.process.wait(timeout=30)
    with serving(url, queue_planners=0) as second:
        record = second.plan(plan_id)
        assert (record.status, record.attempts) == ("queued", 0)


@pytest.mark.slow_on("postgresql")
def test_a_large_body_is_413_over_the_wire(databases: Databases) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(160):
            yield b" " * 65_536

    headers = {"Content-Type": "application/json"}
    with serving(databases.create("wire"), queue_planners=0) as server:
        for content in (chunks(), b" " * 10_485_760):
            response = server.client.post("/v1/plans", content=content, headers=headers)
            assert response.status_code == 413
            assert response.json()["type"] == "/problems/body-too-large"
        assert server.client.get("/v1/plans").json()["items"] == []
