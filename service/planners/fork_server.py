"""Planner processes are forked by one that has imported the planner, the fork server.

To fork takes a small part of the time that the import takes: a service has its processes together,
and one that was ended is replaced at once. A program has one fork server, which ends with it.
"""

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO

from automap.service.environment import passed_on
from automap.service.planners.messages import LENGTH, Setup

_STUCK_SECONDS = 60.0
"""A fork server that forks nothing for so long is replaced."""
_REPORT_SECONDS = 5.0
"""How long a process that was ended may take to be reported as gone."""


class ForkedProcess:
    """A process that was forked for us: its pipes, and how it ended."""

    def __init__(self, stdin: BinaryIO, stdout: BinaryIO, status: int) -> None:
        """With our ends of its pipes, and of the one that tells of its number and its end."""
        self.stdin, self.stdout = stdin, stdout
        self.asked_at = time.monotonic()
        self._status: int | None = status
        self._reported = b""
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The operating system's number of the process; None: it has not begun."""
        return self._line(0)

    @property
    def returncode(self) -> int | None:
        """Its status, or a signal's number below 0; None: it runs, or went with its fork server."""
        return self._line(1)

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
        self._read_status()
        return self._status is None

    def kill(self) -> None:
        """End it, and wait until it is gone; one that has not begun ends when it begins."""
        if self.pid is None:
            with suppress(OSError):
                self.stdin.close()
        elif not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self) -> None:
        """Wait until it is reported as gone, though not for ever."""
        deadline = time.monotonic() + _REPORT_SECONDS
        while not self.has_ended and (left := deadline - time.monotonic()) > 0:
            self._read_status(wait_seconds=left)

    def close(self) -> None:
        """Close our ends of its pipes."""
        for pipe in (self.stdin, self.stdout):
            with suppress(OSError):  # what was not written cannot be written any more
                pipe.close()

    def _line(self, index: int) -> int | None:
        self._read_status()
        lines = self._reported.split(b"\n")[:-1]
        return int(lines[index]) if index < len(lines) else None

    def _read_status(self, wait_seconds: float = 0.0) -> None:
        with self._lock:
            while self._status is not None:
                waiting = select.poll()
                waiting.register(self._status, select.POLLIN)
                if not waiting.poll(1000 * wait_seconds):
                    return
                if report := os.read(self._status, 64):
                    self._reported += report
                else:
                    os.close(self._status)
                    self._status = None


class ForkServer:
    """Starts the fork server when the first process is wanted, and anew when it is gone."""

    def __init__(self) -> None:
        """One that is not started yet."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._last: ForkedProcess | None = None
        atexit.register(self.stop)

    @property
    def pid(self) -> int | None:
        """The operating system's number of the fork server; None: there is none."""
        return None if self._process is None else self._process.pid

    def fork(self, setup: Setup) -> ForkedProcess:
        """A planner process, which begins once the fork server comes to it."""
        with self._lock:
            if self._is_stuck():
                self._end()
            try:
                self._last = self._ask(setup)
            except OSError:  # it was ended from outside
                self._end()
                self._last = self._ask(setup)
            return self._last

    def stop(self) -> None:
        """End the fork server, and its processes with it."""
        with self._lock:
            self._end()

    def _is_stuck(self) -> bool:
        last = self._last
        if last is None or last.pid is not None or last.has_ended:
            return False
        return time.monotonic() - last.asked_at > _STUCK_SECONDS

    def _ask(self, setup: Setup) -> ForkedProcess:
        control = self._control or self._start()
        (its_stdin, stdin), (stdout, its_stdout), (status, its_status) = (
            os.pipe() for _ in range(3)
        )
        message = setup.model_dump_json().encode()
        try:
            # Standard error as it is now: it may have been redirected since the fork server began.
            its_ends = [its_stdin, its_stdout, its_status, 2]
            socket.send_fds(control, [LENGTH.pack(len(message))], its_ends)
            control.sendall(message)
        except OSError:
            for end in (stdin, stdout, status):
                os.close(end)
            raise
        finally:
            for end in (its_stdin, its_stdout, its_status):
                os.close(end)
        return ForkedProcess(os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), status)

    def _start(self) -> socket.socket:
        self._control, its_end = socket.socketpair()
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "automap.service.planners.forking"],
                stdin=its_end.fileno(),
                env=passed_on(),
            )
        return self._control

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


FORK_SERVER = ForkServer()
"""The fork server of this program."""
