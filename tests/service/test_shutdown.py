"""A real service that is asked to stop: what is under way ends well, and others take over."""

import signal
import threading
import time

import httpx
import pytest

from tests.service.support.databases import Databases, migrated
from tests.service.support.processes import descendants, running
from tests.service.support.samples import large_spec
from tests.service.support.servers import Server, serving
from tests.service.support.workers import add_job, eventually

PLANNED = (201, 422)
"""The planner's own answer: on a busy machine it may be that the time limit was too short."""


class Asked(threading.Thread):
    """A request in a thread of its own."""

    def __init__(self, server: Server, spec: object) -> None:
        super().__init__()
        self._server, self._spec = server, spec
        self.response: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        self.response = httpx.post(f"{self._server.address}/v1/plans", json=self._spec, timeout=60)


def busy(server: Server) -> bool:
    return 'automap_planner_processes_busy{serves="requests"} 1.0' in (
        server.client.get("/metrics").text
    )


def stop(server: Server) -> float:
    """Seconds until the process has ended."""
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=90) == 0
    return time.monotonic() - began


@pytest.fixture
def url(databases: Databases, request: pytest.FixtureRequest) -> str:
    if databases.backend != "sqlite":
        pytest.skip("tried with sqlite")
    name = request.node.originalname.removeprefix("test_")[:40]
    return databases.create(name)


@pytest.mark.slow
def test_a_request_in_flight_is_answered(url: str) -> None:
    with serving(url, queue_planners=0, shutdown_seconds=60) as server:
        asked = Asked(server, large_spec())
        eventually(lambda: busy(server))
        planners = set(descendants(server.process.pid))
        stop(server)
        asked.join()
        assert asked.response is not None
        assert asked.response.status_code in PLANNED
        assert planners
        assert not any(map(running, planners))
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.address}/healthz")


@pytest.mark.slow
def test_what_takes_longer_than_the_limit_is_told_so(url: str) -> None:
    with serving(url, queue_planners=0, shutdown_seconds=2) as server:
        long = {**large_spec(), "search": {"time_limit_seconds": 600, "explain_infeasible": True}}
        long["workload"]["prompts_per_iteration"] = 8 * 256 + 8 * 7
        long["cluster"]["pools"][0]["num_nodes"] = 61
        asked = Asked(server, long)
        eventually(lambda: busy(server))
        assert stop(server) < 6
        asked.join()
        assert asked.response is not None
        assert asked.response.status_code == 503
        assert asked.response.json()["detail"] == "The service is shutting down"
        assert asked.response.headers["retry-after"] == "5"


@pytest.mark.slow
def test_a_queued_plan_is_taken_over_while_a_request_is_still_answered(url: str) -> None:
    patient = {"lease_seconds": 60, "shutdown_seconds": 60}
    with serving(url, **patient) as first, serving(url, **patient) as second:
        asked = Asked(first, large_spec())
        eventually(lambda: busy(first))
        second.process.send_signal(signal.SIGSTOP)
        plan_id = first.post(large_spec())
        eventually(lambda: first.plan(plan_id).status == "running")
        second.process.send_signal(signal.SIGCONT)
        first.process.send_signal(signal.SIGTERM)
        eventually(lambda: second.plan(plan_id).status in ("running", "succeeded"), seconds=20)
        record = eventually(lambda: second.plan(plan_id))
        assert record.attempts == 1  # the first let go of it, and that counts for nothing
        asked.join()
        assert asked.response is not None
        assert asked.response.status_code in PLANNED
        first.process.wait(timeout=30)


def test_a_stream_of_events_ends_with_a_comment(url: str) -> None:
    with serving(url, queue_planners=0) as server:
        database = migrated(url)
        job_id = add_job(database)
        database.dispose()
        with server.client.stream("GET", f"/v1/jobs/{job_id}/events") as response:
            lines = response.iter_lines()
            assert next(lines).startswith("id: 1")
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            rest = list(lines)  # to the end, and without an error
        assert [line for line in rest if line][-1].startswith(": the service stops")
        assert time.monotonic() - began < 5
        server.process.wait(timeout=30)
