"""A whole service under test: two APIs, two workers, a database, and something to run on."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.chaos import ray_stand_in, run_stand_in
from benchmarks.chaos.databases import Postgres, Sqlite, TestedDatabase
from benchmarks.chaos.disks import Disk, disk_at
from benchmarks.chaos.processes import Kept
from tests.service.support.processes import descendants
from tests.service.support.servers import free_port

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DISK_MEBIBYTES = 768
RUNNING_JOBS = 4


@dataclass(frozen=True, slots=True)
class Options:
    database: str
    jobs: int
    plans: int
    faults: int
    seed: int
    ray: bool
    lease_seconds: float
    away_seconds: float
    only: tuple[str, ...] = ()


class Stack:
    """Started in a folder of its own, which goes when all went well."""

    def __init__(self, options: Options) -> None:
        self.options = options
        # Not below pytest's folders, which it closes to the user that PostgreSQL runs as.
        self.folder = Path(tempfile.mkdtemp(prefix="automap-chaos-"))
        self.folder.chmod(0o755)
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        self.data = self.folder / "data"
        self.data.mkdir()
        self.journal = self.folder / "journal"
        self.journal.touch()
        self.disk: Disk = disk_at(self.data, mebibytes=DISK_MEBIBYTES)
        self.ray_folder = self.data / "ray"
        self.temporary = self.data / "tmp"
        if options.ray:
            # The paths of Ray's sockets have a bounded length.
            self.temporary = Path(tempfile.mkdtemp(prefix="c"))
        self.temporary.mkdir(exist_ok=True)
        self.database: TestedDatabase = (
            Sqlite(self.data) if options.database == "sqlite" else Postgres(self.data, self.logs)
        )
        ports = [free_port() for _ in range(2)]
        self.addresses = [f"http://127.0.0.1:{port}" for port in ports]
        environment = self._environment()
        self.head = None if options.ray else self._head(environment)
        if options.ray:
            run = "-m benchmarks.chaos.journalled_run"
            environment["AUTOMAP_RUN_COMMAND"] = f"{sys.executable} {run}"
            environment["AUTOMAP_JOB_ENVIRONMENT"] = "AUTOMAP_CHAOS_JOURNAL"
        self.apis = [
            Kept(
                f"api-{number}",
                [sys.executable, "-m", "automap.service.cli.main", "serve"],
                {**environment, "AUTOMAP_PORT": str(port)},
                self.logs,
            )
            for number, port in enumerate(ports)
        ]
        self.workers = [
            Kept(
                f"worker-{number}",
                [sys.executable, "-m", "automap.service.cli.main", "worker"],
                environment,
                self.logs,
            )
            for number in range(2)
        ]

    @property
    def kept(self) -> list[Kept]:
        return [*([self.head] if self.head else []), *self.apis, *self.workers]

    def keep(self) -> None:
        """Start again whatever has ended."""
        self.database.keep()
        for each in self.kept:
            each.keep()

    def answers(self) -> bool:
        """Whether both APIs are ready and the head, if it is a stand-in, answers."""
        ready = [f"{address}/readyz" for address in self.addresses]
        if self.head is not None:
            ready.append(f"{self.head_address}/api/version")
        try:
            found = [httpx.get(url, timeout=2, trust_env=False).status_code for url in ready]
        except httpx.HTTPError:
            return False
        return found == [200] * len(ready)

    def entries(self) -> list[dict[str, Any]]:
        """What the runs have written into their journal."""
        lines = self.journal.read_bytes().splitlines()
        return [json.loads(line) for line in lines]

    def planners(self) -> list[int]:
        """The fork servers of all APIs, and their planners."""
        return [child for api in self.apis for child in descendants(api.pid)]

    def ray_processes(self, name: bytes) -> Iterator[int]:
        """Of a real Ray of ours, by what its command says."""
        for process in descendants(os.getpid()):
            try:
                command = Path(f"/proc/{process}/cmdline").read_bytes()
            except OSError:
                continue
            if name in command:
                yield process

    def close(self, *, keep_logs: bool) -> None:
        """Give the disk back, and remove the folder, but for logs that somebody wants to read."""
        self.disk.close()
        shutil.rmtree(self.temporary, ignore_errors=True)
        shutil.rmtree(self.data if keep_logs else self.folder)

    def _head(self, environment: dict[str, str]) -> Kept:
        port = free_port()
        command = [sys.executable, ray_stand_in.__file__, "--port", str(port)]
        self.head_address = environment["AUTOMAP_RAY_ADDRESS"] = f"http://127.0.0.1:{port}"
        environment["AUTOMAP_RUN_COMMAND"] = (
            f"{sys.executable} {run_stand_in.__file__} --until-stdin-closes"
        )
        folder = str(self.folder / "ray")
        return Kept("ray-stand-in", [*command, "--folder", folder], environment, self.logs)

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AUTOMAP_", "RAY_"))
        }
        return {
            **inherited,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.temporary),
            "AUTOMAP_CHAOS_JOURNAL": str(self.journal),
            "AUTOMAP_DATABASE_URL": self.database.url,
            "AUTOMAP_LEASE_SECONDS": str(self.options.lease_seconds),
            "AUTOMAP_POLL_SECONDS": "0.2",
            # Runs write to a folder of the cluster; a run whose own disk is full may well fail.
            "AUTOMAP_RUNS_FOLDER": str(self.folder / "runs"),
            "AUTOMAP_PROFILES_FOLDER": str(self.data / "profiles"),
            "AUTOMAP_RAY_FOLDER": str(self.ray_folder),
            "AUTOMAP_RUNNING_JOBS": str(1 if self.options.ray else RUNNING_JOBS),
            "AUTOMAP_STOP_SECONDS": "2",
            # Nothing gives up here: what is counted is what gets lost.
            "AUTOMAP_MAX_ATTEMPTS": "100",
        }
