"""Runs a plan: the program that calls its processes, iteration by iteration."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

import torch

from automap.executor.algorithms.defaults import resolve_settings
from automap.executor.batch import Batch
from automap.executor.errors import RunCancelledError
from automap.executor.runtime.finished_calls import FinishedCall, FinishedIteration, call_records
from automap.executor.runtime.group import WorkerGroup, call_together
from automap.executor.runtime.handles import (
    Iteration,
    RunningModels,
    Sequences,
    generations_in_a_row,
)
from automap.executor.runtime.ops import RunningOps
from automap.executor.runtime.planned import device_numbers, planned_calls, sync_id
from automap.executor.runtime.processes import Processes
from automap.executor.runtime.runnable import check_plan, program_of
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.settings import RunSettings
from automap.executor.telemetry.call_records import CallRecord
from automap.executor.workers.model_setup import model_setups
from automap.executor.workers.model_worker import Factories, ModelWorker
from automap.executor.workers.row_references import BLOCK_BYTES, put
from automap.planner import Plan
from automap.planner.dataflow import Program
from automap.planner.job import resolve
from automap.planner.plan import Parallelism

logger = logging.getLogger(__name__)


class RowSource(Protocol):
    """Endless rows: prompts (`executor.data.PromptData`), or pre-train text (column `tokens`)."""

    def next_batch(self, num_rows: int, /) -> Batch:
        """The next rows."""
        ...


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
        on_wait: Callable[[str], None] = lambda what: None,
        block_bytes: int = BLOCK_BYTES,
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
            on_wait: Told once what is waited for, if others hold devices.
            block_bytes: In which results are stored.

        Raises:
            RunError: the plan or the settings cannot be run.
        """
        check_plan(plan, settings)
        self.plan = plan
        self.settings = settings
        self.program = program or program_of(plan, settings)
        self.job = resolve(plan.spec, program=self.program, with_profiles=False)
        self.placement = plan.placement()
        self.setups = model_setups(self.job, self.placement, settings)
        self.multiplier = settings.algorithm.initial_multiplier
        self._algorithm = resolve_settings(
            settings.algorithm, algorithm=self.program.name, kl=plan.spec.workload.kl
        )
        self._cancel = cancel or threading.Event()
        self._block_bytes = block_bytes
        self.scheduler = Scheduler(self._check, on_call)
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
            on_wait=on_wait,
            block_bytes=block_bytes,
        )
        if plan.staleness or not plan.iteration_barrier:
            logger.warning(
                "the plan lets iterations overlap; they run one after another, so an iteration "
                "takes longer than planned"
            )

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
        for group in self._trained().values():
            group.call("save_state", (checkpoint,))
        self.scheduler.wait()
        return {setup.role: setup.copy.layout for setup in self.setups.values() if setup.trains}

    def finish_save(self) -> None:
        """Wait until what `save_state` began is on the disk; CallError if it cannot be written."""
        for group in self._trained().values():
            group.call("finish_save")
        self.scheduler.wait()

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
        self, number: int, prompts: RowSource, *, pretrain: RowSource | None = None
    ) -> FinishedIteration:
        """Run the program once.

        Args:
            number: The iteration, from 1; the order of rows and the sampling depend on it.
            prompts: Where its prompts come from.
            pretrain: Where pre-train rows come from, if the workload has that loss.

        Raises:
            CallError, RunCancelledError, RunError: what ended the run.
        """
        assert self._processes.numerics is not None, "start was called"
        started = self.scheduler.seconds()
        planned = planned_calls(self.plan)
        calls = {call.id: call for call in self.placement.calls}
        iteration = Iteration(
            number=number,
            scheduler=self.scheduler,
            groups=self.groups,
            functions=self.functions,
            numerics=self._processes.numerics,
            calls=calls,
            homes={copy.role: copy.id for copy in self.placement.copies if copy.kind == "home"},
            workload=self.plan.spec.workload,
            settings=self._algorithm,
            seed=self.settings.seed,
            keeps_device=generations_in_a_row(planned, calls),
        )
        draw = self._prompt_draw(prompts)
        ops = RunningOps(
            iteration,
            multiplier=self.multiplier,
            fresh_prompts=draw,
            pretrain_rows=None
            if pretrain is None
            else lambda count: self._sequences(pretrain.next_batch(count)),
        )
        self.scheduler.expect(planned)
        for home, shadow in self._processes.syncs:
            self._sync(home, shadow)
        self.program.run(RunningModels(iteration), draw(), ops)  # type: ignore[arg-type]
        self.scheduler.expect(())
        summary = iteration.summary()
        self.scheduler.wait()
        self.multiplier = ops.multiplier
        return FinishedIteration(
            number=number,
            started=started,
            ended=self.scheduler.seconds(),
            calls=tuple(self.scheduler.take_records()),
            multiplier=self.multiplier,
            rollout_metrics={} if summary is None else summary.result(),
        )

    def records(self, iteration: FinishedIteration) -> list[CallRecord]:
        """An iteration's calls as reports want them."""
        return call_records(
            iteration,
            device_numbers=device_numbers(self.plan),
            unix_zero=time.time() - self.scheduler.seconds(),
        )

    def _prompt_draw(self, prompts: RowSource) -> Callable[[], Sequences]:
        """Full batches of prompts, their groups numbered through the iteration."""
        count = self.plan.spec.workload.prompts_per_iteration
        drawn = 0

        def draw() -> Sequences:
            nonlocal drawn
            batch = prompts.next_batch(count).with_columns(
                group=torch.arange(drawn * count, (drawn + 1) * count)
            )
            drawn += 1
            return self._sequences(batch)

        return draw

    def _sequences(self, batch: Batch) -> Sequences:
        rows = put(batch, block_bytes=self._block_bytes)
        return Sequences(self.scheduler.derive(lambda: rows))

    def _sync(self, home: str, shadow: str) -> None:
        call_together(
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
    prompts: RowSource,
    *,
    pretrain: RowSource | None = None,
    first: int = 1,
    after_iteration: Callable[[FinishedIteration], None] = lambda record: None,
) -> list[FinishedIteration]:
    """All iterations that are left, from `first` on.

    Args:
        controller: Started; its caller closes it.
        prompts: Where prompts come from; already past those of earlier iterations.
        pretrain: Pre-train rows, if the workload has that loss.
        first: The number of the first iteration; above 1 for a run that is resumed.
        after_iteration: Reports, and saves; nothing runs meanwhile.

    Raises:
        CallError, RunCancelledError, RunError: what ended the run.
    """
    total = controller.settings.iterations or controller.plan.spec.workload.iterations
    records = []
    for number in range(first, total + 1):
        records.append(controller.iterate(number, prompts, pretrain=pretrain))
        after_iteration(records[-1])
    return records
