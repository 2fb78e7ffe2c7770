"""Keys and passwords of the service's environment reach no process that runs others' code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from automap.service.environment import passed_on
from automap.service.planners.messages import StrategiesTask
from automap.service.planners.process import PlannerProcess
from automap.service.settings import Settings
from automap.service.worker import local_ray
from automap.service.worker.local_ray import LocalRay
from automap.service.worker.process import WorkerProcess
from automap.service.worker.ray_jobs import RayUnavailableError

SECRETS = {
    "AUTOMAP_API_KEYS": "a-key-of-the-service",
    "AUTOMAP_DATABASE_URL": "postgresql://automap:a-password@host/name",
    "PGPASSWORD": "a-password",
    "HF_TOKEN": "a-token",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # put back afterwards: a local Ray sets them for its process


def test_only_what_is_listed_or_named_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("AUTOMAP_JOB_ENVIRONMENT", "WANDB_API_KEY, PGPASSWORD")
    assert not SECRETS.keys() & passed_on().keys()
    assert {"PATH", "HOME", "PYTHONPATH", "NCCL_DEBUG"} <= passed_on().keys()
    assert SECRETS.keys() & passed_on(Settings().job_environment).keys() == {"PGPASSWORD"}


def test_a_job_in_a_local_ray_sees_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Ray is started with is what its jobs inherit: here a program that writes it down."""
    seen = tmp_path / "seen.json"
    program = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    monkeypatch.setattr(
        local_ray, "_command", lambda *_: [sys.executable, "-c", program, str(seen)]
    )
    with pytest.raises(RayUnavailableError):
        LocalRay(tmp_path / "ray", environment=["PGPASSWORD"]).ensure()
    environment = json.loads(seen.read_text())
    assert SECRETS.keys() & environment.keys() == {"PGPASSWORD"}
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "ray" / "token")


def test_a_planner_sees_no_secret() -> None:
    process = PlannerProcess()
    assert process.run(StrategiesTask(), limit_seconds=60)
    environment = Path(f"/proc/{process.pid}/environ").read_text()
    process.stop()
    assert "PATH=" in environment
    assert not any(value in environment for value in SECRETS.values())


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has /proc")
def test_the_services_own_environment_is_hidden() -> None:
    code = "import ctypes; from automap.service.environment import hide_environment as hide; "
    code += "dumpable = lambda: ctypes.CDLL(None).prctl(3); print(dumpable(), hide(), dumpable())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert printed.split() == [b"1", b"None", b"0"]


def test_the_worker_beside_an_api_gets_its_database_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "automap_database_url").write_text("sqlite:////secret.db")
    (tmp_path / "automap_api_keys").write_text("key")
    monkeypatch.setenv("AUTOMAP_SECRETS_FOLDER", str(tmp_path))
    monkeypatch.setenv("AUTOMAP_API_KEYS", "other")
    settings = Settings(database_url="sqlite:////given.db")
    assert [key.get_secret_value() for key in settings.api_keys] == ["key"]
    environment = WorkerProcess(settings)._environment()
    for name in ("AUTOMAP_SECRETS_FOLDER", "AUTOMAP_API_KEYS"):
        monkeypatch.delenv(name)
        assert name not in environment
    monkeypatch.setenv("AUTOMAP_DATABASE_URL", environment["AUTOMAP_DATABASE_URL"])
    assert Settings().database_url == "sqlite:////given.db"
