"""A run of a plan from start to end: attempts, each resuming from the last checkpoint."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from automap.executor.checkpoints import (
    Checkpoint,
    CheckpointFolder,
    ControllerState,
    FinishedResponses,
    RandomState,
)
from automap.executor.data import ReadAhead, RunData
from automap.executor.errors import RunCancelledError, RunError, WorkerDiedError
from automap.executor.run.factories import FACTORIES
from automap.executor.run.recording import CallEvents, Recording
from automap.executor.runtime.controller import Controller, run_iterations
from automap.executor.runtime.finished_calls import FinishedIteration
from automap.executor.runtime.planned import device_numbers
from automap.executor.settings import RunSettings
from automap.executor.telemetry.call_spans import trace_iteration
from automap.executor.telemetry.events import Events
from automap.executor.telemetry.run_report import RunReport, RunState
from automap.executor.workers.model_setup import smallest_vocabulary
from automap.executor.workers.model_worker import Factories
from automap.planner import Plan

logger = logging.getLogger(__name__)


class Run:
    """One plan, its settings, and the folder for what comes of it. Ray must be initialised."""

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        folder: Path,
        events: Events,
        *,
        cancel: threading.Event,
        environment: Mapping[str, str] | None = None,
        factories: Factories = FACTORIES,
    ) -> None:
        """Nothing is started yet.

        Args:
            plan: What to run.
            settings: Everything that the plan leaves open.
            folder: For checkpoints, metrics, records, report, timeline and the actor's weights.
            events: Where the run reports.
            cancel: Once set, the run stops within seconds.
            environment: Variables of the worker processes.
            factories: Build the engines.
        """
        self._plan, self._settings, self._folder = plan, settings, folder
        self._events, self._cancel = events, cancel
        self._environment, self._factories = dict(environment or {}), factories
        self._recording = Recording(plan, settings, folder)
        self._calls = CallEvents(plan, events)
        self._checkpoints = CheckpointFolder(
            folder / "checkpoints", keep_last=settings.checkpoint.keep_last
        )
        self._finished: FinishedResponses | None = None
        """With continuous rollouts: what is in no checkpoint, and not generated again."""
        if plan.spec.search.continuous_rollouts and settings.checkpoint.every_iterations:
            self._finished = FinishedResponses(folder / "checkpoints" / "responses")
        self._ahead: ReadAhead | None = None
        self._saving: tuple[int, ControllerState] | None = None
        self._restarts = 0
        self.total = settings.iterations or plan.spec.workload.iterations

    def run(self) -> RunReport:
        """All iterations; the report.

        Raises:
            RunError: what ended the run; a died worker only after max_restarts.
        """
        if not self._settings.checkpoint.resume:
            self._set_aside_checkpoints()
        if self._settings.checkpoint.every_iterations is None and self.total > 1:
            self._events.send(
                "log",
                message="checkpoint.every_iterations is not set: there will be no checkpoints, and "
                "a run that is ended early begins again at iteration 1",
            )
        while True:
            try:
                self._attempt()
                return self.report("succeeded")
            except WorkerDiedError as error:
                if self._restarts >= self._settings.max_restarts:
                    raise
                self._restarts += 1
                cause = str(error).splitlines()[0]
                logger.warning("restart %d: %s", self._restarts, cause)
                self._events.send("log", message=f"restarting: {cause}", restart=self._restarts)
            finally:
                self._discard()
                self._recording.close()

    def report(self, state: RunState, cause: str = "") -> RunReport:
        """Write the report and the timeline.

        Raises:
            RunError: the disk refuses.
        """
        with self._writing():
            return self._recording.write_report(state, cause)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"cannot write to {self._folder}: {error}") from error

    def _attempt(self) -> None:
        """From the last checkpoint to the end."""
        settings = self._settings
        self._calls = CallEvents(self._plan, self._events)
        found = self._checkpoints.newest()
        done = 0 if found is None else found.controller.iteration
        with self._writing():
            self._recording.begin(done)
        self._report_state("reserving devices")
        controller = Controller(
            self._plan,
            settings,
            factories=self._factories,
            cancel=self._cancel,
            on_call=self._calls,
            environment=self._environment,
            on_state=self._report_state,
            finished=self._finished,
        )
        workload, vocabulary = self._plan.spec.workload, smallest_vocabulary(controller.setups)
        data = RunData(settings, workload, vocab_size=vocabulary)
        with controller:
            if found is not None:
                self._resume(controller, data, found)
            actor = next(setup.copy.id for setup in controller.setups.values() if setup.trains)
            num_devices = len(device_numbers(self._plan))
            device = controller.groups[actor].call("device", (num_devices,)).result()
            self._recording.device = device
            controller.scheduler.take_records()
            self._report_state("running")
            self._calls.iteration = done + 1
            self._ahead = None
            if controller.is_continuous:
                self._ahead = ReadAhead(data.prompts, iteration=done)
            run_iterations(
                controller,
                self._ahead or data.prompts,
                pretrain=data.pretrain,
                first=done + 1,
                after_iteration=lambda each: self._after(controller, data, each),
                ends_alone=self._is_saved,
            )
            self._calls.iteration = 0
            self._commit(controller)
            self._report_state("saving the actor")
            homes = (s for s in controller.setups.values() if s.role == "actor" and not s.is_shadow)
            controller.groups[next(homes).copy.id].call("save", (self._folder / "actor",)).result()

    def _resume(self, controller: Controller, data: RunData, found: Checkpoint) -> None:
        """Take back a checkpoint."""
        state = found.controller
        self._events.send("log", message=f"resuming after iteration {state.iteration}")
        data.load_state(state.data)
        controller.load_state(found.path)
        if state.lagrange_multiplier is not None:
            controller.multiplier = state.lagrange_multiplier
        if state.random is not None:
            state.random.restore()

    def _after(self, controller: Controller, data: RunData, iteration: FinishedIteration) -> None:
        number = iteration.number
        records = controller.records(iteration)
        with self._writing():
            metrics = self._recording.add(iteration, records)
            self._events.check()
        trace_iteration(records)
        self._events.send("metrics", iteration=number, metrics=metrics)
        self._events.send(
            "iteration",
            iteration=number,
            iterations=self.total,
            seconds=round(iteration.seconds, 6),
        )
        self._commit(controller)
        if self._is_saved(number):
            self._save(controller, data, number)
        self._calls.iteration = number + 1

    def _is_saved(self, number: int) -> bool:
        every = self._settings.checkpoint.every_iterations
        return every is not None and (number % every == 0 or number == self.total)

    def _save(self, controller: Controller, data: RunData, number: int) -> None:
        """Begin a checkpoint; it is written while the next iteration runs."""
        position = data.state()
        if self._ahead is not None:
            position["prompts"] = self._ahead.state_after(number)
        state = ControllerState(
            iteration=number,
            data=position,
            random=RandomState.capture(),
            lagrange_multiplier=controller.multiplier,
        )
        folder = self._checkpoints.begin(number)
        self._saving = (number, state)
        controller.save_state(folder)

    def _commit(self, controller: Controller) -> None:
        """Make a checkpoint of what was begun, once it is on the disk."""
        if self._saving is None:
            return
        number, state = self._saving
        controller.finish_save()
        roles = {each.role: each.copy.layout for each in controller.setups.values() if each.trains}
        self._saving = None
        self._checkpoints.commit(number, roles=roles, controller=state)
        oldest = self._checkpoints.oldest()
        if self._finished is not None and oldest is not None:
            with self._writing():
                self._finished.drop(up_to=oldest)

    def _discard(self) -> None:
        """A checkpoint that was begun when the attempt ended; it may lack anything."""
        if self._saving is not None:
            number, _ = self._saving
            self._saving = None
            self._checkpoints.discard(number)

    def _set_aside_checkpoints(self) -> None:
        """Rename the folder of an earlier run's checkpoints, which this run must not continue."""
        path = self._folder / "checkpoints"
        if path.exists():
            path.rename(path.with_name(f"checkpoints.before-{time.time_ns()}"))

    def _report_state(self, state: str) -> None:
        if self._cancel.is_set():
            raise RunCancelledError("the run was cancelled")
        self._events.send("state", state=state)
