"""What the Python client sends again when an answer is lost: nothing that is then done twice."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx
import pytest

from automap.client import Client, NoAnswerError, OtherVersionError, ProblemError
from automap.planner import Placement, ReplanOptions
from automap.service.schemas.access import NewApiKey
from automap.service.schemas.budgets import NewBudget
from automap.service.schemas.descriptions import DescriptionPatch
from automap.service.schemas.measurements import Measure
from tests.service.support.samples import tiny_spec
from tests.service.support.workers import TINY, run_settings

RETRIES = 2
BUDGET: dict[str, Any] = {"of": "owner:a", "amount": 10.0}


def through(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    """A client whose requests are answered by a function, over no network."""
    client = Client("http://127.0.0.1:1", retries=RETRIES, pause_seconds=0)
    client._http = httpx.Client(transport=httpx.MockTransport(answer))
    return client


@pytest.mark.parametrize("kind", ["busy", "connect"])
def test_a_try_that_deleted_nothing_does_not_excuse_the_next(kind: str) -> None:
    sent = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if len(sent) == 1 and kind == "connect":
            raise httpx.ConnectError("nobody listens")
        name, status = ("busy", 503) if len(sent) == 1 else ("not-found", 404)
        problem = {"type": f"/problems/{name}", "title": name, "status": status, "detail": name}
        return httpx.Response(status, content=json.dumps(problem))

    with through(answer) as client, pytest.raises(ProblemError) as refused:
        client.delete_plan(uuid4())
    assert refused.value.kind == "not-found"
    assert len(sent) == 2


WRITES: dict[str, Callable[[Client], object]] = {
    "plan": lambda client: client.plan(tiny_spec()),
    "plan_document": lambda client: client.plan_document(tiny_spec()),
    "queue_plan": lambda client: client.queue_plan(tiny_spec()),
    "cancel_plan": lambda client: client.cancel_plan(uuid4()),
    "estimate": lambda client: client.estimate(
        tiny_spec(), Placement.model_construct(copies=[], calls=[])
    ),
    "compare": lambda client: client.compare(uuid4(), ["split"]),
    "pareto": lambda client: client.pareto(tiny_spec()),
    "what_if": lambda client: client.what_if(tiny_spec(), nodes=[1]),
    "explain": lambda client: client.explain(uuid4()),
    "simulate": lambda client: client.simulate(uuid4()),
    "replan": lambda client: client.replan(uuid4(), ReplanOptions(add_nodes={"a100": 1})),
    "submit": lambda client: client.submit(TINY, run_settings()),
    "measure": lambda client: client.measure(Measure(budget_seconds=1)),
    "retry_job": lambda client: client.retry_job(uuid4()),
    "cancel_job": lambda client: client.cancel_job(uuid4()),
    "describe_plan": lambda client: client.describe_plan(uuid4(), DescriptionPatch(notes="a")),
    "describe_job": lambda client: client.describe_job(uuid4(), DescriptionPatch(notes="a")),
    "set_budget": lambda client: client.set_budget(NewBudget(**BUDGET)),
    "create_key": lambda client: client.create_key(NewApiKey(owner="a")),
}
"""Methods that change something, or cost the service a search."""
DELETES = {"delete_plan", "delete_budget", "revoke_key"}
ONCE = {"plan", "plan_document", "queue_plan", "submit", "measure", "retry_job"}
"""Those that are sent again, as their key lets the service do it once."""


@pytest.mark.parametrize("name", WRITES)
def test_what_is_sent_again_has_one_key(name: str) -> None:
    sent = list[httpx.Request]()

    def lose(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        raise httpx.ReadError("the connection was lost")

    with through(lose) as client, pytest.raises(NoAnswerError):
        WRITES[name](client)
    keys = {request.headers.get("Idempotency-Key") for request in sent}
    assert len(keys) == 1
    assert (None in keys) is (name not in ONCE)
    assert len(sent) == (1 + RETRIES if name in ONCE else 1)
    assert {request.method for request in sent} <= {"POST", "PATCH"}


def test_every_method_of_the_client_is_known_to_read_or_to_write() -> None:
    """A method that is added is tried above, or sends nothing but GET."""
    sent = set[str]()

    def empty(request: httpx.Request) -> httpx.Response:
        sent.add(request.method)
        return httpx.Response(200, content=b"null")

    arguments = {"diff": (uuid4(), uuid4()), "export": (uuid4(), "verl")}
    of_one = {"get_plan", "costs", "plan_history", "get_job", "job_logs", "get_profile"}
    of_all = {"plans", "jobs", "spent", "budgets", "keys", "audit", "history", "profiles"}
    waits = {"wait_for_plan", "wait_for_job", "job_events"}  # by get_plan, get_job and a stream
    own = {"answer", "close", "delete", "events", "pages", "parsed", "request", "server", "url"}
    public = {name for name in dir(through(empty)) if not name.startswith("_")}
    reads = of_one | of_all | arguments.keys()
    assert public == reads | waits | own | WRITES.keys() | DELETES
    with through(empty) as client:
        for name in reads:
            given = arguments.get(name, (uuid4(),) if name in of_one else ())
            with suppress(OtherVersionError):
                found = getattr(client, name)(*given)
                assert name == "job_logs" or next(found)
    assert sent == {"GET"}
