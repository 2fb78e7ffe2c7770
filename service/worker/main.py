"""The worker process: claims jobs, has Ray run them, writes down what becomes of them."""

import importlib.util
import logging
import os
import signal
import threading
from contextlib import suppress

from sqlalchemy.exc import SQLAlchemyError

from automap.executor.private_folders import is_open_to_all, make_private
from automap.executor.run.parent import when_stdin_closes
from automap.executor.telemetry import traces
from automap.service.environment import hide_environment
from automap.service.queues import job_queue
from automap.service.queues.job_queue import JobClaim
from automap.service.settings import Settings, misspelt_settings
from automap.service.storage.database import Database
from automap.service.telemetry import logs
from automap.service.worker.local_ray import LocalRay
from automap.service.worker.ray_jobs import RayJobs, RayUnavailableError
from automap.service.worker.supervision import Supervision

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""After Ray or the database did not answer, or nothing could be written."""


def can_submit() -> bool:
    """Whether Ray is installed here."""
    return importlib.util.find_spec("ray") is not None


class Worker:
    """Looks for jobs, and has a thread for each that it holds."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._stopping = threading.Event()
        self._local = (
            LocalRay(settings.ray_folder, environment=settings.job_environment)
            if settings.ray_address is None
            else None
        )
        self._threads: list[threading.Thread] = []

    def stop(self) -> None:
        """Let go of all jobs; what runs in Ray goes on running."""
        self._stopping.set()

    def run(self) -> None:
        """Work until `stop`."""
        log.info("waiting for jobs")
        if self._local is not None and is_open_to_all(self._settings.runs_folder):
            log.warning(
                "every user of this machine can list the runs in %s: chmod 700 it",
                self._settings.runs_folder,
            )
        while not self._stopping.is_set():
            self._say_well()
            try:
                held = self.claim()
            except (RayUnavailableError, SQLAlchemyError, OSError) as error:
                log.error("no job can be taken: %s", error)
                self._stopping.wait(RETRY_SECONDS)
                continue
            if held is None:
                self._stopping.wait(self._settings.poll_seconds)
            else:
                self._supervise(held)
        for thread in self._threads:
            thread.join(timeout=30)
        self._leave_local_ray()

    def claim(self) -> JobClaim | None:
        """The next job, which this worker holds from now on; None: there is none, or no room.

        Raises:
            RayUnavailableError: there is no Ray to run it; the job says so from now on.
        """
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # Those that run already are all taken: each has events to read, and may be cancelled.
        new = len(self._threads) < self._settings.running_jobs
        with self._database.reading() as session:
            if not job_queue.is_waiting(session, new=new):
                return None
        try:
            self._connect()  # a job is taken only when there is a Ray for it
        except RayUnavailableError as error:
            if new:
                with self._database.transaction() as session:
                    job_queue.cannot_take(session, str(error))
            raise
        if self._local is not None:
            with suppress(OSError):  # the run says why it cannot write there
                make_private(self._settings.runs_folder)
        with self._database.transaction() as session:
            return job_queue.claim(
                session,
                lease_seconds=self._settings.lease_seconds,
                runs_folder=str(self._settings.runs_folder.absolute()),
                new=new,
            )

    def _supervise(self, held: JobClaim) -> None:
        log.info("job %s: taken, to run as %s", held.job_id, held.submission_id)
        supervision = Supervision(
            self._database, self._settings, held, connect=self._connect, stopping=self._stopping
        )
        thread = threading.Thread(target=supervision.run, name=f"job {held.job_id}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _connect(self) -> RayJobs:
        if self._local is not None:
            return RayJobs(self._local.ensure())
        address = self._settings.ray_address
        assert address is not None
        os.environ["RAY_ADDRESS"] = address  # Ray's client prefers what it finds there
        return RayJobs(address)

    def _leave_local_ray(self) -> None:
        if self._local is None:
            return
        try:
            with self._database.reading() as session:
                needed = job_queue.any_submitted(session)
        except SQLAlchemyError:
            needed = True
        if needed:
            log.info("jobs go on running in the local Ray; the next worker finds them")
        else:
            self._local.stop()

    def _say_well(self) -> None:
        if self._settings.worker_health_file is not None:
            self._settings.worker_health_file.touch()


def work(settings: Settings, *, until_stdin_closes: bool = False) -> None:
    """Be a worker until SIGINT or SIGTERM; the database must have been migrated."""
    logs.set_up(settings.logs)
    for line in misspelt_settings(os.environ, settings.job_environment):
        log.warning(line)
    hide_environment()
    traces.start("automap-worker")
    database = Database(settings.database_url)
    worker = Worker(database, settings)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stop())
    if until_stdin_closes:
        when_stdin_closes(worker.stop)
    try:
        worker.run()
    finally:
        database.dispose()
