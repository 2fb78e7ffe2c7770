"""The files for containers: linted, and held against what the service itself reads and serves."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from automap.service.settings import SECRETS_FOLDER, Settings
from tests.deploy.dockerfiles import (
    FILES,
    ROOT,
    SECRETS,
    USER,
    VARIABLES,
    instructions,
    last,
)

Json = dict[str, Any]
KNOWN_TO_COMPOSE = {
    *("build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image"),
    *("ports", "read_only", "restart", "secrets", "security_opt", "shm_size"),
    *("stop_grace_period", "tmpfs", "volumes"),
}
OURS = ("api", "worker", "ray-head", "ray-node")


@pytest.fixture(scope="module")
def compose() -> Json:
    loaded: Json = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.mark.parametrize("file", FILES)
def test_hadolint_finds_nothing(file: str) -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, ROOT / file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("file", FILES)
def test_images_have_what_they_copy_and_no_root(file: str) -> None:
    stages = []
    for each in instructions(file):
        if each.name == "FROM":
            stages += each.text.split(" AS ")[1:]
        if each.name == "COPY":
            *sources, _ = each.text.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in stages
                continue
            if any(source.split("/")[0] == "page" for source in sources):
                continue  # the folder of the page has checks of its own
            for source in sources:
                assert (ROOT / source).exists(), source
    assert last(file, "USER") == f"{USER}:{USER}"
    assert f"--uid {USER}" in last(file, "RUN")


def test_the_image_is_asked_whether_it_is_well() -> None:
    assert "/readyz" in last("Dockerfile", "HEALTHCHECK")
    variables = dict(word.split("=", 1) for word in last("Dockerfile", "ENV").split())
    assert set(variables) <= VARIABLES


def test_compose_says_what_compose_knows(compose: Json) -> None:
    assert {key for key in compose if not key.startswith("x-")} == {
        *("services", "secrets", "volumes"),
    }
    for name, service in compose["services"].items():
        assert set(service) <= KNOWN_TO_COMPOSE, name
        assert "image" in service or "build" in service
        build = service.get("build")
        if build is not None:
            file = build["dockerfile"] if isinstance(build, dict) else "Dockerfile"
            assert file in FILES
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] == "service_healthy"
            assert "healthcheck" in compose["services"][other], other
        for secret in service.get("secrets", []):
            assert secret in compose["secrets"]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (ROOT / source).exists()


def test_compose_sets_what_the_service_reads_and_no_secret(compose: Json) -> None:
    for name, service in compose["services"].items():
        variables = service.get("environment", {})
        ours = {each for each in variables if each.startswith("AUTOMAP_")}
        assert ours <= VARIABLES, name
        # A secret is in a file, not in the environment that jobs and `docker inspect` can read.
        assert not {each for each in variables if "KEY" in each or each.endswith("PASSWORD")}
        if SECRETS_FOLDER in variables:
            for secret in service["secrets"]:
                assert secret in SECRETS or not secret.startswith("automap_")
    assert "automap_api_keys" in compose["services"]["api"]["secrets"]
    assert "automap_api_keys" not in compose["services"]["worker"]["secrets"]


def test_compose_gives_containers_no_more_than_they_need(compose: Json) -> None:
    for name in OURS:
        service = compose["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert any(place.startswith("/tmp") for place in service["tmpfs"])
    exposed = [name for name, service in compose["services"].items() if "ports" in service]
    assert exposed == ["api"]
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["api"]["ports"])


def test_made_up_secrets_are_what_the_service_starts_with(
    compose: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "secrets"
    script = ROOT / "deploy" / "secrets.sh"
    for _ in range(2):  # what is there stays
        subprocess.run([script, folder], check=True)
        found = {file.name: file.read_text() for file in folder.iterdir()}
    assert set(found) == set(compose["secrets"])
    assert {Path(each["file"]).name for each in compose["secrets"].values()} == set(found)
    assert all(len(text) >= 48 for text in found.values())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    monkeypatch.setenv(SECRETS_FOLDER, str(folder))
    monkeypatch.setenv("AUTOMAP_DATABASE_URL", "sqlite:////data/automap.db")
    settings = Settings()
    assert [key.get_secret_value() for key in settings.api_keys] == [found["automap_api_keys"]]
    assert settings.database_url == (
        f"postgresql+psycopg://automap:{found['postgres_password']}@database/automap"
    )
    assert Settings(database_url="sqlite:///a.db").database_url == "sqlite:///a.db"
    other = tmp_path / "other"
    subprocess.run([script, other, "postgresql://elsewhere/automap"], check=True)
    assert (other / "automap_database_url").read_text() == "postgresql://elsewhere/automap"
    assert os.access(script, os.X_OK)
