"""All processes of a plan on Ray, with the workers in them: reserved, started, built, ended."""

from collections.abc import Callable, Mapping
from uuid import uuid4

from automap.executor.layout import RankLayout
from automap.executor.runtime.group import WorkerGroup, call_together
from automap.executor.runtime.placement import DeviceRange, Reservation, device_pools, reserve
from automap.executor.runtime.process_sets import ProcessSet, end_local
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.settings import RunSettings
from automap.executor.workers.cpu_workers import FunctionWorker, NumericsWorker
from automap.executor.workers.model_setup import ModelSetup, num_scoring_processes
from automap.executor.workers.model_worker import Factories, ModelWorker, SyncPlace
from automap.executor.workers.process import Identity, ProcessContext
from automap.executor.workers.rendezvous import Rendezvous
from automap.executor.workers.row_references import BLOCK_BYTES
from automap.planner import Plan
from automap.planner.spec import ClusterSpec

_COLLECTIVE_GRACE_SECONDS = 60.0
"""Collectives give up so much later than the controller, which knows more to say."""


class Processes:
    """From `start` to `close`, which frees every process and placement group."""

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        setups: Mapping[str, ModelSetup],
        scheduler: Scheduler,
        *,
        factories: Factories,
        worker: type[ModelWorker] = ModelWorker,
        check: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] | None = None,
        cluster_may_grow: bool = False,
        on_state: Callable[[str], None] = lambda state: None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """Nothing is started yet.

        Args:
            plan: Which copies lie where.
            settings: Time limits, and the functions.
            setups: Setup of every copy of a model.
            scheduler: That the workers' calls go through.
            factories: Build the engines.
            worker: A subclass with further methods, perhaps.
            check: Called while waiting; may raise to give up.
            environment: Variables of the processes, set before they import anything.
            cluster_may_grow: Wait for nodes that an autoscaler may add.
            on_state: Told what is waited for, if others hold devices, and once they are ours.
            block_bytes: In which results are stored.
        """
        self.run_id = f"automap-{uuid4().hex[:12]}"
        self.groups: dict[str, WorkerGroup] = {}
        """Copy → its workers."""
        self.functions: dict[str, WorkerGroup] = {}
        """Role → the worker of its function."""
        self.numerics: WorkerGroup | None = None
        """The worker of numeric steps, from `start` on."""
        self.syncs = _syncs(plan)
        """Home and shadow of every role that has both."""
        self._plan = plan
        self._settings = settings
        self._setups = setups
        self._scheduler = scheduler
        self._factories = factories
        self._worker = worker
        self._check = check
        self._environment = dict(environment or {})
        self._cluster_may_grow = cluster_may_grow
        self._on_state = on_state
        self._block_bytes = block_bytes
        self._reservation: Reservation | None = None
        self._sets: list[ProcessSet] = []
        self._identities: list[Identity] = []

    def start(self) -> None:
        """Reserve devices, start processes, build workers with their weights.

        Raises:
            PlacementError, StartError, CallError, RunCancelledError: `close` must follow.
        """
        self._start()
        self._build()

    def close(self) -> None:
        """End all processes and give everything back; may be called again."""
        for processes in self._sets:
            processes.kill()
        if self._reservation is not None:
            self._reservation.release()
        end_local(self._identities, timeout_seconds=3.0)
        for processes in self._sets:
            processes.clean_up()
        self._sets.clear()
        self._identities.clear()
        self.groups.clear()
        self.functions.clear()
        self.numerics = None
        self._reservation = None

    def _start(self) -> None:
        spec = self._plan.spec
        assert isinstance(spec.cluster, ClusterSpec), "the plan's spec was resolved"
        ranges = {copy.id: DeviceRange.of(copy) for copy in self._plan.copies}
        self._reservation = reserve(
            ranges.values(),
            device_pools(spec.cluster),
            timeout_seconds=self._settings.start_timeout_seconds,
            cluster_may_grow=self._cluster_may_grow,
            check=self._check,
            on_wait=self._on_state,
        )
        self._on_state("starting workers")
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
        functions = [role for role, model in spec.models.items() if not model.needs_gpus]
        hosts = {name: self._on_host(name) for name in ("numerics", *functions)}
        self._sets = [*sets.values(), *hosts.values()]
        self._join()
        for copy_id, where in ranges.items():
            self.groups[copy_id] = self._model_group(self._setups[copy_id], sets[where])
        for role in functions:
            self.functions[role] = self._function_group(role, hosts[role])
        self.numerics = WorkerGroup(
            "numerics",
            NumericsWorker,
            hosts["numerics"],
            RankLayout(),
            self._scheduler,
            timeout_seconds=self._settings.call_timeout_seconds,
        )

    def _join(self) -> None:
        timeout = self._settings.call_timeout_seconds + _COLLECTIVE_GRACE_SECONDS
        for processes in self._sets:
            self._identities += processes.join(
                timeout_seconds=self._settings.start_timeout_seconds,
                collective_timeout_seconds=timeout,
                check=self._check,
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
            self._scheduler,
            copy=setup.copy.id,
            timeout_seconds=self._settings.call_timeout_seconds,
            detail="" if setup.copy.id == setup.role else f"copy {setup.copy.id}",
        )

    def _function_group(self, role: str, processes: ProcessSet) -> WorkerGroup:
        function = self._settings.functions[role]
        return WorkerGroup(
            role,
            FunctionWorker,
            processes,
            RankLayout(),
            self._scheduler,
            timeout_seconds=function.timeout_seconds,
            detail=f"function {function.path}",
        )

    def _build(self) -> None:
        timeout = self._settings.start_timeout_seconds
        worker, factories = self._worker, self._factories
        tokenizer = self._settings.data.tokenizer

        # Sent to the processes by pickle: they must not take this object with them.
        def model(setup: ModelSetup) -> Callable[[ProcessContext], object]:
            return lambda context: worker(setup, context, factories)

        def function(path: str, count: int) -> Callable[[ProcessContext], object]:
            return lambda context: FunctionWorker(path, tokenizer=tokenizer, num_processes=count)

        # Before the builds, behind which the answer would wait.
        meetings = {pair: self._opened(*pair) for pair in self.syncs}
        for copy_id, group in self.groups.items():
            group.build(model(self._setups[copy_id]), timeout_seconds=timeout)
        for role, group in self.functions.items():
            path = self._settings.functions[role].path
            count = num_scoring_processes(self._plan.spec, role)
            group.build(function(path, count), timeout_seconds=timeout)
        assert self.numerics is not None, "the processes were started"
        self.numerics.build(lambda context: NumericsWorker(), timeout_seconds=timeout)
        for (home, shadow), meeting in meetings.items():
            self._connect(home, shadow, meeting)
        self._scheduler.wait()
        self._scheduler.take_records()

    def _opened(self, home: str, shadow: str) -> Rendezvous:
        return self.groups[home].processes.open_rendezvous(
            self.groups[shadow].processes,
            timeout_seconds=self._settings.start_timeout_seconds,
            check=self._check,
        )

    def _connect(self, home: str, shadow: str, meeting: Rendezvous) -> None:
        place = SyncPlace(meeting, 0, self._setups[home], self._setups[shadow])
        call_together(
            self._scheduler,
            [(self.groups[home], "connect", (place,)), (self.groups[shadow], "connect", (place,))],
            call_id=f"{self._setups[home].role}.connect",
            timeout_seconds=self._settings.start_timeout_seconds,
        )


def _syncs(plan: Plan) -> list[tuple[str, str]]:
    homes = {copy.role: copy.id for copy in plan.copies if copy.kind == "home"}
    return [(homes[copy.role], copy.id) for copy in plan.copies if copy.kind == "shadow"]
