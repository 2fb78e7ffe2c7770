"""Runs a plan: the program that calls its processes, iteration by iteration."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from automap.executor.algorithms.defaults import resolve_settings
from automap.executor.checkpoints import FinishedResponses
from automap.executor.errors import RunCancelledError
from automap.executor.runtime.continuous import ContinuousRollouts
from automap.executor.runtime.continuous_flow import ContinuousFlow
from automap.executor.runtime.finished_calls import FinishedCall, FinishedIteration, call_records
from automap.executor.runtime.group import WorkerGroup, call_together
from automap.executor.runtime.handles import (
    Iteration,
    RunningModels,
    generations_in_a_row,
)
from automap.executor.runtime.ops import RunningOps
from automap.executor.runtime.planned import (
    device_numbers,
    iterations_ahead,
    planned_calls,
    streamed_calls,
    sync_id,
)
from automap.executor.runtime.processes import Processes
from automap.executor.runtime.row_draws import PromptSource, RowDraws, RowSource
from automap.executor.runtime.runnable import check_plan, program_of
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future
from automap.executor.runtime.versions import Versions
from automap.executor.settings import RunSettings
from automap.executor.telemetry.call_records import CallRecord
from automap.executor.workers.model_setup import model_setups
from automap.executor.workers.model_worker import Factories, ModelWorker
from automap.executor.workers.row_references import BLOCK_BYTES, Rows
from automap.planner import Plan
from automap.planner.dataflow import Program
from automap.planner.job import resolve
from automap.planner.plan import Parallelism


@dataclass(frozen=True, slots=True)
class _Begun:
    """An iteration whose calls were made."""

    number: int
    started: float
    ops: RunningOps
    summary: Future[dict[str, float]] | None


class Controller:
    """The processes of a plan, from `start` (or `with`) to `close`.

    Ray must be initialised. Whatever fails, `close` frees every process and placement group.
    """

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        *,
        factories: Factories,
        program: Program | None = None,
        worker: type[ModelWorker] = ModelWorker,
        cancel: threading.Event | None = None,
        on_call: Callable[[FinishedCall], None] = lambda call: None,
        environment: Mapping[str, str] | None = None,
        cluster_may_grow: bool = False,
        on_state: Callable[[str], None] = lambda state: None,
        block_bytes: int = BLOCK_BYTES,
        finished: FinishedResponses | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            plan: What to run, and where.
            settings: Everything that a plan leaves open.
            factories: Build the engines.
            program: Instead of the one that the plan or the settings name.
            worker: A subclass with further methods, perhaps.
            cancel: Once set, the run stops within seconds.
            on_call: Gets every call as it ends; must be quick.
            environment: Variables of the processes, set before they import anything.
            cluster_may_grow: Wait for nodes that an autoscaler may add.
            on_state: Told what is waited for, if others hold devices, and once they are ours.
            block_bytes: In which results are stored.
            finished: Where continuous rollouts keep responses; None: a run that resumes generates
                them again.

        Raises:
            RunError: the plan or the settings cannot be run.
        """
        self.plan = plan
        self.settings = settings
        self.program = program or program_of(plan, settings)
        check_plan(plan, settings, self.program)
        self.job = resolve(plan.spec, program=self.program, with_profiles=False)
        self.placement = plan.placement()
        self.setups = model_setups(self.job, self.placement, settings)
        self.multiplier = settings.algorithm.initial_multiplier
        self._algorithm = resolve_settings(
            settings.algorithm, algorithm=self.program.name, kl=plan.spec.workload.kl
        )
        self._cancel = cancel or threading.Event()
        self._on_call = on_call
        self.scheduler = Scheduler(self._check, self._ended)
        self._processes = Processes(
            plan,
            settings,
            self.setups,
            self.scheduler,
            factories=factories,
            worker=worker,
            check=self._check,
            environment=environment,
            cluster_may_grow=cluster_may_grow,
            on_state=on_state,
            block_bytes=block_bytes,
        )
        self._planned = planned_calls(plan)
        self._streamed = streamed_calls(plan)
        self._calls = {call.id: call for call in self.placement.calls}
        self.is_continuous = bool(plan.spec.search.continuous_rollouts)
        """Whether responses flow, and an iteration takes what has come."""
        self.ahead = 0 if self.is_continuous else iterations_ahead(self._planned)
        """How many iterations the plan begins before one ends."""
        self.total = settings.iterations or plan.spec.workload.iterations
        """Iterations of the run."""
        self._finished = finished
        self._rows = RowDraws(self.scheduler, plan.spec.workload, block_bytes=block_bytes)
        self._flow: ContinuousFlow | None = None
        """From the first iteration on, where responses flow."""
        shadows = {self.setups[home].role: shadow for home, shadow in self._processes.syncs}
        self._versions = Versions(plan.staleness, shadows)
        self._begun: deque[_Begun] = deque()
        self._expected = 0
        self._last_end = 0.0

    # Start and end

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(self) -> None:
        """Reserve devices, start processes, build workers with their weights.

        Raises:
            PlacementError, StartError, CallError, RunCancelledError: nothing is left running.
        """
        try:
            self._processes.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes and give everything back; may be called again."""
        self.scheduler.close()
        self._processes.close()

    @property
    def groups(self) -> dict[str, WorkerGroup]:
        """Copy → its workers."""
        return self._processes.groups

    @property
    def functions(self) -> dict[str, WorkerGroup]:
        """Role → the worker of its function."""
        return self._processes.functions

    # State

    def save_state(self, checkpoint: Path) -> dict[str, Parallelism]:
        """Begin to write the state of every role that trains into a folder of its name.

        Returns as soon as training may go on: role → layout. `finish_save` must follow.

        Raises:
            CallError: a worker could not.
        """
        saves = []
        for group in self._trained().values():
            saves.append(group.call("save_state", (checkpoint,)))
        self.scheduler.wait(*saves)
        return {setup.role: setup.copy.layout for setup in self.setups.values() if setup.trains}

    def finish_save(self) -> None:
        """Wait until what `save_state` began is on the disk; CallError if it cannot be written.

        Iterations that were begun go on, in the plan's order.
        """
        groups = self._trained().values()
        self.scheduler.wait(*(each.call("finish_save", goes_first=True) for each in groups))

    def load_state(self, checkpoint: Path) -> None:
        """Take back what `save_state` wrote; CallError if the folder does not hold it."""
        for group in self._trained().values():
            group.call("load_state", (checkpoint,))
        self.scheduler.wait()

    def _trained(self) -> dict[str, WorkerGroup]:
        return {
            setup.role: self.groups[copy_id]
            for copy_id, setup in self.setups.items()
            if setup.trains
        }

    # Iterations

    def iterate(
        self, number: int, prompts: PromptSource, *, pretrain: RowSource | None = None
    ) -> FinishedIteration:
        """Run the program once, with no other iteration beside it; see `begin`."""
        self.begin(number, prompts, pretrain=pretrain, last=number)
        return self.finish()

    def begin(
        self, number: int, prompts: PromptSource, *, last: int, pretrain: RowSource | None = None
    ) -> None:
        """Make the calls of an iteration, which run as the plan orders them.

        Args:
            number: The iteration, from 1; the order of rows and the sampling depend on it.
            prompts: Where its prompts come from.
            last: The last iteration that will begin before all that were begun have ended: up to
                it, the plan's order holds between iterations.
            pretrain: Where pre-train rows come from, if the workload has that loss.

        Raises:
            CallError, RunCancelledError, RunError: what ended the run.
        """
        started = self.scheduler.seconds()
        if not self._begun:
            self._versions.begin(number - 1)
            self._expected = number - 1
        if not self.is_continuous:
            for each in range(self._expected + 1, min(number + self.ahead, last) + 1):
                self.scheduler.expect(self._planned, each)
                self._expected = each
        self.scheduler.enter(number)
        given, responses = None, None
        if self.is_continuous:
            self._flow = self._flow or self._start_flow(number)
            given, responses = self._flow.batch(number, prompts, last)
        iteration = self._iteration(number, responses)
        draw = self._rows.draws(prompts)
        ops = RunningOps(
            iteration,
            multiplier=self._begun[-1].ops.next_multiplier if self._begun else self.multiplier,
            fresh_prompts=draw,
            pretrain_rows=None
            if pretrain is None
            else lambda count: self._rows.sequences(pretrain.next_batch(count)),
        )
        if not self.is_continuous:
            for home, shadow in self._processes.syncs:
                self._sync(home, shadow)
        self.program.run(RunningModels(iteration), given or draw(), ops)  # type: ignore[arg-type]
        if self._flow is None:
            self.scheduler.expect((), number)
        elif number < self.total:
            ((home, _),) = self._processes.syncs
            self._flow.trained(iteration.updates[self.setups[home].role])
        self._begun.append(_Begun(number, started, ops, iteration.summary()))
        if number < self.total and not self.is_continuous:
            self._rows.prepare(prompts)

    def _iteration(self, number: int, responses: Future[Rows] | None) -> Iteration:
        """What the program's handles and operations share."""
        assert self._processes.numerics is not None, "start was called"
        return Iteration(
            number=number,
            scheduler=self.scheduler,
            groups=self.groups,
            functions=self.functions,
            numerics=self._processes.numerics,
            calls=self._calls,
            homes={copy.role: copy.id for copy in self.placement.copies if copy.kind == "home"},
            workload=self.plan.spec.workload,
            settings=self._algorithm,
            seed=self.settings.seed,
            versions=self._versions,
            streamed=self._streamed,
            steps_per_turn=self.settings.rollout.steps_per_turn,
            keeps_device=generations_in_a_row(self._planned, self._calls),
            responses=responses,
        )

    def _start_flow(self, first: int) -> ContinuousFlow:
        """Have engines generate without end from an iteration on, once weights have come."""
        call = next(call for call in self._calls.values() if call.kind == "generate")
        assert call.copy_id is not None, "check_plan: it has a copy"
        workload, staleness = self.plan.spec.workload, self.plan.staleness
        rollouts = ContinuousRollouts(
            self.scheduler,
            self.groups[call.copy_id],
            call_id=call.id,
            versions=self._versions,
            scorers=self.functions,
            workload=workload,
            staleness=staleness,
            settings=self.settings.rollout,
            finished=self._finished,
        )
        ((home, shadow),) = self._processes.syncs
        return ContinuousFlow(
            self.scheduler,
            rollouts,
            lambda: self._sync(home, shadow),
            num_prompts=workload.prompts_per_iteration,
            staleness=staleness,
            first=first,
        )

    def finish(self) -> FinishedIteration:
        """Wait for the end of the first iteration that was begun and has not been finished.

        Raises:
            CallError, RunCancelledError, RunError: what ended the run.
        """
        begun = self._begun[0]
        self.scheduler.leave(begun.number)
        self.multiplier = begun.ops.multiplier
        metrics = {} if begun.summary is None else begun.summary.result()
        started, self._last_end = max(begun.started, self._last_end), self.scheduler.seconds()
        self._begun.popleft()
        return FinishedIteration(
            number=begun.number,
            started=started,
            ended=self._last_end,
            calls=tuple(self.scheduler.take_records(begun.number)),
            multiplier=self.multiplier,
            rollout_metrics=metrics,
        )

    def _ended(self, call: FinishedCall) -> None:
        self._versions.ended(call)
        self._on_call(call)

    def records(self, iteration: FinishedIteration) -> list[CallRecord]:
        """An iteration's calls as reports want them."""
        return call_records(
            iteration,
            device_numbers=device_numbers(self.plan),
            unix_zero=time.time() - self.scheduler.seconds(),
        )

    def _sync(self, home: str, shadow: str) -> Future[list[object]]:
        return call_together(
            self.scheduler,
            [(self.groups[home], "sync_weights", ()), (self.groups[shadow], "sync_weights", ())],
            call_id=sync_id(self.setups[home].role),
            timeout_seconds=self.settings.call_timeout_seconds,
        )

    def _check(self) -> None:
        if self._cancel.is_set():
            raise RunCancelledError("the run was cancelled")


