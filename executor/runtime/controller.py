"""Runs a plan: its processes on Ray, and the program that calls them, iteration by iteration."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from uuid import uuid4

import torch

from executor.algorithms.defaults import resolve_settings
from executor.batch import Batch
from executor.errors import RunCancelledError, RunError
from executor.layout import RankLayout
from executor.records import CallRecord
from executor.runtime.group import ProcessSet, WorkerGroup, call_together, end_local
from executor.runtime.handles import (
    Iteration,
    RunningModels,
    Sequences,
    generations_in_a_row,
)
from executor.runtime.host import FunctionWorker, NumericsWorker
from executor.runtime.ops import RunningOps
from executor.runtime.placement import Device, DeviceRange, Reservation, device_pools, reserve
from executor.runtime.process import Identity, ProcessContext
from executor.runtime.records import FinishedCall, FinishedIteration, call_records
from executor.runtime.rows import BLOCK_BYTES, put
from executor.runtime.schedule import PlannedCall, Scheduler
from executor.runtime.setup import ModelSetup, model_setups, num_scoring_processes
from executor.runtime.worker import Factories, ModelWorker, SyncPlace
from executor.settings import RunSettings
from planner.algorithms import PROGRAMS
from planner.algorithms.program import Program
from planner.own_program import check_program, load_program
from planner.resolve import resolve
from planner.result import Parallelism, Plan
from planner.spec import ClusterSpec

logger = logging.getLogger(__name__)

_COLLECTIVE_GRACE_SECONDS = 60.0
"""Collectives give up so much later than the controller, which knows more to say."""


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
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """Nothing is started yet.

        Args:
            plan: What to run, and where.
            settings: Everything that a plan leaves open.
            factories: Of the engines.
            program: Instead of the one that the plan or the settings name.
            worker: A subclass with further methods, perhaps.
            cancel: Once set, the run stops within seconds.
            on_call: Gets every call as it ends; must be quick.
            environment: Variables of the processes, set before they import anything.
            cluster_may_grow: Wait for nodes that an autoscaler may add.
            block_bytes: In which results are stored.

        Raises:
            RunError: the plan or the settings cannot be run.
        """
        self.plan = plan
        self.settings = settings
        self.run_id = f"automap-{uuid4().hex[:12]}"
        self.program = program or _program_of(plan, settings)
        self.job = resolve(plan.spec, program=self.program)
        self.placement = plan.placement()
        self.setups = model_setups(self.job, self.placement, settings)
        self.multiplier = settings.algorithm.initial_multiplier
        self.groups: dict[str, WorkerGroup] = {}
        self.functions: dict[str, WorkerGroup] = {}
        self._algorithm = resolve_settings(
            settings.algorithm, algorithm=self.program.name, kl=plan.spec.workload.kl
        )
        self._factories = factories
        self._worker = worker
        self._cancel = cancel or threading.Event()
        self._environment = dict(environment or {})
        self._cluster_may_grow = cluster_may_grow
        self._block_bytes = block_bytes
        self._reservation: Reservation | None = None
        self._sets: list[ProcessSet] = []
        self._identities: list[Identity] = []
        self.scheduler = Scheduler(self._check, on_call)
        _check_functions(plan, settings)
        if plan.staleness or not plan.iteration_barrier:
            logger.warning("iterations do not overlap here: every one ends before the next begins")

    # Start and end

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Reserve devices, start processes, build workers with their weights.

        Raises:
            PlacementError, StartError, CallError, RunCancelledError: nothing is left running.
        """
        try:
            self._start_processes()
            self._build_workers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes and give everything back; may be called again."""
        self.scheduler.close()
        for processes in self._sets:
            processes.kill()
        if self._reservation is not None:
            self._reservation.release()
        end_local(self._identities, timeout_seconds=3.0)
        self._sets.clear()
        self._identities.clear()
        self.groups.clear()
        self.functions.clear()
        self._reservation = None

    def _start_processes(self) -> None:
        settings, spec = self.settings, self.plan.spec
        assert isinstance(spec.cluster, ClusterSpec), "the plan's spec was resolved"
        ranges = {copy.id: DeviceRange.of(copy) for copy in self.placement.copies}
        self._reservation = reserve(
            ranges.values(),
            device_pools(spec.cluster),
            timeout_seconds=settings.start_timeout_seconds,
            cluster_may_grow=self._cluster_may_grow,
            check=self._check,
        )
        sets = {
            each: ProcessSet.on_devices(
                each,
                self._reservation,
                run_id=self.run_id,
                environment=self._environment,
                block_bytes=self._block_bytes,
            )
            for each in sorted(set(ranges.values()))
        }
        functions = [role for role, model in spec.models.items() if model.function]
        hosts = {name: self._on_host(name) for name in ("numerics", *functions)}
        self._sets = [*sets.values(), *hosts.values()]
        for processes in self._sets:
            self._identities += processes.join(
                timeout_seconds=settings.start_timeout_seconds,
                collective_timeout_seconds=settings.call_timeout_seconds
                + _COLLECTIVE_GRACE_SECONDS,
                check=self._check,
            )
        for copy_id, where in ranges.items():
            self.groups[copy_id] = self._model_group(self.setups[copy_id], sets[where])
        for role in functions:
            self.functions[role] = self._function_group(role, hosts[role])
        self.numerics = WorkerGroup(
            "numerics",
            NumericsWorker,
            hosts["numerics"],
            RankLayout(),
            self.scheduler,
            timeout_seconds=settings.call_timeout_seconds,
        )

    def _on_host(self, name: str) -> ProcessSet:
        return ProcessSet.on_host(
            name, run_id=self.run_id, environment=self._environment, block_bytes=self._block_bytes
        )

    def _model_group(self, setup: ModelSetup, processes: ProcessSet) -> WorkerGroup:
        return WorkerGroup(
            setup.role,
            self._worker,
            processes,
            setup.protocol_layout,
            self.scheduler,
            copy=setup.copy.id,
            timeout_seconds=self.settings.call_timeout_seconds,
            detail="" if setup.copy.id == setup.role else f"copy {setup.copy.id}",
        )

    def _function_group(self, role: str, processes: ProcessSet) -> WorkerGroup:
        function = self.settings.functions[role]
        return WorkerGroup(
            role,
            FunctionWorker,
            processes,
            RankLayout(),
            self.scheduler,
            timeout_seconds=function.timeout_seconds,
            detail=f"function {function.path}",
        )

    def _build_workers(self) -> None:
        timeout = self.settings.start_timeout_seconds
        worker, factories = self._worker, self._factories
        tokenizer = self.settings.data.tokenizer

        def model(setup: ModelSetup) -> Callable[[ProcessContext], object]:
            return lambda context: worker(setup, context, factories)

        def function(path: str, count: int) -> Callable[[ProcessContext], object]:
            return lambda context: FunctionWorker(path, tokenizer=tokenizer, num_processes=count)

        for copy_id, group in self.groups.items():
            group.build(model(self.setups[copy_id]), timeout_seconds=timeout)
        for role, group in self.functions.items():
            path = self.settings.functions[role].path
            count = num_scoring_processes(self.plan.spec, role)
            group.build(function(path, count), timeout_seconds=timeout)
        self.numerics.build(lambda context: NumericsWorker(), timeout_seconds=timeout)
        for home, shadow in self._syncs():
            self._connect(home, shadow)
        self.scheduler.wait()
        self.scheduler.take_records()

    def _connect(self, home: str, shadow: str) -> None:
        host, port = self.groups[home].processes.open_store(self._check)
        place = SyncPlace(host, port, 0, self.setups[home], self.setups[shadow])
        call_together(
            self.scheduler,
            [(self.groups[home], "connect", (place,)), (self.groups[shadow], "connect", (place,))],
            call_id=f"{self.setups[home].role}.connect",
            timeout_seconds=self.settings.start_timeout_seconds,
        )

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
            number: Of the iteration, from 1; the order of rows and the sampling depend on it.
            prompts: Where its prompts come from.
            pretrain: Where pre-train rows come from, if the workload has that loss.

        Raises:
            CallError, RunCancelledError, RunError: what ended the run.
        """
        started = self.scheduler.seconds()
        planned = planned_calls(self.plan)
        calls = {call.id: call for call in self.placement.calls}
        iteration = Iteration(
            number=number,
            scheduler=self.scheduler,
            groups=self.groups,
            functions=self.functions,
            numerics=self.numerics,
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
        for home, shadow in self._syncs():
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

    def _syncs(self) -> list[tuple[str, str]]:
        """Home and shadow of every role that has both."""
        homes = {copy.role: copy.id for copy in self.placement.copies if copy.kind == "home"}
        return [
            (homes[copy.role], copy.id) for copy in self.placement.copies if copy.kind == "shadow"
        ]

    def _sync(self, home: str, shadow: str) -> None:
        call_together(
            self.scheduler,
            [(self.groups[home], "sync_weights", ()), (self.groups[shadow], "sync_weights", ())],
            call_id=_sync_id(self.setups[home].role),
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


def check_run(plan: Plan, settings: RunSettings) -> dict[str, ModelSetup]:
    """Every copy's set-up, before anything is started.

    Raises:
        RunError: the plan or the settings cannot be run.
    """
    program = _program_of(plan, settings)
    _check_functions(plan, settings)
    return model_setups(resolve(plan.spec, program=program), plan.placement(), settings)


def planned_calls(plan: Plan) -> list[PlannedCall]:
    """Calls and weight syncs in the plan's order, with the devices that they take."""
    devices = {copy.id: frozenset(DeviceRange.of(copy).devices) for copy in plan.copies}
    nothing: frozenset[Device] = frozenset()
    planned: list[tuple[tuple[int, float], PlannedCall]] = [
        (
            (call.stage, call.start_seconds),
            PlannedCall(call.id, devices[call.copy_id] if call.copy_id else nothing),
        )
        for call in plan.calls
    ]
    planned += [
        (
            (sync.stage, sync.start_seconds),
            PlannedCall(_sync_id(sync.role), devices[sync.source_copy] | devices[sync.target_copy]),
        )
        for sync in plan.transitions
    ]
    return [call for _, call in sorted(planned, key=lambda each: each[0])]


def device_numbers(plan: Plan) -> dict[Device, int]:
    """Every device of the plan's cluster, counted over all pools in their order."""
    assert isinstance(plan.spec.cluster, ClusterSpec), "the plan's spec was resolved"
    pools = device_pools(plan.spec.cluster)
    devices = [
        Device(pool.name, number)
        for pool in plan.spec.cluster.pools
        for number in range(pool.num_nodes * pools[pool.name].gpus_per_node)
    ]
    return {device: number for number, device in enumerate(devices)}


def _sync_id(role: str) -> str:
    return f"{role}.sync"


def _program_of(plan: Plan, settings: RunSettings) -> Program:
    """The algorithm's, or the user's own for a dataflow that a spec wrote out."""
    if plan.algorithm is not None:
        if settings.program is not None:
            raise RunError(
                f"program: {settings.program} is given, but the plan is of {plan.algorithm}; leave "
                "it out, or plan with `algorithm: file.py:NAME`"
            )
        return PROGRAMS[plan.algorithm]
    if settings.program is None:
        raise RunError(
            "program: the plan is of an explicit dataflow; say which program runs it, as "
            "module:NAME or file.py:NAME"
        )
    program = load_program(settings.program, field="program")
    check_program(program, plan.spec)
    return program


def _check_functions(plan: Plan, settings: RunSettings) -> None:
    """Refuse functions without a setting, and settings without a function."""
    declared = {role for role, model in plan.spec.models.items() if model.function}
    missing: Sequence[str] = sorted(declared - settings.functions.keys())
    if missing:
        raise RunError(
            f"functions.{missing[0]}: the spec declares this role as a function; say which one, as "
            "module:function or file.py:function"
        )
    superfluous = sorted(settings.functions.keys() - declared)
    if superfluous:
        raise RunError(
            f"functions.{superfluous[0]}: the spec has no such function; it has {sorted(declared)}"
        )
