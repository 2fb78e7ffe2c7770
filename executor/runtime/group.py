"""Groups of workers in a set of processes: what a program calls."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray

from automap.executor.runtime.blame import CallName
from automap.executor.runtime.process_sets import ProcessSet
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.runtime.tasks import Future, Task, value_of
from automap.executor.workers.process import (
    Packed,
    Reply,
    WorkerFactory,
    called,
    packed,
    replied,
)
from automap.executor.workers.protocols import Call, Layout, Protocol, protocol_of
from automap.executor.workers.row_references import Rows, Traffic

_BYTES_HERE = 256 * 2**10
"""Most bytes of rows with which a call is made in the controller: a few milliseconds' work."""
Rounds = Generator[tuple[str, Sequence[object], Mapping[str, object]], Any, object]
"""Method, arguments by position and by name of each round; the result of the call at last."""


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
        here: object | None = None,
    ) -> Future[Any]:
        """Call a method under the plan's name for it, or before all that waits to be called.

        In the background: no iteration waits for its end. `here` is a worker in the controller
        that is called instead of the processes where all rows are in the controller already, and
        few: the way to a process takes longer than what is done with them. It must be quick.
        """
        launch = self._launch(method, args, kwargs or {})
        return self._scheduler.submit(
            Task(
                name=self._name(method, call_id or f"{self.role}.{method}"),
                devices=frozenset(self.processes.devices),
                inputs=launch.inputs,
                start=launch.start if here is None else partial(launch.start_here, here),
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

    def start_here(self, worker: object) -> Mapping[int, "ray.ObjectRef[Reply | bytes] | Reply"]:
        call = Call(
            tuple(value_of(each) for each in self.args),
            {name: value_of(each) for name, each in self.kwargs.items()},
        )
        rows = [each for each in (*call.args, *call.kwargs.values()) if isinstance(each, Rows)]
        num_bytes = sum(each.inline_bytes for each in rows)
        if num_bytes > _BYTES_HERE or not all(each.is_inline for each in rows):
            return self.start()
        traffic, method = Traffic(), getattr(worker, self.method)
        return {0: replied(lambda: called(method, call, traffic), traffic)}

    def start(self) -> dict[int, "ray.ObjectRef[Reply | bytes]"]:
        layout = self.group.layout
        calls = self.protocol.calls(
            layout,
            [value_of(each) for each in self.args],
            {name: value_of(each) for name, each in self.kwargs.items()},
        )
        kept = set(self.protocol.collected(layout))
        orders: dict[tuple[object, ...], Packed] = {}  # ranks of a tensor group get the same
        references = {}
        for rank, (process, call) in enumerate(
            zip(self.group.processes.processes, calls, strict=True)
        ):
            if call is None:
                continue
            same = (rank in kept, *map(id, call.args), *map(id, call.kwargs.values()))
            if same not in orders:
                orders[same] = packed(self.copy, self.method, call, rank in kept)
            references[rank] = process.call.remote(orders[same])
        return references

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
