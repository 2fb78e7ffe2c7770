"""The planner processes that answer waiting requests."""

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from automap.service.errors.domain import BusyError, PlannerCancelledError
from automap.service.planners.process import PlannerProcess, always
from automap.service.telemetry.logs import DEFAULT, LogSettings
from automap.service.telemetry.metrics import Metrics

_WAIT_SECONDS = 0.5
"""How often a request that waits for a process is asked whether it is still wanted."""


class PlannerPool:
    """Planner processes, and how many requests may wait for one."""

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
        self, *, is_wanted: Callable[[], bool] = always, wait_seconds: float = math.inf
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
