"""Large bodies are read by a process of their own, and answered as others are."""

import json
import threading
from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient

from automap.service.api import bodies, profile_bodies
from automap.service.api.bodies import MAX_BODY_VALUES
from automap.service.schemas.documents import MAX_DEPTH
from automap.service.schemas.profiles import MAX_FINGERPRINT_BYTES
from tests.service.support.profiles import profile, stored
from tests.service.support.requests import problem
from tests.service.support.samples import Json
from tests.service.support.servers import Server, serving

# What comes before the database; the other one is for make test-all.
pytestmark = pytest.mark.slow_on("postgresql")

JSON = {"Content-Type": "application/json"}


def large_profile(shapes: int) -> Json:
    """That many different shapes of one table."""
    large = profile()
    first = large["measurements"][0]
    large["measurements"] = [
        {**first, "key": {**first["key"], "m": number + 1}} for number in range(shapes)
    ]
    return large


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every profile is large, and reading one in this process fails."""
    monkeypatch.setattr(profile_bodies, "_SMALL_BYTES", -1)

    def unread(*given: object, **more: object) -> None:
        raise AssertionError("read in the process of the service")

    monkeypatch.setattr(profile_bodies, "_read", unread)


WRONG = [
    ('{"fingerprint": {},\n "measurements": [', 400, "invalid-document"),
    ("[" * (MAX_DEPTH + 1), 400, "invalid-document"),
    ("", 400, "invalid-document"),
    ("[]", 422, "invalid-spec"),
    ('{"fingerprint": {}, "measurements": [{}, {}]}', 422, "invalid-spec"),
    ('{"fingerprint": {"identity": {"device_type": "cpu"}}, "more": 1}', 422, "invalid-spec"),
]


@pytest.mark.parametrize(("text", "status", "kind"), WRONG)
def test_what_is_wrong_is_told_as_of_a_small_body(
    client: TestClient, request: pytest.FixtureRequest, text: str, status: int, kind: str
) -> None:
    small = problem(client.post("/v1/profiles", content=text, headers=JSON), status, kind)
    request.getfixturevalue("apart")
    large = problem(client.post("/v1/profiles", content=text, headers=JSON), status, kind)
    assert large == small


def test_a_profile_is_the_same_however_it_was_read(
    client: TestClient, request: pytest.FixtureRequest
) -> None:
    version = stored(client, profile())
    small = client.get(f"/v1/profiles/{version}").json()
    client.delete(f"/v1/profiles/{version}")
    request.getfixturevalue("apart")
    assert stored(client, profile()) == version
    large = client.get(f"/v1/profiles/{version}").json()
    assert {**large, "created_at": small["created_at"]} == small
    yaml = {"Content-Type": "application/yaml"}
    again = client.post("/v1/profiles", content=json.dumps(profile()), headers=yaml)
    assert (again.status_code, again.json()["version"]) == (200, version)


@pytest.mark.usefixtures("apart")
def test_what_is_asked_of_the_cluster_is_no_large_body(client: TestClient) -> None:
    problem(client.post("/v1/profiles", json={"measure": {}}), 413, "body-too-large")


@pytest.mark.usefixtures("apart")
def test_a_reader_that_is_lost_is_our_fault(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_bodies, "__name__", "automap.service.api.no_such_module")
    problem(client.post("/v1/profiles", json=profile()), 500, "internal-error")


def test_bodies_that_are_large_go_to_the_reader(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    apart = profile_bodies._read_apart

    def noted(raw: bodies.RawBody, most: int, small: int) -> object:
        asked.append(len(raw.text))
        return apart(raw, most, small)

    monkeypatch.setattr(profile_bodies, "_read_apart", noted)
    stored(client, profile())
    assert asked == []
    version = stored(client, large_profile(2500))
    assert len(asked) == 1
    assert client.get(f"/v1/profiles/{version}").json()["shapes"] == {"gemm": 2500}


def test_a_fingerprint_is_small(client: TestClient) -> None:
    large = profile()
    large["fingerprint"]["more"] = "x" * MAX_FINGERPRINT_BYTES
    found = problem(client.post("/v1/profiles", json=large), 422, "invalid-spec")
    assert "at most" in found["errors"][0]["message"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/plans", '{{"models": [{}{{}}]}}'),
        ("/v1/estimates", '{{"spec": {{}}, "placement": {{"copies": [{}{{}}]}}}}'),
        ("/v1/jobs", '{{"settings": {{}}, "spec": [{}{{}}]}}'),
    ],
)
def test_other_bodies_have_few_values(client: TestClient, path: str, text: str) -> None:
    """A megabyte of objects, each wrong in seven ways, took half a minute and three gigabytes."""
    many = text.format("{}," * MAX_BODY_VALUES)
    found = problem(client.post(path, content=many, headers=JSON), 400, "invalid-document")
    assert f"more than {MAX_BODY_VALUES} values" in found["detail"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('large')}/automap.db") as server:
        yield server


@pytest.mark.slow
def test_reads_are_answered_while_a_large_body_is_read(server: Server) -> None:
    """By counts: where the body held the interpreter, ten reads took as long as the body did."""
    text = '{"fingerprint": {}, "measurements": [' + "{}," * 450_000 + "{}]}"
    answers: list[int] = []

    def post() -> None:
        with httpx.Client(base_url=server.address) as client:
            response = client.post("/v1/profiles", content=text, headers=JSON, timeout=300)
            answers.append(response.status_code)

    posting = threading.Thread(target=post)
    posting.start()
    reads = 0
    while posting.is_alive():
        for path in ("/healthz", "/v1/plans"):
            assert server.client.get(path).status_code == 200
        reads += not answers
    posting.join()
    assert answers == [422]
    assert reads >= 30
