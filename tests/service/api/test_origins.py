"""What browsers can be made to send: posts of other sites, and names that stand for us."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr, ValidationError

from automap.service.app import create_app
from automap.service.settings import Settings
from tests.service.support.databases import migrated
from tests.service.support.requests import problem

KEY = SecretStr("a-key")


def service(folder: Path, **settings: object) -> TestClient:
    url = f"sqlite:///{folder}/automap.db"
    migrated(url).dispose()
    app = create_app(Settings(database_url=url, **settings))  # type: ignore[arg-type]
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:8000", "localhost.example", "", "[::1", "127.1.x"]
)
def test_a_name_that_stands_for_this_machine_is_refused(tmp_path: Path, host: str) -> None:
    client = service(tmp_path)
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/jobs"), ("GET", "/openapi.json")):
        problem(client.request(method, path, headers={"Host": host}), 403, "unknown-host")


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1:8000", "[::1]:8000"])
def test_this_machine_is_known(tmp_path: Path, host: str) -> None:
    assert service(tmp_path).get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "https://127.0.0.1", "", "["]
)
def test_a_page_of_another_site_sends_nothing(tmp_path: Path, origin: str) -> None:
    client = service(tmp_path)
    headers = {"Host": "localhost:8000", "Origin": origin, "Content-Type": "application/json"}
    problem(client.post("/v1/jobs", headers=headers, content="{}"), 403, "cross-site")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("http://localhost", "localhost:80"),
        ("http://localhost:80", "localhost"),
        ("https://localhost", "LOCALHOST:443"),
        ("https://[::1]:443", "[::1]"),
    ],
)
def test_our_own_pages_send(tmp_path: Path, origin: str, host: str) -> None:
    """A scheme's own port may be written or left out, by the page's browser and by a proxy."""
    headers = {"Host": host, "Origin": origin}
    assert service(tmp_path).get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:443", "localhost"),
        ("https://localhost:80", "localhost"),
        ("http://localhost:8000", "localhost"),
        ("http://localhost:99999", "localhost"),
    ],
)
def test_another_port_is_another_site(tmp_path: Path, origin: str, host: str) -> None:
    headers = {"Host": host, "Origin": origin}
    problem(service(tmp_path).get("/v1/models", headers=headers), 403, "cross-site")


@pytest.mark.parametrize("name", ["2001:db8::7", "[2001:DB8:0::7]"])
def test_an_address_is_a_name_too(tmp_path: Path, name: str) -> None:
    client = service(tmp_path, allowed_hosts=name)
    headers = {"Host": "10.0.0.7", "Origin": "https://[2001:db8::7]:8443"}
    assert client.get("/v1/models", headers=headers).status_code == 200


def test_names_that_an_operator_gives_are_known(tmp_path: Path) -> None:
    client = service(tmp_path, allowed_hosts="plans.example, Other.example")
    for host in ("plans.example", "other.example:8000", "localhost"):
        assert client.get("/v1/models", headers={"Host": host}).status_code == 200
    problem(client.get("/v1/models", headers={"Host": "x.example"}), 403, "unknown-host")
    headers = {"Host": "10.0.0.7:8000", "Origin": "https://plans.example"}  # a proxy that rewrites
    assert client.get("/v1/models", headers=headers).status_code == 200


def test_with_keys_a_proxy_may_use_any_name(tmp_path: Path) -> None:
    headers = {"Host": "plans.example", "Authorization": "Bearer a-key"}
    client = service(tmp_path, host="0.0.0.0", api_keys=(KEY,))
    assert client.get("/v1/models", headers=headers).status_code == 200
    without = service(tmp_path, host="0.0.0.0", allow_without_keys=True)
    problem(without.get("/v1/models", headers=headers), 403, "unknown-host")


@pytest.mark.parametrize("name", ["plans.example:8443", "https://plans.example", "[::1]:80", "*.x"])
def test_what_can_never_be_a_name_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match="leave out scheme, port and wildcards"):
        service(tmp_path, allowed_hosts=name)
