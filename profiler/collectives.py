"""Collectives among processes of this machine: starts them and passes on what the first tells."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from profiler.devices import Device
from profiler.errors import ProfileError
from profiler.journal import Entry
from profiler.tables import Key
from profiler.timing import Measurement

TABLE = "collectives"
START_SECONDS = 120.0
"""More than processes take to import PyTorch and meet, on a busy machine too."""
END_SECONDS = 30.0


def measure_collectives(
    device: Device, keys: Sequence[Key], *, ranks: int, deadline: float
) -> Iterator[Entry]:
    """Each key's entry as soon as it is measured, until all are or the deadline is over.

    `deadline` is of time.monotonic.

    Raises:
        ProfileError: a process failed or was killed.
    """
    if not keys or ranks < 2:
        return
    task = {
        "keys": [dict(key) for key in keys],
        "device": device.kind,
        "ranks": ranks,
        "deadline": deadline,
        "memory_bytes": device.memory_bytes // (ranks if device.kind == "cpu" else 1),
    }
    with tempfile.TemporaryFile("w+") as errors, _started(task, ranks, errors) as processes:
        told = processes[0].stdout
        assert told is not None
        for line in told:
            document = json.loads(line)
            failed = document.get("failed", "")
            measurement = None if failed else Measurement(**document["measurement"])
            yield Entry(TABLE, keys[document["number"]], measurement, failed)
        _wait(processes, errors)


@contextmanager
def _started(
    task: dict[str, Any], ranks: int, errors: IO[str]
) -> Iterator[list["subprocess.Popen[str]"]]:
    """The processes, which end with this block; or before it, should one leave the others alone."""
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    processes: list[subprocess.Popen[str]] = []
    limit = threading.Timer(
        max(task["deadline"] - time.monotonic(), 0.0) + START_SECONDS, _kill, [processes]
    )
    limit.daemon = True
    try:
        for rank in range(ranks):
            process = subprocess.Popen(
                [sys.executable, "-m", "profiler.ranks"],
                env={**environment, "RANK": str(rank)},
                # Open as long as we live: a rank whose input closes ends itself.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=errors if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            processes.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        limit.start()
        yield processes
    finally:
        limit.cancel()
        _kill(processes)
        for process in processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def _kill(processes: Sequence["subprocess.Popen[str]"]) -> None:
    for process in processes:
        process.kill()


def _wait(processes: Sequence["subprocess.Popen[str]"], errors: IO[str]) -> None:
    end = time.monotonic() + END_SECONDS
    for rank, process in enumerate(processes):
        try:
            code = process.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            errors.seek(0)
            how = "did not end" if code is None else f"ended with code {code}"
            raise ProfileError(
                f"collectives: process {rank} of {len(processes)} {how}",
                errors.read().splitlines()[-5:],
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
