"""Sets of processes: one on each device of a range, or one beside the controller."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from automap.executor.errors import StartError
from automap.executor.runtime.placement import Device, DeviceRange, Reservation
from automap.executor.workers.process import Identity, ProcessActor, environment_of, start_ticks
from automap.executor.workers.rendezvous import Rendezvous
from automap.executor.workers.row_references import BLOCK_BYTES

_STACK_SECONDS = 2.0
_POLL_SECONDS = 0.1


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
