"""Real server processes for tests, each on a free port."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from automap.service.schemas.plans import PlanRecord

ASYNC = {"Prefer": "respond-async"}
LEASE_SECONDS = 2.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """A server process and its address."""

    def __init__(
        self,
        url: str,
        *,
        port: int | None = None,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        port = port or free_port()
        variables = {
            **os.environ,
            **(environment or {}),
            "AUTOMAP_DATABASE_URL": url,
            "AUTOMAP_PORT": str(port),
            "AUTOMAP_LEASE_SECONDS": str(LEASE_SECONDS),
            "AUTOMAP_POLL_SECONDS": "0.2",
            **{f"AUTOMAP_{name.upper()}": str(value) for name, value in settings.items()},
        }
        command = [sys.executable, "-m", "automap.service.cli.main", "serve"]
        with ExitStack() as stack:
            to = None if log is None else stack.enter_context(log.open("w"))
            self.process = subprocess.Popen(command, env=variables, stderr=to)
        self.address = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.address, timeout=60)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the server ended"
            try:
                if self.client.get("/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError("the server did not become ready")

    def plan(self, plan_id: str) -> PlanRecord:
        return PlanRecord.model_validate_json(self.client.get(f"/v1/plans/{plan_id}").content)

    def post(self, spec: object) -> str:
        response = self.client.post("/v1/plans", json=spec, headers=ASYNC)
        assert response.status_code == 202, response.text
        return str(response.json()["id"])


@contextmanager
def serving_alone() -> Iterator[Server]:
    """A server with an empty database of its own, and its log beside that."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with serving(f"sqlite:///{folder}/automap.db", log=log) as server:
            yield server


@contextmanager
def serving(url: str, **options: Any) -> Iterator[Server]:
    server = Server(url, **options)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.client.close()
        server.process.kill()
        server.process.wait()
