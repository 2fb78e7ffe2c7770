"""One job in a worker's hands: submitted, followed, ended, and its outcome written down."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from automap.executor.telemetry import traces
from automap.service.errors.domain import (
    ProfileFailedError,
    ProfileRefusedError,
    RunFailedError,
    RunRefusedError,
    ServiceError,
)
from automap.service.queues import job_queue
from automap.service.queues.job_queue import JobClaim, Progress
from automap.service.runs.output import OutputReader, Printed
from automap.service.schemas.problems import problem_of
from automap.service.settings import Settings
from automap.service.storage.database import Database
from automap.service.telemetry import context
from automap.service.use_cases.folders import allowed_folders
from automap.service.worker.drift_watch import DriftWatch
from automap.service.worker.log_follower import LogFollower
from automap.service.worker.ray_jobs import RayJob, RayJobs, RayUnavailableError
from automap.service.worker.submissions import submission_of

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

EXIT_FAILED = 1
EXIT_REFUSED = 2
STOP_AGAIN_SECONDS = 5.0


class _LostError(Exception):
    """The job is another worker's now, or was deleted."""


class Supervision:
    """From the claim of a job to its end, or to the end of the worker."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        held: JobClaim,
        *,
        connect: Callable[[], RayJobs],
        stopping: threading.Event,
    ) -> None:
        self._database = database
        self._settings = settings
        self._held = held
        self._connect = connect
        self._stopping = stopping
        self._drift = DriftWatch(database, settings, held)
        self._ray: RayJobs | None = None
        self._follower: LogFollower | None = None
        self._output: OutputReader | None = None
        self._stop_asked_at: float | None = None
        self._complaint = ""

    def run(self) -> None:
        """Stay with the job until it is over, is no longer ours, or the worker stops."""
        job = str(self._held.job_id)
        with (
            context.resumed(self._held.origin),
            context.bound(job_id=job),
            traces.span("job", job_id=job),
        ):
            self._supervise()

    def _supervise(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    if self._step():
                        return
                except (RayUnavailableError, SQLAlchemyError, OSError) as error:
                    # OSError: a full disk, mostly.
                    self._begin_anew(error)
                    self._stopping.wait(self._settings.poll_seconds)
            self._write(lambda session: job_queue.release(session, self._held))
        except _LostError:
            log.warning("job %s was taken over or deleted", self._held.job_id)
        finally:
            self._drift.close()
            self._close_follower()

    def _begin_anew(self, error: Exception) -> None:
        """Forget the connection, and what was read but perhaps not written down."""
        if (complaint := f"{type(error).__name__}: {error}") != self._complaint:
            log.warning("job %s: trying again after %s", self._held.job_id, complaint)
            self._complaint = complaint
        self._close_follower()
        self._ray = self._output = None

    def _step(self) -> bool:
        """Look at the job once; whether it is over."""
        progress = self._renew()
        if self._output is None:
            self._output = OutputReader(progress.log_offset, progress.proofs)
            self._drift.look(progress)  # whoever held the job may have had no time to
        ray = self._ray = self._ray or self._connect()
        found = ray.find(self._held.submission_id)
        if found is None:
            return self._without_ray_job(ray, progress)
        ran = found.status in ("RUNNING", "SUCCEEDED")  # also if it was over between two looks
        if ran and not self._held.was_running:
            self._note_running()
        if found.is_over:
            self._read_rest(ray, found, self._output)
            return self._conclude(found)
        if progress.cancelling:
            self._stop(ray)
        self._read(ray, found, self._output)
        return False

    def _without_ray_job(self, ray: RayJobs, progress: Progress) -> bool:
        if progress.cancelling:
            self._write(lambda session: job_queue.cancelled(session, self._held))
            return True
        if self._held.was_running:
            return self._try_again("Ray was restarted and knows it no more")
        name = self._held.submission_id
        folders = allowed_folders(self._database, self._settings)
        with context.bound(submission_id=name), traces.span("submit", submission_id=name):
            ray.submit(submission_of(self._held, self._settings, folders))
            log.info("job %s: submitted as %s", self._held.job_id, name)
        return False

    def _note_running(self) -> None:
        if not self._write(lambda session: job_queue.run(session, self._held)):
            raise _LostError
        self._held = replace(self._held, was_running=True)

    def _stop(self, ray: RayJobs) -> None:
        now = time.monotonic()
        if self._stop_asked_at is None or now - self._stop_asked_at > STOP_AGAIN_SECONDS:
            self._stop_asked_at = now
            ray.stop(self._held.submission_id)

    def _read(self, ray: RayJobs, found: RayJob, output: OutputReader) -> None:
        """Take what comes within a poll; there is no log before the job is on a node."""
        if found.node_id is None:
            self._stopping.wait(min(0.2, self._settings.poll_seconds))
            return
        if self._follower is None:
            self._follower = LogFollower(ray, self._held.submission_id, found, skip=output.received)
        self._keep(output.feed(self._follower.take(seconds=self._settings.poll_seconds)))

    def _read_rest(self, ray: RayJobs, found: RayJob, output: OutputReader) -> None:
        self._close_follower()
        if found.node_id is None:  # it never started, so it printed nothing
            return
        rest = asyncio.run(ray.read(self._held.submission_id, found, skip=output.received))
        self._keep(output.feed(rest))
        self._keep(output.finish())

    def _keep(self, printed: Printed) -> None:
        if not printed:
            return
        progress = self._renew(printed)
        if any(event["type"] == "iteration" for event in printed.events):
            self._drift.look(progress)

    def _renew(self, printed: Printed | None = None) -> Progress:
        def record(session: Session) -> Progress | None:
            return job_queue.record(
                session,
                self._held,
                printed or Printed(),
                lease_seconds=self._settings.lease_seconds,
                max_log_bytes=self._settings.max_log_bytes,
            )

        progress = self._write(record)
        if progress is None:
            raise _LostError
        return progress

    def _conclude(self, found: RayJob) -> bool:
        """Write down how it ended; False: it goes on as a new attempt."""
        held, code = self._held, found.exit_code
        progress = self._renew()
        log.info("job %s: %s with exit code %s", held.job_id, found.status, code)
        if found.status == "SUCCEEDED":
            if not self._write(lambda session: job_queue.succeed(session, held)):
                cause = self._reported_cause() or "it ended with exit code 0, but sent no report"
                self._fail(self._failed(cause))
        elif progress.cancelling or found.status == "STOPPED":
            self._write(lambda session: job_queue.cancelled(session, held))
        elif code == EXIT_REFUSED:
            self._fail(self._refused(self._cause(found)))
        elif code == EXIT_FAILED:
            self._fail(self._failed(self._cause(found)))
        elif code is not None:
            return self._try_again(f"it was ended from outside (exit code {code})")
        else:
            return self._try_again(found.message or "Ray says no cause")
        return True

    def _cause(self, found: RayJob) -> str:
        """What the job says itself; else the end of what it printed, from Ray."""
        return self._reported_cause() or found.message

    def _reported_cause(self) -> str:
        event = self._write(lambda session: job_queue.last_failure(session, self._held))
        cause = event.get("cause") if event else None
        return cause if isinstance(cause, str) else ""

    def _failed(self, cause: str) -> ServiceError:
        return (RunFailedError if self._held.kind == "run" else ProfileFailedError)(cause)

    def _refused(self, cause: str) -> ServiceError:
        return (RunRefusedError if self._held.kind == "run" else ProfileRefusedError)(cause)

    def _fail(self, error: ServiceError) -> None:
        problem = problem_of(error)
        self._write(lambda session: job_queue.fail(session, self._held, problem))

    def _try_again(self, reason: str) -> bool:
        log.warning("job %s: attempt is lost: %s", self._held.job_id, reason)
        renewed = self._write(
            lambda session: job_queue.retry(
                session, self._held, max_attempts=self._settings.max_attempts, reason=reason
            )
        )
        if renewed is None:
            return True
        self._close_follower()
        self._held = renewed
        self._output = None
        return False

    def _write(self, change: Callable[[Session], Answer]) -> Answer:
        with self._database.transaction() as session:
            return change(session)

    def _close_follower(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None