def run_iterations(
    controller: Controller,
    prompts: PromptSource,
    *,
    pretrain: RowSource | None = None,
    first: int = 1,
    after_iteration: Callable[[FinishedIteration], None] = lambda record: None,
    ends_alone: Callable[[int], bool] = lambda number: False,
) -> list[FinishedIteration]:
    """All iterations that are left, from `first` on, as many at a time as the plan overlaps.

    Args:
        controller: Started; its caller closes it.
        prompts: Where prompts come from; already past those of earlier iterations.
        pretrain: Pre-train rows, if the workload has that loss.
        first: The number of the first iteration; above 1 for a run that is resumed.
        after_iteration: Reports, and saves; iterations that were begun go on meanwhile.
        ends_alone: After which iterations nothing of a later one may have begun: for checkpoints,
            so that what is resumed is all there is. Continuous rollouts do not end for them.

    Raises:
        CallError, RunCancelledError, RunError: what ended the run.
    """
    total = controller.total
    records: list[FinishedIteration] = []
    begun = first - 1
    for number in range(first, total + 1):
        last = total
        if not controller.is_continuous:
            last = next((each for each in range(number, total) if ends_alone(each)), total)
        while begun < min(number + controller.ahead, last):
            begun += 1
            controller.begin(begun, prompts, pretrain=pretrain, last=last)
        records.append(controller.finish())
        after_iteration(records[-1])
    return records
