"""What a real service logs: lines with ids, from all of its processes, and nothing secret."""

import io
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automap.service.telemetry import context, logs
from automap.service.telemetry.logs import LogSettings
from tests.service.support.logs import log_lines, requests_in
from tests.service.support.samples import tiny_spec
from tests.service.support.servers import Server, serving

KEY = "a-key-that-is-nobodys-business"
MARKER = "a-marker-that-is-in-bodies-alone"
BEARER = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "log"


@pytest.fixture(scope="module")
def server(log: Path) -> Iterator[Server]:
    url = f"sqlite:///{log.parent}/automap.db"
    with serving(url, log=log, api_keys=KEY, log_level="debug") as server:
        server.client.headers.update(BEARER)
        yield server


def lines_of(log: Path, request_id: str, *, at_least: int = 1) -> list[dict[str, object]]:
    """A line is written after the answer."""
    deadline = time.monotonic() + 20
    while True:
        found = [line for line in log_lines(log) if line.get("request_id") == request_id]
        if len(found) >= at_least:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_request_is_a_line(server: Server, log: Path) -> None:
    response = server.client.get("/v1/clusters/nowhere?x=1", headers={"X-Request-ID": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"
    (line,) = requests_in(lines_of(log, "mine-1"))
    assert line["level"] == "info"
    assert line["message"] == "GET /v1/clusters/{name}: 404"
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/clusters/{name}", 404)
    assert 0 < line["milliseconds"] < 10_000
    assert line["owner"] == "local"
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("given", ["", "two words", "x" * 65, 'quo"te', "{id}", "a/b"])
def test_an_id_that_could_do_harm_is_replaced(server: Server, given: str) -> None:
    answered = server.client.get("/healthz", headers={"X-Request-ID": given})
    assert answered.headers["x-request-id"] != given
    assert len(answered.headers["x-request-id"]) == 32


def test_refusals_before_any_route_have_an_id_and_a_line(server: Server, log: Path) -> None:
    headers = {"X-Request-ID": "refused-1", "Origin": "http://elsewhere.example"}
    assert server.client.post("/v1/plans", json={}, headers=headers).status_code == 403
    assert [line["status"] for line in requests_in(lines_of(log, "refused-1"))] == [403]


def test_probes_that_succeed_are_no_news(server: Server, log: Path) -> None:
    server.client.get("/readyz", headers={"X-Request-ID": "probe-1"})
    (line,) = requests_in(lines_of(log, "probe-1"))
    assert line["level"] == "debug"


def test_the_planner_process_logs_with_the_ids_of_its_plan(server: Server, log: Path) -> None:
    response = server.client.post("/v1/plans", json=tiny_spec(), headers={"X-Request-ID": "plan-1"})
    lines = lines_of(log, "plan-1", at_least=2)
    (planned,) = [line for line in lines if line["logger"] == "automap.service.planners.child"]
    assert planned["plan_id"] == response.json()["id"]
    assert planned["message"] == "plan: done"


def test_a_queued_plan_keeps_the_id_of_its_request(server: Server, log: Path) -> None:
    headers = {"X-Request-ID": "queued-1", "Prefer": "respond-async"}
    response = server.client.post("/v1/plans", json=tiny_spec(), headers=headers)
    plan_id = response.json()["id"]
    loggers = {line["logger"] for line in lines_of(log, "queued-1", at_least=3)}
    assert loggers == {
        "automap.service.api.observation",
        "automap.service.queues.dispatcher",
        "automap.service.planners.child",
    }
    of_plan = [line for line in lines_of(log, "queued-1") if line.get("plan_id") == plan_id]
    assert len(of_plan) == 2


def test_no_key_and_no_body_is_logged(server: Server, log: Path) -> None:
    spec = tiny_spec(name=MARKER)
    server.client.post("/v1/plans", json=spec, headers={"Idempotency-Key": f"{MARKER}-0"})
    for body in (
        json.dumps({**spec, MARKER: 1}),
        json.dumps({**spec, "algorithm": MARKER}),
        f'{{"{MARKER}": ',
        json.dumps({"pools": [], "name": MARKER}),
    ):
        for path in ("/v1/plans", "/v1/clusters", "/v1/jobs", "/v1/estimates"):
            headers = {"Content-Type": "application/json", "X-Request-ID": "marked"}
            assert server.client.post(path, content=body, headers=headers).status_code >= 400
    server.client.get(f"/v1/plans?cursor={MARKER}", headers={"X-Request-ID": "last"})
    server.client.get(f"/{MARKER}", headers={"X-Request-ID": "last"})
    server.client.get("/v1/plans", headers={"Authorization": f"Bearer {MARKER}"})
    lines_of(log, "last", at_least=2)
    text = log.read_text()
    assert '"request_id": "marked"' in text
    assert MARKER not in text
    assert KEY not in text


def logged(settings: LogSettings, *, terminal: bool = False) -> str:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.set_up(settings, stream)
        log = logging.getLogger("automap.somewhere")
        with context.bound(job_id="1234"):
            log.info("it went %s", "well", extra={"seconds": 1.5})
        log.debug("a detail")
        try:
            secret = MARKER
            raise ValueError("what went wrong")
        except ValueError:
            log.exception("it went wrong")
        assert secret
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    return stream.getvalue()


def test_lines_are_json_where_nobody_looks() -> None:
    first, second = map(json.loads, logged(LogSettings()).splitlines())
    assert first["message"] == "it went well"
    assert (first["job_id"], first["seconds"], first["level"]) == ("1234", 1.5, "info")
    assert "ValueError: what went wrong" in second["exception"]
    assert MARKER not in str(second)
    assert "job_id" not in second


@pytest.mark.parametrize(
    ("settings", "terminal"), [(LogSettings("text"), False), (LogSettings(), True)]
)
def test_lines_are_for_people_at_a_terminal(settings: LogSettings, terminal: bool) -> None:
    text = logged(settings, terminal=terminal)
    assert "it went well" in text
    assert "1234" in text
    assert not text.startswith("{")
    assert ("\x1b[" in text) == terminal
    assert MARKER not in text


def test_json_may_be_asked_for_and_less_of_it() -> None:
    (line,) = logged(LogSettings("json", "error"), terminal=True).splitlines()
    assert json.loads(line)["message"] == "it went wrong"
