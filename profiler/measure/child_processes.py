"""Measuring processes beside this one: started, listened to, ended whatever happens.

Not torchrun or multiprocessing: a kernel that crashes, or an engine that never ends, must cost one
table and not the profile, and results are wanted line by line while the others still measure.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any
from uuid import uuid4

from automap.planner.profiles import Key
from automap.profiler.errors import ProfileError
from automap.profiler.results.journal import Entry
from automap.profiler.results.measurement import Measurement

START_SECONDS = 120.0
"""More than processes take to import their libraries and meet, on a busy machine too."""
END_SECONDS = 30.0
LAST_LINES = 10
"""Lines of the processes' stderr that an error quotes, the last ones."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the processes of a world meet, and which of them are this machine's."""

    address: str
    port: int
    """Where torch's store listens, without credentials, if they are on several machines."""
    first_rank: int
    world_size: int
    file: str = ""
    """The store of processes of this machine alone; only its user may open it."""


def reported_by(
    module: str,
    task: Mapping[str, Any],
    *,
    ranks: int,
    deadline: float,
    meeting: Meeting | None = None,
) -> Iterator[dict[str, Any]]:
    """JSON lines of the first of `ranks` processes that run a module.

    Each gets the task as a line of JSON and `deadline` (of time.monotonic) with it. They should be
    done by then, and are ended if they take much longer. `meeting`: with those of other machines.

    Raises:
        ProfileError: a process failed or was killed.
    """
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as private:
        meeting = meeting or Meeting("127.0.0.1", free_port(), 0, ranks, f"{private}/store")
        where = {"ranks": meeting.world_size, "store": meeting.file, "world": uuid4().hex}
        order = {**task, **where, "deadline": deadline}
        with _started(module, order, ranks, meeting, errors) as processes:
            reported = processes[0].stdout
            assert reported is not None
            for line in reported:
                try:
                    document = json.loads(line)
                except ValueError:  # half a line: the process was killed, as its exit code says
                    break
                yield document
            _wait(module, processes, errors)


def measured_apart(
    module: str, table: str, wanted: Sequence[Key], *, device: str, deadline: float
) -> Iterator[Entry]:
    """Each key's entry of a table as soon as a process that runs the module has measured it.

    Raises:
        ProfileError: the process failed or was killed.
    """
    if not wanted:
        return
    task = {"keys": [dict(key) for key in wanted], "device": device}
    for reported in reported_by(module, task, ranks=1, deadline=deadline):
        failed = reported.get("failed", "")
        measurement = None if failed else Measurement(**reported["measurement"])
        yield Entry(table, reported["key"], measurement, failed)


@contextmanager
def _started(
    module: str, task: dict[str, Any], ranks: int, meeting: Meeting, errors: IO[str]
) -> Iterator[list["subprocess.Popen[str]"]]:
    environment = {
        **os.environ,
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "WORLD_SIZE": str(meeting.world_size),
        "OMP_NUM_THREADS": "1",
    }
    processes: list[subprocess.Popen[str]] = []
    limit = threading.Timer(
        max(task["deadline"] - time.monotonic(), 0.0) + START_SECONDS, _kill, [processes]
    )
    limit.daemon = True
    try:
        for local in range(ranks):
            rank = meeting.first_rank + local
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(local)},
                # Open as long as we live: a process whose input closes ends itself.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if local == 0 else subprocess.DEVNULL,
                stderr=errors,
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


def _wait(module: str, processes: Sequence["subprocess.Popen[str]"], errors: IO[str]) -> None:
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
                f"{module}: process {rank} of {len(processes)} {how}; what was measured is kept",
                errors.read().splitlines()[-LAST_LINES:],
            )


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port
