"""Real services, each with its worker and on a free port."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from automap.service.schemas.jobs import JobRecord
from tests.service.support.processes import children
from tests.service.support.samples import Json
from tests.service.support.servers import free_port
from tests.service.support.workers import eventually


class Service:
    """The command with its worker, on a port of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "automap.service.cli.main", "serve", "--with-worker"],
            env={**environment, "AUTOMAP_PORT": str(port)},
        )
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}/v1", timeout=60, trust_env=False
        )
        eventually(self._is_ready)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None
        try:
            return self.client.get("/../readyz").status_code == 200
        except httpx.TransportError:
            return False

    def worker(self) -> int:
        """The process of its worker."""

        def found() -> list[int]:
            commands = {
                pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(self.process.pid)
            }
            return [pid for pid, command in commands.items() if b"worker" in command]

        (worker,) = eventually(found)
        return int(worker)

    def job(self, job_id: str) -> JobRecord:
        return JobRecord.model_validate_json(self.client.get(f"/jobs/{job_id}").content)

    def events(self, job_id: str, after: int) -> Iterator[tuple[int, Json]]:
        headers = {"Last-Event-ID": str(after)}
        with self.client.stream("GET", f"/jobs/{job_id}/events", headers=headers) as response:
            assert response.status_code == 200
            number = 0
            for line in response.iter_lines():
                if line.startswith("id: "):
                    number = int(line[4:])
                if line.startswith("data: "):
                    yield number, json.loads(line[6:])

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=60)
