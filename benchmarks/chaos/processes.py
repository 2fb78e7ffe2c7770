"""The processes of a service under test, kept running as a supervisor of a cluster would."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.service.support.processes import running

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Whatever is started from here stays below this process, so that nothing gets lost."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("this system does not let a process adopt orphans")


def command_of(process_id: int) -> str:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:160]
    except OSError:
        return "?"


def reap() -> None:
    """Let orphans that have ended go."""
    while True:
        try:
            process_id, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process_id == 0:
            return


class Kept:
    """A process that is started again whenever it has ended."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], logs: Path
    ) -> None:
        self.name = name
        self.ended_by_itself: list[str] = []
        """The last line of its log, each time."""
        self._command = list(command)
        self._environment = dict(environment)
        self._log = logs / f"{name}.log"
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def keep(self) -> None:
        """Start it unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None and not self._killed:
            self.ended_by_itself.append(self._log.read_text().rstrip().rpartition("\n")[2][:200])
        self._killed = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, number: signal.Signals) -> None:
        self._killed = self._killed or number == signal.SIGKILL
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            assert self._process is not None
            self._process.wait()

    def end(self, seconds: float = 60) -> None:
        """Ask it to end, as an operator does.

        Raises:
            TimeoutError: it does not; it is killed then.
        """
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise TimeoutError(f"{self.name} did not end within {seconds:g} s") from None


def wait_until_gone(process_ids: Sequence[int], seconds: float) -> list[int]:
    """Those that still run after so long."""
    deadline = time.monotonic() + seconds
    left = [each for each in process_ids if running(each)]
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = [each for each in left if running(each)]
    return left
