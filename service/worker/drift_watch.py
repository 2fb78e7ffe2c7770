"""Watches one running job for drift from its plan, and has a planner process say what to do."""

import contextvars
import logging
import threading
from functools import cached_property

from automap.planner import Plan
from automap.planner.errors import PlanningError
from automap.planner.runs import Drift, RunWindow, Suggestion, Window, drift_of_window
from automap.service.errors.domain import (
    OlderVersionError,
    PlannerCancelledError,
    PlannerProcessError,
)
from automap.service.planners.messages import SuggestTask
from automap.service.planners.process import PlannerProcess
from automap.service.queues import suggestions
from automap.service.queues.job_queue import JobClaim, Progress
from automap.service.runs import iteration_history, suggestion_notes
from automap.service.settings import Settings
from automap.service.storage import profile_files
from automap.service.storage.database import Database
from automap.service.storage.stored_documents import required

log = logging.getLogger(__name__)

ANSWER_SECONDS = 300.0
"""Seconds for two short searches and the prices of a large job on a slow machine."""


class DriftWatch:
    """Looks after every iteration; nothing it does holds up or ends the job.

    The look itself takes medians of a few numbers. A suggestion is computed in a thread of its own,
    by a process of its own, and one at a time.
    """

    def __init__(self, database: Database, settings: Settings, held: JobClaim) -> None:
        self._database = database
        self._settings = settings
        self._held = held
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_unreadable = False
        self._asked_after = -settings.drift_pause_iterations

    def look(self, progress: Progress) -> None:
        """Compare the latest iterations with the plan, and raise or end a suggestion."""
        if self._is_unreadable:
            return
        try:
            self._look(progress)
        except OlderVersionError as error:
            self._is_unreadable = True
            log.warning("job %s: cannot be compared with its plan: %s", self._held.job_id, error)
        except Exception:
            log.exception("job %s: cannot be compared with its plan", self._held.job_id)

    def answer(self, plan: Plan, run_window: RunWindow) -> Suggestion:
        """Why the run has drifted and whether to move, by a planner process of its own."""
        profile_files.materialise(self._database, self._settings.profiles_folder, plan.spec)
        process = PlannerProcess(
            profiles_folder=self._settings.profiles_folder,
            memory_bytes=self._settings.planner_memory_bytes,
            serves="runs",
            logs=self._settings.logs,
        )
        try:
            answer = process.run(
                SuggestTask(plan=plan, run_window=run_window),
                limit_seconds=ANSWER_SECONDS,
                keep_going=lambda: not self._closed.is_set(),
            )
        finally:
            process.stop()
        return Suggestion.model_validate(answer)

    def wait(self) -> None:
        """Wait until no suggestion is being computed."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """No more looks; a suggestion that is being computed is given up."""
        self._closed.set()

    @cached_property
    def _plan(self) -> Plan:
        """The job's plan; OlderVersionError where this version reads it no more."""
        assert self._held.plan is not None, "a run has a plan"
        return required(Plan, self._held.plan, plan_id=f"of job {self._held.job_id}")

    def _look(self, progress: Progress) -> None:
        known = iteration_history.read(progress.measured.get("iterations"))
        window = known.latest_window(self._settings.drift_window_iterations)
        if window is None or self._is_computing:
            return
        found = drift_of_window(self._plan, window, self._settings.drift_threshold)
        raised = suggestion_notes.raised(progress.measured)
        if suggestion_notes.is_over(found, raised):
            with self._database.transaction() as session:
                over = suggestions.end(session, self._held, window)
            if over:
                log.info("job %s: runs as planned again", self._held.job_id)
        elif self._may_ask(window, progress) and suggestion_notes.is_new(found, raised):
            run_window = RunWindow(
                window=window,
                first=known.first_window(before=window.first),
                iterations_left=progress.iterations - progress.iteration,
                threshold=self._settings.drift_threshold,
            )
            self._ask(run_window, found, anew=not suggestion_notes.is_active(progress.measured))

    @property
    def _is_computing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _may_ask(self, window: Window, progress: Progress) -> bool:
        since = window.last - self._asked_after
        # A restart may have set the run back to earlier iterations.
        paused = 0 <= since < self._settings.drift_pause_iterations
        return not paused and progress.iteration < progress.iterations

    def _ask(self, run_window: RunWindow, found: Drift, *, anew: bool) -> None:
        self._asked_after = run_window.window.last
        self._thread = threading.Thread(
            # With the ids and the span of the thread that asks.
            target=contextvars.copy_context().run,
            args=(self._raise, run_window, found, anew),
            name=f"drift {self._held.job_id}",
            daemon=True,
        )
        self._thread.start()

    def _raise(self, run_window: RunWindow, found: Drift, anew: bool) -> None:
        """Compute the suggestion and store it; without a re-plan where that failed.

        The log has it once for as long as the run is off its plan, if it is so `anew`.
        """
        job = self._held.job_id
        try:
            suggestion = self.answer(self._plan, run_window)
        except PlannerCancelledError:
            return
        except Exception as error:
            log.warning("job %s: nothing can be said of another plan: %s", job, error)
            suggestion = Suggestion(
                after_iteration=run_window.window.last,
                window=run_window.window,
                drift=found,
                problem=_reason(error),
            )
        try:
            with self._database.transaction() as session:
                added = suggestions.add(session, self._held, suggestion)
            if added and anew:
                log.info("job %s: has drifted from its plan", job)
        except Exception as error:
            log.warning("job %s: a suggestion cannot be stored: %s", job, error)


def _reason(error: Exception) -> str:
    """What readers of the job see: no more of an unexpected error than that there was one."""
    expected = isinstance(error, PlanningError | PlannerProcessError)
    return str(error) if expected else "the re-planning failed; see the worker's log"
