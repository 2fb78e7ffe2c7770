"""A service that anybody on the network could have run code is not started by mistake."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from automap import migrations
from automap.service import server
from automap.service.cli import serving
from automap.service.cli.options.runs import ServeArguments, WorkerArguments
from automap.service.schemas.access import NewApiKey
from automap.service.server import OpenServiceError
from automap.service.settings import Settings
from automap.service.storage import api_keys
from automap.service.storage.database import Database, utc_now
from tests.service.support.databases import Databases

ROOT = Path(__file__).parents[2]


class StartedError(Exception):
    """It got as far as to migrate the database."""


@pytest.fixture(autouse=True)
def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(settings: Settings) -> None:
        raise StartedError

    monkeypatch.setattr(server, "bound_sockets", lambda host, port: [])
    monkeypatch.setattr(server, "migrate", start)
    monkeypatch.setattr(server, "hide_environment", lambda: None)  # this process is not to hide


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "a-machine"])
def test_beyond_loopback_it_needs_keys(host: str) -> None:
    with pytest.raises(OpenServiceError, match="AUTOMAP_API_KEYS"):
        server.serve(Settings(host=host))
    for allowed in ({"api_keys": (SecretStr("a-key"),)}, {"allow_without_keys": True}):
        with pytest.raises(StartedError):
            server.serve(Settings(host=host, **allowed))  # type: ignore[arg-type]


def test_beyond_loopback_a_stored_key_must_open(databases: Databases) -> None:
    url = databases.create("open_service")
    settings = Settings(host="0.0.0.0", database_url=url)
    database = Database(settings.database_url)
    with pytest.raises(OpenServiceError, match="automap keys create"):
        server.serve(settings)  # no tables yet
    migrations.upgrade(database.engine)
    with pytest.raises(OpenServiceError, match="anybody"):
        server.serve(settings)
    for ended in ({"expires_at": utc_now() - timedelta(days=1)}, {}):
        with database.transaction() as session:
            made = api_keys.create(session, NewApiKey(owner="ada", **ended))
            if not ended:
                api_keys.revoke(session, made.id)
        with pytest.raises(OpenServiceError, match="all keys are revoked or expired"):
            server.serve(settings)
    with database.transaction() as session:
        api_keys.create(session, NewApiKey(owner="ada"))
    with pytest.raises(StartedError):
        server.serve(settings)
    database.dispose()


def test_a_refusal_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(OpenServiceError):
        server.serve(Settings(host="0.0.0.0", database_url=f"sqlite:///{tmp_path}/new/a.db"))
    assert list(tmp_path.iterdir()) == []


def test_the_environment_is_hidden_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(server, "hide_environment", lambda: done.append("hidden"))
    monkeypatch.setattr(server.logs, "set_up", lambda *_: done.append("began"))
    with pytest.raises(StartedError):
        server.serve(Settings())
    assert done == ["hidden", "began"]
    for command, given in (
        (serving.run_server, ServeArguments),
        (serving.run_worker, WorkerArguments),
    ):
        done.clear()
        monkeypatch.setattr(serving, "hide_environment", lambda: done.append("hidden"))
        monkeypatch.setattr(serving, "settings_from", lambda **_: done.append("began") or exit(9))
        with pytest.raises(SystemExit):
            command(given())  # type: ignore[operator]
        assert done == ["hidden", "began"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.1.1"])
def test_on_loopback_it_needs_none(host: str) -> None:
    with pytest.raises(StartedError):
        server.serve(Settings(host=host))


@pytest.mark.parametrize("keys", [" , ", ",", " "])
def test_keys_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    monkeypatch.setenv("AUTOMAP_API_KEYS", keys)
    with pytest.raises(ValueError, match="names no key"):
        Settings()
    monkeypatch.setenv("AUTOMAP_API_KEYS", "")
    assert Settings().api_keys == ()


def test_the_command_says_what_to_do() -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "automap.service.cli.main",
            "serve",
            "--host",
            "0.0.0.0",
            "--port",
            "0",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "AUTOMAP_ALLOW_WITHOUT_KEYS=1" in " ".join(ended.stderr.split())


def test_compose_does_not_start_without_keys() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    api = compose["services"]["api"]
    # A secret that is a file must be there, or nothing is started.
    assert "automap_api_keys" in api["secrets"]
    assert compose["secrets"]["automap_api_keys"] == {"file": "deploy/secrets/automap_api_keys"}
    assert "AUTOMAP_ALLOW_WITHOUT_KEYS" not in api["environment"]
