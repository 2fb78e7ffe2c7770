"""A real run in processes of its own, watched from outside: events, processes, shared memory."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from automap.executor.settings import RunSettings
from automap.executor.telemetry.events import read_events
from automap.planner.plan.types import Plan

MARKER = "AUTOMAP_TEST_RUN"
REPOSITORY = Path(__file__).parents[3]


class Traces:
    """What a program has started and left, told from all else by a mark in the environment."""

    def __init__(self) -> None:
        self.mark = {MARKER: uuid4().hex}
        """To put into the program's environment."""
        self.shared_memory: set[Path] = set()
        """Files of /dev/shm that any of its processes had mapped."""

    def controllers(self) -> list[int]:
        """Executors that run."""
        return [pid for pid in self.processes() if "-m\0automap.executor.run\0" in _title(pid)]

    def workers(self) -> list[int]:
        """The run's processes; those that hold the most memory, models, come first."""
        workers = [pid for pid in self.processes() if _title(pid).startswith("ray::Process")]
        return sorted(workers, key=_resident_pages, reverse=True)

    def processes(self) -> list[int]:
        """All that the program has started and that still live, itself included."""
        mark = "=".join(*self.mark.items()).encode()
        return [pid for pid in _numbers() if mark in _read(pid, "environ")]

    def note_shared_memory(self) -> None:
        """Remember what is mapped now."""
        for pid in self.processes():
            for line in _read(pid, "maps").decode(errors="replace").splitlines():
                if "/dev/shm/" in line:
                    path = line[line.index("/dev/shm/") :].removesuffix(" (deleted)")
                    self.shared_memory.add(Path(path))

    def left_in_shared_memory(self) -> list[Path]:
        """Of what was mapped."""
        return [path for path in self.shared_memory if path.exists()]

    def kill_all(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class RunProcess(Traces):
    """`python -m automap.executor.run` with a plan and settings, and all that it starts."""

    def __init__(
        self,
        plan: Plan,
        settings: dict[str, Any],
        folder: Path,
        *,
        by_command: bool = False,
        log: Path | None = None,
    ) -> None:
        """By `automap run`, perhaps, instead of directly; `log` is what it prints."""
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        (folder / "plan.json").write_text(plan.model_dump_json(by_alias=True))
        text = RunSettings.model_validate(settings).model_dump_json()
        (folder / "settings.json").write_text(text)
        files = {each: str(folder / f"{each}.json") for each in ("plan", "settings")}
        command = (
            ["automap.service.cli.main", "run", files["plan"]]
            if by_command
            else ["automap.executor.run", "--plan", files["plan"]]
        )
        command += ["--settings", files["settings"], "--output", str(folder)]
        self._log = log or folder / ("command.log" if by_command else "run.log")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env={**os.environ, **self.mark, "RAY_DEDUP_LOGS": "1"},
                start_new_session=True,
            )

    def events(self, kind: str) -> list[dict[str, Any]]:
        return list(read_events(self.folder / "events.jsonl", kind))

    def metrics(self) -> list[dict[str, float]]:
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["data"] for line in lines]

    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "report.json").read_text())

    def wait_until(self, is_true: Callable[[], bool], *, seconds: float = 300) -> None:
        deadline = time.monotonic() + seconds
        while not is_true():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def end(self, *, seconds: float = 300) -> int:
        try:
            return self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end after {seconds} s\n{self.log()}") from None

    def cancel(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]


def _numbers() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _title(pid: int) -> str:
    return _read(pid, "cmdline").decode(errors="replace")


def _resident_pages(pid: int) -> int:
    fields = _read(pid, "statm").split()
    return int(fields[1]) if fields else 0
