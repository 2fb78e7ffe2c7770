"""Every command of the container files, run one by one on a machine without an engine."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfiles import ROOT, USER, last
from tests.deploy.images import CAN_BUILD, Image, executor_image, secrets


@pytest.mark.slow
@pytest.mark.skipif(not CAN_BUILD, reason="needs root on Linux, to mount and to change the root")
def test_the_api_is_built_and_answers(tmp_path: Path) -> None:
    image = Image("Dockerfile")
    image.build()
    made = secrets(tmp_path, "sqlite:////data/a.db")
    # What an engine does with a secret: a file that the user of the container can read.
    image.lines.append(f"mkdir $image/secrets && cp {made}/automap_* $image/secrets/")
    image.read_only("/data")
    key = (made / "automap_api_keys").read_text()
    ask = (
        "python -c 'import urllib.request as r; print(r.urlopen(r.Request("
        f'"http://127.0.0.1:8000/v1/plans", headers={{"Authorization": "Bearer {key}"}}'
        ")).read().decode())'"
    )
    image.serve(
        json.loads(last("Dockerfile", "CMD")),
        shlex.join(json.loads(last("Dockerfile", "HEALTHCHECK").partition("CMD ")[2])),
        wanted=[ask, "automap db check", "id -u"],
        AUTOMAP_SECRETS_FOLDER="/secrets",
    )
    out = image.run(tmp_path)
    assert '"items":[]' in out
    assert out.splitlines()[-1] == str(USER)


@pytest.mark.slow
@pytest.mark.skipif(not CAN_BUILD, reason="needs root on Linux, to mount and to change the root")
def test_the_worker_is_built_and_well(tmp_path: Path) -> None:
    image = executor_image()
    image.read_only("/work", "/home/automap")
    [check] = [command for name, command in health_checks() if name == "compose worker"]
    image.serve(
        json.loads(last("Dockerfile.executor", "CMD")),
        check,
        wanted=["id -u", "ray --version"],
        AUTOMAP_WORKER_HEALTH_FILE="/tmp/well",
        AUTOMAP_RAY_ADDRESS="http://127.0.0.1:8265",
    )
    assert str(USER) in image.run(tmp_path).splitlines()


def health_checks() -> Iterator[tuple[str, str]]:
    """Those that look at the worker's file, as a shell gets them."""
    compose: Any = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    kind, command = compose["services"]["worker"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    yield "compose worker", command.replace("$$", "$")
    worker: Any = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "worker.yaml").read_text())
    [container] = worker["spec"]["template"]["spec"]["containers"]
    *shell, command = container["livenessProbe"]["exec"]["command"]
    assert shell == ["sh", "-c"]
    yield "kubernetes worker", command


@pytest.mark.parametrize("command", [command for _, command in health_checks()])
def test_a_worker_is_well_as_long_as_it_says_so(command: str, tmp_path: Path) -> None:
    file = tmp_path / "well"
    here = command.replace("/tmp/well", str(file))
    assert here != command

    def well() -> bool:
        return subprocess.run(["sh", "-c", here], check=False, stderr=-3).returncode == 0

    assert not well()
    file.touch()
    assert well()
    os.utime(file, (time.time() - 100, time.time() - 100))
    assert not well()
