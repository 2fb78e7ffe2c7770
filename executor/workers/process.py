"""One OS process on one device: it holds the workers of all roles that lie there.

The processes of a set form one torch.distributed world, and the controller calls their workers by
role and method. What a method raises comes back as data, and so does what moved.
"""

import contextlib
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ray
import torch
import torch.distributed as dist

from automap.executor.algorithms.losses import PolicyLoss, ValueLoss
from automap.executor.batch import Batch
from automap.executor.workers import rendezvous
from automap.executor.workers.protocols import Call
from automap.executor.workers.quick_pickles import by_position
from automap.executor.workers.rendezvous import Rendezvous
from automap.executor.workers.row_references import (
    BLOCK_BYTES,
    INLINE_BYTES,
    Rows,
    Traffic,
    fetch,
    put,
)

if TYPE_CHECKING:
    from automap.executor.checkpoints.shard_files import ShardSaver

T = TypeVar("T")

_ADDED = ("_seconds", "_received")
"""Ends of names of what adds up over rounds; of other measures the most counts."""
_BRIEF_SECONDS = 0.005
"""A call below that is not worth asking for its memory; it counts with the next one."""


@dataclass(slots=True)
class ProcessContext:
    """What a worker may know of the process that holds it."""

    rank: int
    """Within the process set; torch's rank."""
    world_size: int
    run_id: str
    measured: dict[str, float] = field(default_factory=dict)
    """Seconds or bytes by name, that a method wants in the record of its call."""
    checkpoint_group: dist.ProcessGroup | None = None
    """A gloo group of all ranks, for checkpoints alone; None in a process without a world."""
    saver: "ShardSaver | None" = None
    """Shared by the workers of the process, once one of them has saved."""


WorkerFactory = Callable[[ProcessContext], object]
"""Makes a worker in its process; sent there by pickle."""


@by_position
@dataclass(frozen=True, slots=True)
class Failure:
    """What a method raised."""

    cause: str
    """The exception's class."""
    message: str
    traceback: str


