"""What is done on a node of a Ray cluster: these run there, as Ray tasks that hold its devices."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from automap.profiler.machine import fingerprint
from automap.profiler.machine.devices import choose_device
from automap.profiler.measure.child_processes import Meeting, free_port, reported_by
from automap.profiler.results.journal import FILE as MEASUREMENTS
from automap.profiler.settings import DeviceKind

JOURNAL_SECONDS = 5.0
"""At most so much of what was measured is lost with a node."""
KEPT = ("*.parquet", "measurements.jsonl", fingerprint.FILE)


def look(kind: DeviceKind) -> dict[str, Any]:
    """What this node is: the identity of its devices, how many, its memory.

    Raises:
        ProfileError: it has no such device, or the catalogue does not know it.
    """
    device = choose_device(kind)
    return {
        "identity": fingerprint.identity(device),
        "count": device.count,
        "host_memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def measure(settings: str, before: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """What `profiler.run` reports while it measures this node, and then the files of the profile.

    Now and then the lines that it has measured, so that they outlive the node. `before` is what
    another node of the kind had measured when it was lost: this one goes on from there.
    """
    output = Path(json.loads(settings)["output"])
    _put(output, before)
    journal = _JournalReader(output)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        file = Path(folder) / "settings.json"
        file.write_text(settings, encoding="utf-8")
        with subprocess.Popen(
            [
                sys.executable,
                "-m",
                "automap.profiler.run",
                "--settings",
                str(file),
                "--until-stdin-closes",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
                yield from journal.news()
            process.wait()  # before its input is closed, which would end it
        if process.returncode not in (0, 2):  # 2 has reported its error
            errors.seek(0)
            lines = errors.read().splitlines()[-5:]
            yield {"error": {"headline": f"ended with code {process.returncode}", "lines": lines}}
    paths = [path for pattern in KEPT for path in output.glob(pattern)]
    yield {"files": {path.name: path.read_bytes() for path in paths}}


def _put(output: Path, files: dict[str, bytes]) -> None:
    """Into a folder where nothing was measured yet."""
    if files and not (output / fingerprint.FILE).exists():
        output.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (output / name).write_bytes(content)


class _JournalReader:
    """The lines of a profile's journal as they are added, some seconds' worth at a time."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._read = 0
        self._last = 0.0

    def news(self) -> Iterator[dict[str, Any]]:
        """What was added since the last time; nothing if that was a moment ago."""
        path = self._output / MEASUREMENTS
        if time.monotonic() - self._last < JOURNAL_SECONDS or not path.exists():
            return
        self._last = time.monotonic()
        with path.open("rb") as file:
            file.seek(self._read)
            added = file.read()
        added = added[: added.rfind(b"\n") + 1]
        if added:
            self._read += len(added)
            identity = (self._output / fingerprint.FILE).read_text(encoding="utf-8")
            yield {"journal": {"fingerprint": identity, "measurements": added.decode()}}


def meeting_port(address: str) -> int:
    """A free port of this node, for others to meet at."""
    return free_port(address)


def send_and_receive(
    task: dict[str, Any], meeting: Meeting, *, seconds: float
) -> list[dict[str, Any]]:
    """This node's side of a collective between nodes; what the first one measured.

    Raises:
        ProfileError: the process failed.
    """
    deadline = time.monotonic() + seconds
    return list(
        reported_by(
            "automap.profiler.measure.collective_rank",
            task,
            ranks=1,
            deadline=deadline,
            meeting=meeting,
        )
    )
