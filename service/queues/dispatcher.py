"""Works on the queue of plans: one thread and one planner process per job at a time."""

import logging
import threading
import time
from collections.abc import Callable

from pydantic import JsonValue
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from automap.executor.telemetry import traces
from automap.planner.errors import PlanningError
from automap.planner.spec import JobSpec
from automap.service.errors.domain import (
    OlderVersionError,
    PlannerCancelledError,
    PlannerProcessError,
)
from automap.service.planners.deadlines import planning_deadline_seconds
from automap.service.planners.messages import PlanTask
from automap.service.planners.process import PlannerProcess
from automap.service.queues import plan_queue
from automap.service.queues.plan_queue import PlanClaim
from automap.service.schemas.problems import problem_of
from automap.service.settings import Settings
from automap.service.storage import profile_files, retention
from automap.service.storage.database import Database
from automap.service.storage.stored_documents import required
from automap.service.telemetry import context
from automap.service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
FORGET_SECONDS = 3600.0
"""How often a server looks for plans and jobs that are kept no longer."""


class Dispatcher:
    """The threads that claim queued plans, and their planner processes."""

    def __init__(
        self, database: Database, settings: Settings, metrics: Metrics | None = None
    ) -> None:
        self._database = database
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._forget_at = time.monotonic()
        self._processes = [
            PlannerProcess(
                profiles_folder=settings.profiles_folder,
                memory_bytes=settings.planner_memory_bytes,
                serves="plans",
                logs=settings.logs,
                metrics=self._metrics,
            )
            for _ in range(settings.queue_planners)
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(process,), name="plan-queue", daemon=True)
            for process in self._processes
        ]

    def start(self) -> None:
        """Begin to work on the queue."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Look at the queue now: a job was added."""
        self._wake.set()

    def stop(self) -> None:
        """End the running jobs and put them back into the queue."""
        self._stopping.set()
        self._wake.set()
        for process in self._processes:
            process.stop()
        for thread in self._threads:
            thread.join(timeout=30)

    def _work(self, process: PlannerProcess) -> None:
        while not self._stopping.is_set():
            try:
                process.start()
                claimed = self._claim()
                if claimed is not None:
                    self._take_up(process, claimed)
                    continue
                self._forget()
            except PlannerCancelledError:
                return
            except (SQLAlchemyError, OSError):
                # The database is away, or no process can be started. A job that we may have held
                # is claimed again when its lease has run out.
                log.exception("the queue cannot be worked on; trying again")
            self._wake.wait(self._settings.poll_seconds)
            self._wake.clear()

    def _forget(self) -> None:
        """Once an hour, while no plan waits: delete what ended too long ago."""
        days = self._settings.retention_days
        if days is None or time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + FORGET_SECONDS
        forgotten = (1, 0)
        while any(forgotten) and not self._stopping.is_set():
            with self._database.transaction() as session:
                forgotten = retention.forget(session, days=days)
            if any(forgotten):
                log.info("%d jobs and %d plans forgotten", *forgotten)

    def _claim(self) -> PlanClaim | None:
        with self._database.transaction() as session:
            return plan_queue.claim(
                session,
                lease_seconds=self._settings.lease_seconds,
                max_attempts=self._settings.max_attempts,
            )

    def _take_up(self, process: PlannerProcess, held: PlanClaim) -> None:
        self._metrics.attempts.labels("plans").inc()
        with (
            context.resumed(held.origin),
            context.bound(plan_id=held.plan_id),
            traces.span("plan", plan_id=str(held.plan_id), attempt=held.attempt),
        ):
            if held.attempt > 1:
                self._metrics.leases_lost.labels("plans").inc()
                log.warning(
                    "plan %s: taken over, attempt %d of %d; whoever had it was silent for longer "
                    "than its lease",
                    held.plan_id,
                    held.attempt,
                    self._settings.max_attempts,
                )
            self._run(process, held)

    def _run(self, process: PlannerProcess, held: PlanClaim) -> None:
        """Plan, then write the outcome if the job is still ours."""
        log.info("planning %s", held.plan_id)
        try:
            plan = self._plan(process, held)
        except PlannerCancelledError:
            if self._stopping.is_set():
                self._apply(held, lambda session: plan_queue.release(session, held))
            return
        except (PlanningError, PlannerProcessError, OlderVersionError) as error:
            problem = problem_of(error, held.spec)
        except SQLAlchemyError:
            raise
        except Exception as error:
            log.exception("planning %s failed", held.plan_id)
            problem = problem_of(error)
        else:
            self._apply(held, lambda session: plan_queue.succeed(session, held, plan))
            return
        self._apply(held, lambda session: plan_queue.fail(session, held, problem))

    def _plan(self, process: PlannerProcess, held: PlanClaim) -> dict[str, JsonValue]:
        # One that waited through an upgrade of the service is read as today's.
        spec = required(JobSpec, held.spec, plan_id=held.plan_id)
        folder = self._settings.profiles_folder
        profile_files.materialise(self._database, folder, spec)
        others = profile_files.materialise_for_remedies(self._database, folder, spec)
        limit = planning_deadline_seconds(
            spec, overhead_seconds=self._settings.planning_overhead_seconds
        )
        plan = process.run(
            PlanTask(spec=spec, profiles=others),
            limit_seconds=limit,
            keep_going=lambda: self._renew(held),
        )
        assert isinstance(plan, dict)
        return plan

    def _renew(self, held: PlanClaim) -> bool:
        try:
            with self._database.transaction() as session:
                return plan_queue.renew(session, held, lease_seconds=self._settings.lease_seconds)
        except SQLAlchemyError:
            # The database may be back before the lease runs out; the outcome is guarded anyway.
            log.exception("the lease of %s could not be renewed", held.plan_id)
            return True

    def _apply(self, held: PlanClaim, transition: Callable[[Session], bool]) -> None:
        with self._database.transaction() as session:
            if not transition(session):
                log.warning("plan %s was cancelled or taken over", held.plan_id)
