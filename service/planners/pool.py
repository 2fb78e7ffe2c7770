"""Planner processes as the service sees them: warm, one request at a time, ended when overdue."""

import logging
import math
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import JsonValue

from automap.executor.telemetry import traces
from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    NotExportableError,
    SpecError,
)
from automap.planner.studies import ExplainedInfeasibleError, Refusal
from automap.service.environment import passed_on
from automap.service.errors.domain import (
    BusyError,
    PlannerCancelledError,
    PlannerCrashedError,
    PlannerDiedError,
    PlannerMemoryError,
    PlannerTimeoutError,
)
from automap.service.planners.messages import (
    ANSWER,
    Answer,
    Crash,
    Done,
    Errand,
    InfeasibleFailure,
    NoSolutionFailure,
    NotExportableFailure,
    PlannerTask,
    Setup,
    SpecFailure,
)
from automap.service.planners.observation import observed
from automap.service.telemetry import context
from automap.service.telemetry.logs import DEFAULT, LogSettings
from automap.service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
_READ_BYTES = 2**16
_MEMORY_TICK_SECONDS = 0.1
_RESERVED_BYTES = 2**31
"""What a process may reserve beyond what it may use: the stacks of its threads, say."""
_WAIT_SECONDS = 0.5
"""How often a request that waits for a process is asked whether it is still wanted."""


def _always() -> bool:
    return True


class PlannerProcess:
    """One planner process; started anew after it was ended or died."""

    def __init__(
        self,
        *,
        tick_seconds: float = 1.0,
        profiles_folder: Path | None = None,
        memory_bytes: int = 2**33,
        serves: str = "requests",
        logs: LogSettings = DEFAULT,
        metrics: Metrics | None = None,
    ) -> None:
        """A process that is not started yet.

        Args:
            tick_seconds: How often a request is asked whether it is still wanted.
            profiles_folder: Where the profiles are that specs name by version.
            memory_bytes: Resident memory at which the process is ended.
            serves: Whose errands it does, for metrics: requests, the queue of plans, or runs.
            logs: How it logs.
            metrics: Where it is counted.
        """
        self._tick_seconds = tick_seconds
        self._memory_bytes = memory_bytes
        # The process bounds what it reserves by itself, should this one not be there to look.
        self._arguments = [str(profiles_folder or "."), str(memory_bytes + _RESERVED_BYTES)]
        self._serves = serves
        self._setup = Setup(logs=logs, environment=dict(traces.environment()))
        self._metrics = metrics or Metrics()
        self._metrics.planners.labels(serves).inc()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The operating system's number of the process; None: it was never started."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process if there is none, so that it is warm when a request comes."""
        with self._lock:
            if self._stopped:
                raise PlannerCancelledError("the service is shutting down")
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "automap.service.planners.child", *self._arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=passed_on(),
                )
                self._metrics.planner_starts.labels(self._serves).inc()
                self._tell(self._process, self._setup.model_dump_json())

    @staticmethod
    def _tell(process: subprocess.Popen[bytes], line: str) -> None:
        assert process.stdin is not None
        with suppress(OSError):  # it has died, which the first request notices
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()

    def stop(self) -> None:
        """End the process for good; a request that waits gets PlannerCancelledError."""
        with self._lock:
            self._stopped = True
            self._kill()

    def run(
        self,
        request: PlannerTask,
        *,
        limit_seconds: float,
        keep_going: Callable[[], bool] = _always,
    ) -> JsonValue:
        """The result of a request; `keep_going` is asked every tick whether it is still wanted.

        A process that was killed from outside is tried a second time.

        Raises:
            SpecError, InfeasibleError, NoSolutionInTimeError: as the planner did.
            PlannerTimeoutError, PlannerMemoryError, PlannerCancelledError, PlannerCrashedError:
                it did not answer.
        """
        with (
            traces.span("planner", task=request.kind),
            observed(request, self._metrics, serves=self._serves) as note,
        ):
            errand = Errand(task=request, origin=context.carried())
            line = errand.model_dump_json(by_alias=True).encode() + b"\n"
            try:
                answer = self._answer(line, limit_seconds, keep_going)
            except PlannerDiedError:
                answer = self._answer(line, limit_seconds, keep_going)
            if isinstance(answer, Crash) and answer.exception == "MemoryError":
                raise PlannerMemoryError(self._memory_bytes)
            note(answer)
        return _result(answer)

    def _answer(self, line: bytes, limit_seconds: float, keep_going: Callable[[], bool]) -> Answer:
        self.start()
        answered = False
        try:
            answer = self._exchange(line, limit_seconds, keep_going)
            answered = True
        finally:
            if not answered:
                self._replace()
        return ANSWER.validate_json(answer)

    def _exchange(self, line: bytes, limit_seconds: float, keep_going: Callable[[], bool]) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = time.monotonic() + limit_seconds
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except OSError as error:
            raise self._lost() from error
        waiting = select.poll()
        waiting.register(process.stdout, select.POLLIN)
        received = bytearray()
        next_tick = time.monotonic() + self._tick_seconds
        while True:
            now = time.monotonic()
            if now >= deadline:
                raise PlannerTimeoutError(limit_seconds)
            if _resident_bytes(process.pid) > self._memory_bytes:
                raise PlannerMemoryError(self._memory_bytes)
            if now >= next_tick:
                next_tick = now + self._tick_seconds
                if not keep_going():
                    raise PlannerCancelledError("the job was cancelled")
            until = min(deadline, next_tick, now + _MEMORY_TICK_SECONDS)
            if waiting.poll(1000 * max(0.0, until - now)):
                chunk = os.read(process.stdout.fileno(), _READ_BYTES)
                if not chunk:
                    raise self._lost()
                received += chunk
                if chunk.endswith(b"\n"):  # JSON has no line break inside
                    return bytes(received)

    def _lost(self) -> PlannerCancelledError | PlannerDiedError:
        if self._stopped:
            return PlannerCancelledError("the service is shutting down")
        how = _how_it_ended(self._process.wait() if self._process else None)
        log.error("the planner process was lost: %s", how)
        return PlannerDiedError(how)

    def _replace(self) -> None:
        with self._lock:
            self._kill()
            if self._process is not None:
                _close_pipes(self._process)
            stopped = self._stopped
        if not stopped:
            self.start()

    def _kill(self) -> None:
        # The pipes stay open: a thread may be reading, and it gets its end of file from the kill.
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _how_it_ended(status: int | None) -> str:
    if status is None or status >= 0:
        return f"it ended with status {status}"
    name = signal.Signals(-status).name
    short = "; this machine may be short of memory" if name == "SIGKILL" else ""
    return f"it ended by {name}{short}"