@by_position
@dataclass(frozen=True, slots=True)
class Reply:
    """How a call went on one rank."""

    value: object
    failure: Failure | None
    started_at: float
    """Unix time, by the rank's clock."""
    seconds: float
    traffic: Traffic
    measured: dict[str, float]

    def after(self, earlier: "Reply | None") -> "Reply":
        """This reply of a call in rounds, with what the rounds before it took."""
        if earlier is None:
            return self
        measured = dict(earlier.measured)
        for name, value in self.measured.items():
            known = measured.get(name, 0.0)
            measured[name] = known + value if name.endswith(_ADDED) else max(known, value)
        return Reply(
            self.value,
            self.failure,
            earlier.started_at,
            earlier.seconds + self.seconds,
            earlier.traffic.plus(self.traffic),
            measured,
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """Which OS process it is, beyond doubt."""

    node_id: str
    pid: int
    start_ticks: int
    """When the kernel started it: a later process may get the same number."""


class Process:
    """The Ray actor; see the module. Its methods other than `call` and `build` are set-up."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        run_id: str,
        block_bytes: int = BLOCK_BYTES,
        *,
        on_gpu: bool = False,
    ) -> None:
        if not on_gpu:
            # Ray may leave all of a node's GPUs visible to a process that asked for none.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._context = ProcessContext(rank, world_size, run_id)
        self._block_bytes = block_bytes
        # The controller and whoever needs rows of all ranks get everyone's.
        self._inline_bytes = INLINE_BYTES // world_size
        self._workers: dict[str, object] = {}
        self._stores: list[dist.TCPStore] = []
        self._thread = 0

    def identity(self) -> Identity:
        """To end it by other means if need be."""
        node_id = ray.get_runtime_context().get_node_id()
        return Identity(node_id, os.getpid(), start_ticks(os.getpid()) or 0)

    def open_rendezvous(self, *, on_one_machine: bool) -> Rendezvous:
        """Where those who are told of it meet; on the network for as long as the process lives."""
        if on_one_machine:
            return rendezvous.in_file()
        host = ray.util.get_node_ip_address()
        self._stores.append(rendezvous.store_at(host))
        return Rendezvous(host, self._stores[-1].port)

    def join(self, meeting: Rendezvous, *, timeout_seconds: float) -> None:
        """Become a rank of the world; all processes of the set together."""
        rank, world_size = self._context.rank, self._context.world_size
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(0)  # Ray shows each process its own GPU alone
        else:
            torch.set_num_threads(1)  # a device is one core
        # For libraries that look there although the world exists already.
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(world_size),
            LOCAL_RANK="0",
            MASTER_ADDR=meeting.host,
            MASTER_PORT=str(meeting.port),
        )
        timeout = timedelta(seconds=timeout_seconds)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=meeting.store(timeout),
            rank=rank,
            world_size=world_size,
            timeout=timeout,
        )
        self._context.checkpoint_group = dist.new_group(backend="gloo", timeout=timeout)

    def build(self, name: str, factory: WorkerFactory) -> Reply:
        """Make a worker and keep it under a name."""

        def make() -> None:
            self._workers[name] = factory(self._context)

        return self._reply(make, Traffic())

    def call(self, order: "Packed") -> "Reply | bytes":
        """Call a worker's method with rows fetched; rows of its result are put in the store.

        Without `keep` they are not, because the protocol does not collect them here.
        """
        name, method, call, keep = unpacked(order)
        traffic = Traffic()

        def run() -> object:
            method_of_worker = getattr(self._workers[name], method)
            return called(
                method_of_worker,
                call,
                traffic,
                block_bytes=self._block_bytes,
                inline_bytes=self._inline_bytes,
                keep=keep,
            )

        reply = self._reply(run, traffic)
        return pickle.dumps(reply) if _is_plain(reply.value) else reply

    def _reply(self, function: Callable[[], object], traffic: Traffic) -> Reply:
        self._thread = threading.get_ident()
        self._context.measured.clear()
        reply = replied(function, traffic)
        reply.measured.update(self._context.measured)
        if reply.seconds > _BRIEF_SECONDS:
            reply.measured["peak_memory"] = peak_memory_bytes()
            reset_peak_memory()
        return reply

    @ray.method(concurrency_group="watch")
    def stack(self) -> str:
        """Where the thread of the calls is at this moment; answered beside a running call."""
        frame = sys._current_frames().get(self._thread)
        return "".join(traceback.format_stack(frame)) if frame else ""


def called(
    method: Callable[..., object],
    call: Call,
    traffic: Traffic,
    *,
    block_bytes: int = BLOCK_BYTES,
    inline_bytes: int = INLINE_BYTES,
    keep: bool = True,
) -> object:
    """What a method makes of a call, with rows fetched; rows of its result are put in the store."""
    args = [_received(each, traffic) for each in call.args]
    kwargs = {key: _received(each, traffic) for key, each in call.kwargs.items()}
    value = method(*args, **kwargs)
    if not isinstance(value, Batch):
        return value
    if not keep:
        return None
    return put(value, block_bytes=block_bytes, inline_bytes=inline_bytes, traffic=traffic)


def replied(function: Callable[[], object], traffic: Traffic) -> Reply:
    """How a function went; what it raises comes back as data."""
    started_at, start = time.time(), time.perf_counter()
    value, failure = None, None
    try:
        value = function()
    except Exception as error:
        failure = Failure(_name_of(error), str(error), traceback.format_exc())
    return Reply(value, failure, started_at, time.perf_counter() - start, traffic, {})


Packed = tuple[str, str, Call, bool] | bytes
"""Whose worker, method, arguments, and whether rows of the result are kept."""
_PLAIN = (type(None), bool, int, float, str, Path)
_PLAIN_BYTES = 100 * 2**10
"""Most bytes of rows in one argument. Ray stores larger ones, without a copy if it sees arrays."""


def packed(name: str, method: str, call: Call, keep: bool) -> Packed:
    """An order to a process as one argument; as bytes, which Ray is quick with, where it can be.

    References must be seen by Ray, which keeps what they refer to.
    """
    order = (name, method, call, keep)
    values = (*call.args, *call.kwargs.values())
    return pickle.dumps(order) if all(map(_is_plain, values)) else order


def _is_plain(value: object) -> bool:
    """Whether any pickle will do: no reference for Ray to see, no code from the user's program."""
    if isinstance(value, Rows):
        return value.is_inline and value.inline_bytes <= _PLAIN_BYTES
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    # A loss of the user's own class may be code of the program's.
    return isinstance(value, _PLAIN) or type(value) in (PolicyLoss, ValueLoss)


def unpacked(value: T | bytes) -> T:
    """An order, or a reply, that was perhaps sent as bytes."""
    if isinstance(value, bytes):
        return pickle.loads(value)  # type: ignore[no-any-return]  # nosec B301  # Ray's, of this run
    return value


ProcessActor: Any = ray.remote(  # type: ignore[call-overload]
    concurrency_groups={"watch": 1}, max_restarts=0
)(Process)


def _received(value: object, traffic: Traffic) -> object:
    return fetch(value, traffic=traffic) if isinstance(value, Rows) else value


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def reset_peak_memory() -> None:
    """Count the most memory in use from now on: the device's, or this process's without a GPU."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    # proc(5): 5 resets the peak resident set size.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes() -> int:
    """Most bytes in use since the reset; without a GPU those resident, libraries included."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def start_ticks(pid: int) -> int | None:
    """When the kernel started a process; None if there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command in brackets may hold blanks; after it: state, …, starttime as 22nd field.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def environment_of(values: Mapping[str, str]) -> dict[str, object]:
    """Ray's runtime_env that sets these variables before anything is imported."""
    return {"env_vars": dict(values)} if values else {}
