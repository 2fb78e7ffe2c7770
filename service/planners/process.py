"""A planner process as the service sees it: warm, one request at a time, ended when overdue."""

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
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
    PlannerCancelledError,
    PlannerCrashedError,
    PlannerDiedError,
    PlannerMemoryError,
    PlannerTimeoutError,
)
from automap.service.planners.fork_server import FORK_SERVER, ForkedProcess
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


def always() -> bool:
    """Whoever asks is still wanted."""
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
        self._serves = serves
        self._setup = Setup(
            profiles_folder=(profiles_folder or Path()).absolute(),
            # It bounds what it reserves by itself, should this process not be there to look.
            memory_bytes=memory_bytes + _RESERVED_BYTES,
            logs=logs,
            environment={**passed_on(), **traces.environment()},
        )
        self._metrics = metrics or Metrics()
        self._metrics.planners.labels(serves).inc()
        self._lock = threading.Lock()
        self._process: ForkedProcess | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The operating system's number of the process; None: it has not begun."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process if there is none, so that it is warm when a request comes."""
        with self._lock:
            if self._stopped:
                raise PlannerCancelledError("the service is shutting down")
            if self._process is None or self._process.has_ended:
                self._process = FORK_SERVER.fork(self._setup)
                self._metrics.planner_starts.labels(self._serves).inc()

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
        keep_going: Callable[[], bool] = always,
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
        deadline = time.monotonic() + limit_seconds
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except (OSError, ValueError) as error:  # ValueError: it was closed as the service stopped
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
        how = self._how_it_ended()
        log.error("the planner process was lost: %s", how)
        return PlannerDiedError(how)

    def _replace(self) -> None:
        with self._lock:
            self._kill()
            if self._process is not None:
                self._process.close()
                self._process = None
            stopped = self._stopped
        if not stopped:
            self.start()

    def _kill(self) -> None:
        # The pipes stay open: a thread may be reading, and it gets its end of file from the kill.
        if self._process is not None:
            self._process.kill()

    def _how_it_ended(self) -> str:
        assert self._process is not None
        self._process.wait()
        status = self._process.returncode
        if status is None:
            return "it ended with the process that had forked it"
        if status >= 0:
            return f"it ended with status {status}"
        name = signal.Signals(-status).name
        short = "; this machine may be short of memory" if name == "SIGKILL" else ""
        return f"it ended by {name}{short}"


def _resident_bytes(process_id: int | None) -> int:
    """What the process has in memory; 0: there is none, or this system does not tell."""
    if process_id is None:
        return 0
    try:
        pages = Path(f"/proc/{process_id}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


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
