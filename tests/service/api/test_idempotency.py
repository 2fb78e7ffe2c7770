import threading
from typing import Any
from uuid import uuid4

import pytest
import yaml
from fastapi.testclient import TestClient
from pydantic import SecretStr

from automap.service.api.refusals import refusal_of
from automap.service.app import create_app
from automap.service.errors.domain import RequestInProgressError
from automap.service.storage import idempotency
from automap.service.storage.database import Database
from automap.service.storage.idempotency import Answer
from tests.service.support.databases import settings_for, url_of
from tests.service.support.requests import YAML, created, finished, problem, stored_plans
from tests.service.support.samples import infeasible_spec, small_spec
from tests.service.support.servers import ASYNC

KEY = {"Idempotency-Key": "order-66"}


@pytest.mark.slow_on("sqlite")
def test_the_same_request_gives_the_same_plan(live: TestClient) -> None:
    first = live.post("/v1/plans", json=small_spec(), headers=KEY)
    again = live.post("/v1/plans", json=small_spec(), headers=KEY)
    assert created(again) == created(first)
    assert len(stored_plans(live)) == 1


@pytest.mark.slow_on("sqlite")
def test_another_body_is_refused(live: TestClient) -> None:
    created(live.post("/v1/plans", json=small_spec(), headers=KEY))
    response = live.post("/v1/plans", json=small_spec(name="other"), headers=KEY)
    problem(response, 422, "idempotency-key-reused")
    assert len(stored_plans(live)) == 1


@pytest.mark.slow_on("sqlite")
def test_the_same_data_in_yaml_are_the_same_request(live: TestClient) -> None:
    first = created(live.post("/v1/plans", json=small_spec(), headers=KEY))
    text = yaml.dump(small_spec(), sort_keys=False)
    assert created(live.post("/v1/plans", content=text, headers={**KEY, **YAML})).id == first.id


@pytest.mark.slow_on("sqlite")
def test_every_api_key_has_its_own(database: Database) -> None:
    keys = (SecretStr("first-key"), SecretStr("second-key"))
    app = create_app(settings_for(url_of(database), api_keys=keys))
    client = TestClient(app, raise_server_exceptions=False)

    def posted(key: str, name: str) -> Any:
        headers = {**KEY, **ASYNC, "Authorization": f"Bearer {key}"}
        return client.post("/v1/plans", json=small_spec(name=name), headers=headers)

    first = created(posted("first-key", "one"), 202)
    second = created(posted("second-key", "other"), 202)
    assert second.id != first.id
    assert created(posted("first-key", "one"), 202).id == first.id
    assert created(posted("second-key", "other"), 202).id == second.id
    problem(posted("second-key", "one"), 422, "idempotency-key-reused")
    app.state.service.database.dispose()


@pytest.mark.slow_on("sqlite")
def test_a_queued_plan_is_queued_once(live: TestClient) -> None:
    headers = {**KEY, **ASYNC}
    first = created(live.post("/v1/plans", json=small_spec(), headers=headers), 202)
    again = live.post("/v1/plans", json=small_spec(), headers=headers)
    assert again.json()["id"] == str(first.id)
    record = finished(live, f"/v1/plans/{first.id}")
    assert created(live.post("/v1/plans", json=small_spec(), headers=headers)) == record
    assert len(stored_plans(live)) == 1


@pytest.mark.slow_on("sqlite")
def test_a_failed_request_frees_its_key(live: TestClient) -> None:
    problem(live.post("/v1/plans", json=infeasible_spec(), headers=KEY), 422, "infeasible")
    created(live.post("/v1/plans", json=small_spec(), headers=KEY))


@pytest.mark.slow_on("sqlite")
def test_a_deleted_plan_frees_its_key(live: TestClient) -> None:
    first = created(live.post("/v1/plans", json=small_spec(), headers=KEY))
    assert live.delete(f"/v1/plans/{first.id}").status_code == 204
    assert created(live.post("/v1/plans", json=small_spec(), headers=KEY)).id != first.id


@pytest.mark.slow_on("sqlite")
def test_requests_at_the_same_time_make_one_plan(live: TestClient) -> None:
    responses: list[Any] = []
    barrier = threading.Barrier(4)

    def post() -> None:
        barrier.wait()
        responses.append(live.post("/v1/plans", json=small_spec(), headers=KEY))

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stored_plans(live)) == 1
    made = {response.json()["id"] for response in responses if response.status_code == 201}
    assert len(made) == 1
    for response in responses:
        if response.status_code != 201:
            problem(response, 409, "request-in-progress")
            assert response.headers["retry-after"] == "1"


def take(database: Database, lease_seconds: float = 60) -> Answer:
    return idempotency.take(database, "k", "f", lease_seconds=lease_seconds)


def test_a_key_held_by_a_dead_server_can_be_taken(database: Database) -> None:
    lost = take(database, lease_seconds=-1)
    current = take(database)
    assert current.token != lost.token
    lost.give_up()  # too late: changes nothing
    with pytest.raises(RequestInProgressError) as caught:
        take(database)
    assert refusal_of(caught.value).type == "/problems/request-in-progress"
    with pytest.raises(RequestInProgressError), database.transaction() as session:
        lost.complete(session, job_id=uuid4())


def test_data_have_one_fingerprint_whatever_their_order() -> None:
    def fingerprint(data: object, of: str = "") -> str:
        return idempotency.fingerprint(data, of=of)

    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({"a": 1}) != fingerprint({"a": 1}, of="job")