def _resident_bytes(process_id: int) -> int:
    """What the process has in memory; 0: it is gone, or this system does not tell."""
    try:
        pages = Path(f"/proc/{process_id}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not written cannot be written any more
                pipe.close()


def _result(answer: Answer) -> JsonValue:
    match answer:
        case Done():
            return answer.result
        case SpecFailure():
            raise SpecError(answer.field, answer.message, remedy=answer.remedy)
        case InfeasibleFailure(refusal=Refusal() as refusal):
            raise ExplainedInfeasibleError(refusal)
        case InfeasibleFailure():
            raise InfeasibleError(answer.reasons)
        case NotExportableFailure():
            raise NotExportableError(answer.target, answer.reasons)
        case NoSolutionFailure():
            raise NoSolutionInTimeError(answer.lower_bound_seconds)
        case Crash():
            raise PlannerCrashedError(f"the planner failed with {answer.exception}")


class PlannerPool:
    """The planner processes that answer waiting requests, and how many requests may wait."""

    def __init__(
        self,
        *,
        size: int,
        max_waiting: int,
        profiles_folder: Path | None = None,
        memory_bytes: int = 2**33,
        logs: LogSettings = DEFAULT,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self._all = [
            PlannerProcess(
                profiles_folder=profiles_folder,
                memory_bytes=memory_bytes,
                logs=logs,
                metrics=self._metrics,
            )
            for _ in range(size)
        ]
        # The one that was busy last: it keeps the tables of the jobs that it was asked about.
        self._idle: queue.LifoQueue[PlannerProcess] = queue.LifoQueue()
        self._places = threading.BoundedSemaphore(size + max_waiting)
        for process in self._all:
            self._idle.put(process)

    def start(self) -> None:
        """Warm all processes."""
        for process in self._all:
            process.start()

    def stop(self) -> None:
        """End all processes."""
        for process in self._all:
            process.stop()

    @contextmanager
    def process(
        self, *, is_wanted: Callable[[], bool] = _always, wait_seconds: float = math.inf
    ) -> Iterator[PlannerProcess]:
        """An idle process, after waiting for one as long as it is wanted.

        Raises:
            BusyError: too many wait already, or there is none within `wait_seconds`.
            PlannerCancelledError: nobody wants it any more.
        """
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            with self._metrics.planners_waited_for.track_inprogress():
                process = self._next_idle(is_wanted, wait_seconds)
            try:
                yield process
            finally:
                self._idle.put(process)
        finally:
            self._places.release()

    def _next_idle(self, is_wanted: Callable[[], bool], wait_seconds: float) -> PlannerProcess:
        deadline = time.monotonic() + wait_seconds
        while True:
            with suppress(queue.Empty):
                return self._idle.get(timeout=min(_WAIT_SECONDS, wait_seconds))
            if not is_wanted():
                raise PlannerCancelledError("nobody waits for the answer")
            if time.monotonic() >= deadline:
                raise BusyError
