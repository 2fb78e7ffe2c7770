"""Sets of processes, and the groups of workers in them that a program calls."""

import os
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from automap.executor.errors import StartError
from automap.executor.runtime.blame import CallName
from automap.executor.runtime.placement import Device, DeviceRange, Reservation
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future, Task, value_of
from automap.executor.workers.process import (
    Identity,
    ProcessActor,
    Reply,
    WorkerFactory,
    environment_of,
    packed,
    start_ticks,
)
from automap.executor.workers.protocols import Layout, Protocol, protocol_of
from automap.executor.workers.rendezvous import Rendezvous
from automap.executor.workers.row_references import BLOCK_BYTES

_STACK_SECONDS = 2.0
_POLL_SECONDS = 0.1


Rounds = Generator[tuple[str, Sequence[object], Mapping[str, object]], Any, object]
"""Method, arguments by position and by name of each round; the result of the call at last."""


@dataclass(frozen=True, slots=True)
class ProcessSet:
    """Processes on consecutive devices, rank by rank: one torch.distributed world.

    A set without devices is one process on the controller's node, without a world: it runs what
    needs no device, beside everything else.
    """

    name: str
    devices: tuple[Device, ...]
    processes: tuple[Any, ...]
    identities: list[Identity] = field(default_factory=list)
    """One a process, rank by rank, once `join` has returned."""
    _meetings: list[Rendezvous] = field(default_factory=list)

    @classmethod
    def on_devices(
        cls,
        where: DeviceRange,
        reservation: Reservation,
        *,
        run_id: str,
        environment: Mapping[str, str] | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> "ProcessSet":
        """Start a process on each device of the range; `join` makes them a world."""
        processes = [
            ProcessActor.options(
                name=f"{run_id}/{where}/{rank}",
                namespace="automap",
                runtime_env=environment_of(environment or {}),
                **reservation.actor_options(device),
            ).remote(rank, where.count, run_id, block_bytes, on_gpu=reservation.on_gpu(device))
            for rank, device in enumerate(where.devices)
        ]
        return cls(str(where), where.devices, tuple(processes))

    @classmethod
    def on_host(
        cls,
        name: str,
        *,
        run_id: str,
        environment: Mapping[str, str] | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> "ProcessSet":
        """Start one process beside the controller."""
        node = ray.get_runtime_context().get_node_id()
        process = ProcessActor.options(
            name=f"{run_id}/{name}",
            namespace="automap",
            num_cpus=0,
            runtime_env=environment_of(environment or {}),
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
        ).remote(0, 1, run_id, block_bytes, on_gpu=False)
        return cls(name, (), (process,))

    def join(
        self,
        *,
        timeout_seconds: float,
        collective_timeout_seconds: float,
        check: Callable[[], None] = lambda: None,
    ) -> list[Identity]:
        """Wait for the processes and connect them; `check` is called meanwhile.

        Raises:
            StartError: they do not come up in time, or one cannot start.
        """
        deadline = time.monotonic() + timeout_seconds
        self.identities[:] = self._wait(
            [each.identity.remote() for each in self.processes], deadline, check
        )
        if self.devices:
            meeting = self._opened(self.identities, deadline, check)
            joining = [
                each.join.remote(meeting, timeout_seconds=collective_timeout_seconds)
                for each in self.processes
            ]
            self._wait(joining, deadline, check)
        return self.identities

    def open_rendezvous(
        self, other: "ProcessSet", *, timeout_seconds: float, check: Callable[[], None]
    ) -> Rendezvous:
        """One of rank 0, where the processes of this set and of another meet; both have joined."""
        deadline = time.monotonic() + timeout_seconds
        return self._opened([*self.identities, *other.identities], deadline, check)

    def _opened(
        self, members: Sequence[Identity], deadline: float, check: Callable[[], None]
    ) -> Rendezvous:
        alone = len({member.node_id for member in members}) == 1
        opening = self.processes[0].open_rendezvous.remote(on_one_machine=alone)
        self._meetings.extend(self._wait([opening], deadline, check))
        return self._meetings[-1]

    def _wait(self, references: list[Any], deadline: float, check: Callable[[], None]) -> list[Any]:
        left = references
        try:
            while left:
                done, left = ray.wait(left, num_returns=len(left), timeout=_POLL_SECONDS)
                ray.get(done)
                check()
                if left and time.monotonic() > deadline:
                    late = [rank for rank, each in enumerate(references) if each in left]
                    raise StartError(
                        f"the processes of ranks {late} on {self.name} did not start in time"
                    )
            return ray.get(references)
        except ray.exceptions.RayError as error:
            raise StartError(f"a process on {self.name} could not start: {error}") from error

    def stacks(self, ranks: Sequence[int]) -> dict[int, str | None]:
        """Where the given ranks are at this moment; None: no answer."""
        references = {rank: self.processes[rank].stack.remote() for rank in ranks}
        done, _ = ray.wait(
            list(references.values()), num_returns=len(references), timeout=_STACK_SECONDS
        )
        found: dict[int, str | None] = {}
        for rank, reference in references.items():
            try:
                found[rank] = ray.get(reference) if reference in done else None
            except ray.exceptions.RayError:
                found[rank] = None
        return found

    def kill(self) -> None:
        """End the processes, whatever they do."""
        for process in self.processes:
            ray.kill(process)

    def clean_up(self) -> None:
        """Remove what they have left on this machine, once they have ended."""
        here = ray.get_runtime_context().get_node_id() if self._meetings else ""
        for meeting in self._meetings:
            if self.identities[0].node_id == here:
                meeting.remove()
        self._meetings.clear()


class WorkerGroup:
    """The workers of one role, or of one copy of it: their methods, called on all ranks together.

    `group.log_probs(rollout)` distributes the arguments by the method's protocol and returns a
    future of what it collects, at once. Futures are taken as arguments.
    """

    def __init__(
        self,
        role: str,
        worker: type,
        processes: ProcessSet,
        layout: Layout,
        scheduler: Scheduler,
        *,
        copy: str = "",
        timeout_seconds: float = float("inf"),
        detail: str = "",
    ) -> None:
        """No call is made.

        Args:
            role: As records and errors name it.
            worker: The class whose methods can be called.
            processes: Where the workers are, or will be built.
            layout: How protocols see the ranks.
            scheduler: The run's scheduler.
            copy: Under which name the processes keep the workers; default: the role.
            timeout_seconds: Limit of each call, from its start.
            detail: What messages say besides, for example a function's name.
        """
        if layout.world_size != len(processes.processes):
            raise ValueError(
                f"{role}: the layout has {layout.world_size} ranks, but there are "
                f"{len(processes.processes)} processes"
            )
        self.role = role
        self.processes = processes
        self.layout = layout
        self._worker = worker
        self._scheduler = scheduler
        self._copy = copy or role
        self._timeout_seconds = timeout_seconds
        self._detail = detail

    def build(self, factory: WorkerFactory, *, timeout_seconds: float) -> Future[None]:
        """Make the workers in their processes."""

        def start() -> dict[int, "ray.ObjectRef[Reply | bytes]"]:
            return {
                rank: process.build.remote(self._copy, factory)
                for rank, process in enumerate(self.processes.processes)
            }

        return self._scheduler.submit(
            Task(
                name=self._name("build", f"{self._copy}.build"),
                devices=frozenset(self.processes.devices),
                inputs=(),
                start=start,
                finish=lambda replies: None,
                stacks=self.processes.stacks,
                timeout_seconds=timeout_seconds,
            )
        )

    def __getattr__(self, method: str) -> Callable[..., Future[Any]]:
        if method.startswith("_") or not hasattr(self._worker, method):
            raise AttributeError(f"{self._worker.__name__} of {self.role} has no method {method!r}")
        protocol_of(getattr(self._worker, method))

        def call(*args: object, **kwargs: object) -> Future[Any]:
            return self.call(method, args, kwargs)

        return call

    def call(
        self,
        method: str,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        call_id: str | None = None,
        timeout_seconds: float | None = None,
        goes_first: bool = False,
        in_background: bool = False,
    ) -> Future[Any]:
        """Call a method under the plan's name for it, or before all that waits to be called.

        In the background: no iteration waits for its end.
        """
        launch = self._launch(method, args, kwargs or {})
        return self._scheduler.submit(
            Task(
                name=self._name(method, call_id or f"{self.role}.{method}"),
                devices=frozenset(self.processes.devices),
                inputs=launch.inputs,
                start=launch.start,
                finish=launch.finish,
                stacks=self.processes.stacks,
                processes=self.processes,
                timeout_seconds=timeout_seconds or self._timeout_seconds,
                goes_first=goes_first,
                in_background=in_background,
            )
        )

    def call_in_rounds(
        self, rounds: "Rounds", *, method: str, inputs: Sequence[Future[Any]], call_id: str
    ) -> Future[Any]:
        """Call methods one after the other as one call, which keeps the devices until the last.

        Args:
            rounds: Yields what is called next and is sent its result; what it returns is the
                call's. It runs under the scheduler's lock: it may resolve futures, not wait.
            method: What records and errors name.
            inputs: What must be there before the first round.
            call_id: The plan's name of the call.
        """
        under_way: list[_Launch] = []
        value: list[object] = []

        def begin(launch: "_Launch") -> "dict[int, ray.ObjectRef[Reply | bytes]]":
            under_way[:] = [launch]
            return launch.start()

        def again(replies: Mapping[int, Reply]) -> "dict[int, ray.ObjectRef[Reply | bytes]]":
            try:
                following = rounds.send(under_way[0].finish(replies))
            except StopIteration as stop:
                value.append(stop.value)
                return {}
            return begin(self._launch(*following))

        return self._scheduler.submit(
            Task(
                name=self._name(method, call_id),
                devices=frozenset(self.processes.devices),
                inputs=tuple(inputs),
                start=lambda: begin(self._launch(*next(rounds))),
                finish=lambda _: value[0],
                again=again,
                stacks=self.processes.stacks,
                processes=self.processes,
                timeout_seconds=self._timeout_seconds,
            )
        )

    def _launch(
        self, method: str, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> "_Launch":
        protocol = protocol_of(getattr(self._worker, method))
        return _Launch(self, self._copy, protocol, method, tuple(args), dict(kwargs))

    def _name(self, method: str, call_id: str) -> CallName:
        return CallName(call_id, self.role, method, self.layout.world_size, self._detail)


@dataclass(frozen=True, slots=True)
class _Launch:
    """A call of one group's method, not made yet."""

    group: WorkerGroup
    copy: str
    protocol: Protocol
    method: str
    args: tuple[object, ...]
    kwargs: dict[str, object]

    @property
    def inputs(self) -> tuple[Future[Any], ...]:
        return tuple(
            each for each in (*self.args, *self.kwargs.values()) if isinstance(each, Future)
        )

    def start(self) -> dict[int, "ray.ObjectRef[Reply | bytes]"]:
        layout = self.group.layout
        calls = self.protocol.calls(
            layout,
            [value_of(each) for each in self.args],
            {name: value_of(each) for name, each in self.kwargs.items()},
        )
        kept = set(self.protocol.collected(layout))
        processes = self.group.processes.processes
        return {
            rank: process.call.remote(packed(self.copy, self.method, call, rank in kept))
            for rank, (process, call) in enumerate(zip(processes, calls, strict=True))
            if call is not None
        }

    def finish(self, replies: Mapping[int, Reply]) -> object:
        layout = self.group.layout
        outputs = [
            replies[rank].value if rank in replies else None for rank in range(layout.world_size)
        ]
        return self.protocol.collect(layout, outputs)


def call_together(
    scheduler: Scheduler,
    parts: Sequence[tuple[WorkerGroup, str, tuple[object, ...]]],
    *,
    call_id: str,
    timeout_seconds: float,
) -> Future[list[Any]]:
    """Call methods of several groups as one call on all their devices; a result of each.

    In records and errors ranks count through the groups, in their order.
    """
    launches = [group._launch(method, args, {}) for group, method, args in parts]
    first = [0]
    for group, _, _ in parts:
        first.append(first[-1] + group.layout.world_size)

    def start() -> dict[int, "ray.ObjectRef[Reply | bytes]"]:
        return {
            offset + rank: reference
            for offset, launch in zip(first, launches, strict=False)
            for rank, reference in launch.start().items()
        }

    def finish(replies: Mapping[int, Reply]) -> list[object]:
        return [
            launch.finish({r - begin: each for r, each in replies.items() if begin <= r < end})
            for launch, begin, end in zip(launches, first, first[1:], strict=False)
        ]

    def stacks(ranks: Sequence[int]) -> dict[int, str | None]:
        return {
            offset + rank: stack
            for offset, end, (group, _, _) in zip(first, first[1:], parts, strict=False)
            for rank, stack in group.processes.stacks(
                [each - offset for each in ranks if offset <= each < end]
            ).items()
        }

    group, method, _ = parts[0]
    return scheduler.submit(
        Task(
            name=CallName(call_id, group.role, method, first[-1]),
            devices=frozenset(device for each, _, _ in parts for device in each.processes.devices),
            inputs=tuple(each for launch in launches for each in launch.inputs),
            start=start,
            finish=finish,
            stacks=stacks,
            timeout_seconds=timeout_seconds,
        )
    )


def end_local(identities: Sequence[Identity], *, timeout_seconds: float) -> None:
    """Make sure that processes of this node are gone: wait a moment, then SIGKILL."""
    node = ray.get_runtime_context().get_node_id()
    here = [each for each in identities if each.node_id == node]
    deadline = time.monotonic() + timeout_seconds
    while here := [each for each in here if start_ticks(each.pid) == each.start_ticks]:
        if time.monotonic() > deadline:
            for each in here:
                with suppress(ProcessLookupError):  # it has gone since
                    os.kill(each.pid, signal.SIGKILL)
            return
        time.sleep(0.02)
