"""A Ray of our own on this machine: started when a job needs it, found again by later workers.

It outlives the worker that started it, so that a run survives the worker. It listens for nobody
without the token that lies beside its address.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from automap.executor.private_folders import make_private
from automap.service.environment import passed_on
from automap.service.worker.ray_jobs import RayUnavailableError

log = logging.getLogger(__name__)

START_SECONDS = 90.0
START_ATTEMPTS = 2
"""Ray gives up by itself when its own processes take longer than half a minute to find another."""
STOP_SECONDS = 60.0
_LOCK_FOLDER = "AUTOMAP_LOCK_FOLDER"
OBJECT_STORE_BYTES = 2**29
"""Ray's own choice, a share of the memory, can be more than the shared memory that there is."""


class _Address(BaseModel):
    """What is written down about a Ray that was started."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    pid: int
    start_ticks: int
    """When the kernel started the process: a later one may get the same number."""
    folder: Path
    """Temporary files of Ray and of what runs in it."""


class LocalRay:
    """The Ray whose address is in a folder; workers that share the folder share it."""

    def __init__(self, folder: Path, *, environment: Iterable[str] = ()) -> None:
        """`environment`: names of further variables that it and its jobs inherit."""
        self._folder = folder.absolute()
        self._environment = tuple(environment)
        self._file = self._folder / "address.json"
        self._token = self._folder / "token"

    def ensure(self) -> str:
        """The dashboard's address, after starting Ray if it does not run.

        Raises:
            RayUnavailableError: it does not start.
        """
        make_private(self._folder)
        self._folder.chmod(0o700)
        with self._locked():
            self._share_token()
            known = self._known()
            if known is not None and _is_alive(known):
                # Also when it is too busy to answer: a job may be running in it. Its main process
                # ends by itself when one of the others does.
                return known.url
            if known is not None:
                self._end(known)
            return self._start()

    def token(self) -> str:
        """What it asks for, once `ensure` has been called."""
        return self._token.read_text()

    def stop(self) -> None:
        """End it, if it runs."""
        if not self._folder.exists():
            return
        with self._locked():
            known = self._known()
            if known is not None:
                log.info("stopping the local Ray, process %d", known.pid)
                self._end(known)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _share_token(self) -> None:
        """A token for this Ray, known to it and to this process and its children."""
        if not self._token.exists():
            with os.fdopen(os.open(self._token, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
        # Ray's client reads its environment, the address as well as the token.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(self._token)
        for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN"):
            os.environ.pop(name, None)

    def _known(self) -> _Address | None:
        try:
            return _Address.model_validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            return None

    def _answers(self, url: str) -> bool:
        """Whether its dashboard answers, and knows of a node to run on."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        try:
            answer = httpx.get(f"{url}/api/v0/nodes", headers=headers, timeout=5, trust_env=False)
            nodes = answer.raise_for_status().json()["data"]["result"]["result"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return False
        return any(node["state"] == "ALIVE" for node in nodes)

    def _start(self) -> str:
        for _ in range(START_ATTEMPTS):
            url = self._started()
            if url is not None:
                return url
        raise RayUnavailableError(f"a local Ray does not start; see {self._folder / 'ray.log'}")

    def _started(self) -> str | None:
        """The dashboard's address once it answers; None: it has ended, or takes too long."""
        # Short: the paths of Ray's sockets have a bounded length.
        temporary = Path(tempfile.mkdtemp(prefix="automap-ray-"))
        ports = _free_ports(6)
        url = f"http://127.0.0.1:{ports[0]}"
        log.info("starting a local Ray; its dashboard will be at %s", url)
        with (self._folder / "ray.log").open("ab") as output:
            process = subprocess.Popen(
                _command(ports, temporary),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **passed_on(self._environment),
                    # What its processes and its jobs leave when they are killed goes with it, and
                    # no other user reads it.
                    "TMPDIR": str(temporary),
                    # Jobs measure a device in turns with who is not in this Ray.
                    _LOCK_FOLDER: os.environ.get(_LOCK_FOLDER) or tempfile.gettempdir(),
                    "RAY_DISABLE_IMPORT_WARNING": "1",
                    "PYTHONUNBUFFERED": "1",
                },
                start_new_session=True,  # neither Ctrl-C nor our end is its end
            )
        known = _Address(
            url=url, pid=process.pid, start_ticks=_start_ticks(process.pid) or 0, folder=temporary
        )
        self._file.write_text(known.model_dump_json())
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if self._answers(url):
                return url
            time.sleep(0.2)
        self._end(known)
        process.poll()
        return None

    def _end(self, known: _Address) -> None:
        """SIGTERM lets it end its own processes; those that it leaves are killed."""
        deadline = time.monotonic() + STOP_SECONDS
        if _is_alive(known):
            os.kill(known.pid, signal.SIGTERM)
        while _is_alive(known) and time.monotonic() < deadline:
            time.sleep(0.1)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(known.pid, os.WNOHANG)  # it may be our own child
        for pid in _processes_of(known):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(known.folder, ignore_errors=True)
        self._file.unlink(missing_ok=True)


def _command(ports: list[int], temporary: Path) -> list[str]:
    names = (
        "dashboard-port",
        "port",
        "ray-client-server-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "metrics-export-port",
    )
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *(f"--{name}={port}" for name, port in zip(names, ports, strict=True)),
        "--dashboard-host=127.0.0.1",
        # Nobody else on this machine, let alone beyond it, has business with it: Ray opens its own
        # folder to everyone, so that stays inside one that is not.
        "--node-ip-address=127.0.0.1",
        f"--temp-dir={temporary / 'ray'}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--disable-usage-stats",
    ]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _is_alive(known: _Address) -> bool:
    return _start_ticks(known.pid) == known.start_ticks


def _processes_of(known: _Address) -> list[int]:
    """All that were started with its folder, which no other Ray has."""
    folder = os.fsencode(known.folder)
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                if folder in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
    return found


def _start_ticks(pid: int) -> int | None:
    """When the process of this number started; None: there is none, or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
