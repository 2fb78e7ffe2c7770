"""docker-compose.yml: started as a whole, with every command and health check that it names."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from automap.service.runs.checked_settings import RunSettings
from automap.service.settings import Settings
from automap.service.use_cases.folders import allowed_folders, folder_errors
from tests.deploy.compose import COMPOSE, SERVICES, Stack, command_of, health_check_of, in_order
from tests.deploy.dockerfiles import ROOT, USER
from tests.deploy.images import CAN_BUILD, executor_image, secrets
from tests.service.api.test_keys import made
from tests.service.support.databases import migrated
from tests.service.support.workers import run_settings

SERVER = "http://127.0.0.1:8000"
ITERATIONS = 2


def test_services_start_after_those_that_they_need() -> None:
    order = in_order()
    assert set(order) == set(SERVICES)
    for name, service in SERVICES.items():
        assert all(
            order.index(other) < order.index(name) for other in service.get("depends_on", {})
        )
    assert "--num-cpus=2" in command_of("ray-node")
    assert "$(date +%s)" in health_check_of("worker")
    assert "/readyz" in health_check_of("api")


@pytest.mark.parametrize("name", ["api", "worker"])
def test_jobs_may_open_the_examples_also_where_the_database_has_keys(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.delenv("AUTOMAP_SECRETS_FOLDER")
    database = migrated(f"sqlite:///{tmp_path}/keys.db")
    made(database)
    folders = allowed_folders(database, Settings())
    database.dispose()
    rows = {"data": {"path": "/examples/data/count-token.jsonl"}}
    for paths in (rows, rows | {"models": {"actor": "/runs/earlier/actor"}}):
        assert folder_errors(RunSettings.model_validate(run_settings(**paths)), folders) == []
    of_a_run = run_settings(functions={"reward": {"path": "/runs/job/reward.py:score"}}, **rows)
    assert folder_errors(RunSettings.model_validate(of_a_run), folders) != []


def _compose() -> bool:
    """Whether there is an engine's own reader of the file."""
    asked = ["docker", "compose", "version"]
    return shutil.which("docker") is not None and (
        subprocess.run(asked, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not _compose(), reason="docker compose is not installed")
def test_compose_itself_reads_the_file(tmp_path: Path) -> None:
    command = ["docker", "compose", "--project-directory", str(ROOT), "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(json.loads(done.stdout)["services"]) == set(COMPOSE["services"])


@pytest.mark.slow
@pytest.mark.many_processes
@pytest.mark.skipif(not CAN_BUILD, reason="needs root on Linux, to mount and to change the root")
def test_all_services_start_and_a_job_goes_through_them(tmp_path: Path) -> None:
    made = secrets(tmp_path)
    key = (made / "automap_api_keys").read_text()
    image = executor_image()
    spec = yaml.safe_load((ROOT / "examples" / "tiny-remax-cpu.yaml").read_text())
    spec["workload"]["iterations"] = ITERATIONS
    submitted = image.alone(
        f"echo {shlex.quote(json.dumps(spec))} > /tmp/job.json && "
        "automap submit /tmp/job.json --settings /examples/tiny-remax-cpu.run.yaml "
        f"--server {SERVER} --follow --json",
        {"AUTOMAP_API_KEY": key},
        user=USER,
    )
    Stack(image, made, wanted=f"{submitted}")
    out = image.run(tmp_path)
    job = json.loads(out[out.index("{") :])
    assert (job["status"], job["iteration"]) == ("succeeded", ITERATIONS)
    assert job["output"].startswith("/runs/")
