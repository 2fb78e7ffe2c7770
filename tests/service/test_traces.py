"""Spans of a real service, received as a collector would; and that there are none unasked."""

import os
import subprocess
import sys

import pytest

from tests.helpers.otlp import Receiver, Span, receiving
from tests.service.support.databases import Databases
from tests.service.support.samples import tiny_spec
from tests.service.support.servers import ASYNC, serving

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


def parent_of(span: Span, found: dict[str, Span]) -> str:
    names = {each.span_id: each.name for each in found.values()}
    return names.get(span.parent_id, span.parent_id)


@pytest.fixture
def url(databases: Databases) -> str:
    if databases.backend != "sqlite":
        pytest.skip("tried with sqlite")
    return databases.create("traces")


@pytest.mark.slow
def test_a_request_is_traced_to_the_planner_process_and_through_the_queue(url: str) -> None:
    with receiving() as receiver, serving(url, environment=receiver.environment) as server:
        headers = {"traceparent": PARENT}
        assert server.client.post("/v1/plans", json=tiny_spec(), headers=headers).is_success
        found = receiver.wait_for("POST /v1/plans", "planner", "planner.plan", trace_id=TRACE_ID)
        check_waiting(found)
        response = server.client.post("/v1/plans", json=tiny_spec(), headers=ASYNC)
        check_queued(receiver, response.json()["id"])


def check_waiting(found: dict[str, Span]) -> None:
    request = found["POST /v1/plans"]
    assert request.parent_id == "b7ad6b7169203331"
    assert request.attributes["http.route"] == "/v1/plans"
    assert request.attributes["http.response.status_code"] == 201
    assert parent_of(found["planner"], found) == "POST /v1/plans"
    assert parent_of(found["planner.plan"], found) == "planner"
    services = {each.name: each.service for each in found.values()}
    assert services["POST /v1/plans"] == "automap-api"
    assert services["planner.plan"] == "automap-planner"


def check_queued(receiver: Receiver, plan_id: str) -> None:
    taken_up = receiver.wait_for("plan")["plan"]
    assert taken_up.attributes["automap.plan_id"] == plan_id
    assert taken_up.trace_id != TRACE_ID
    names = ("POST /v1/plans", "plan", "planner", "planner.plan")
    found = receiver.wait_for(*names, trace_id=taken_up.trace_id)
    assert parent_of(found["plan"], found) == "POST /v1/plans"
    assert parent_of(found["planner.plan"], found) == "planner"
    assert parent_of(found["planner"], found) == "plan"


CODE = """
import sys
from automap.service.telemetry import context
from automap.executor.telemetry import traces
traces.start("nobody")
with context.resumed({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}):
    with traces.span("nothing"):
        print(context.carried(), any(name.startswith("opentelemetry") for name in sys.modules))
"""


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_unasked_nothing_is_imported(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", CODE]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "{} False\n"
