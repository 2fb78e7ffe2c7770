"""One process of a collective, which `measure.collectives` starts.

All processes go through the keys in the same order and take every decision together: the slowest
one's seconds count, and the first one's clock says when the budget is used.

A core that communicates does not compute, and the threads that carry a message wake up on cores
that were computing. So between cores a collective is what it adds to the work that makes its
buffer (`Work`); between GPUs, to nothing.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import Tensor

from automap.executor.run.parent import when_stdin_closes
from automap.executor.workers.rendezvous import store_at
from automap.profiler.machine.devices import WaitClock, repeats
from automap.profiler.measure.collectives import ENGINE_COLLECTIVE
from automap.profiler.measure.reserved_stdout import reserved_stdout
from automap.profiler.results.measurement import Measurement, Sample, measure

SAMPLE_SECONDS = 0.3e-3
WORK_SAMPLE_SECONDS = 3e-3
"""Length of a sample that is the difference of two stretches, which is less certain."""
MOST_REPEATS = 20
LEAST_BUDGET_SECONDS = 2.0
"""Once the processes have met, however long that took."""
ELEMENT_BYTES = 4
LEAST_LIMIT_SECONDS = 0.05
_NUMBER = count()
"""Numbers the engine's groups of this process: their names in shared memory must differ."""
LEAST_SECONDS = 1e-6
"""What counts for a collective that added nothing measurable."""
ROWS, WIDTH = 256, 512
"""Sizes of a product that takes about a millisecond on a core, as a small layer's do."""


class Work:
    """A product, and a buffer written anew: as after a layer, it is in memory just asked for."""

    def __init__(self, elements: int) -> None:
        """`elements`: of the buffer, in fp32."""
        self._rows, self._weights = torch.ones(ROWS, WIDTH), torch.ones(WIDTH, WIDTH)
        self._source = torch.ones(elements)

    def result(self) -> Tensor:
        """The buffer, once the work is done."""
        torch.mm(self._rows, self._weights)
        return self._source + 1.0


@dataclass(frozen=True)
class _Here:
    """Where this process works."""

    out: TextIO
    rank: int
    world: str
    """Another for each world of processes on the machine."""
    device: torch.device
    waiting: WaitClock

    def wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    """Measure what the first line of the standard input asks for."""
    task = json.loads(sys.stdin.readline())
    when_stdin_closes(lambda: os._exit(1))
    out = reserved_stdout()
    rank, local, ranks = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]), task["ranks"]
    torch.set_num_threads(1)
    cuda = task["device"] == "cuda"
    device = torch.device(f"cuda:{local}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    store = _store(task["store"], rank)
    dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=ranks)
    spans = sorted({key["num_gpus"] for key in task["keys"]})
    groups = {span: dist.new_group(list(range(span))) for span in spans if span < ranks}
    groups[ranks] = dist.group.WORLD
    here = _Here(out, rank, task["world"], device, WaitClock(all_threads=True))
    if ENGINE_COLLECTIVE in {key["collective"] for key in task["keys"]}:
        _import_engine()
    # The parent's clock: monotonic time is the same in all processes of a machine, and where they
    # are on several, the first one's counts.
    end = max(task["deadline"], time.monotonic() + LEAST_BUDGET_SECONDS)
    for number, key in enumerate(task["keys"]):
        if _agreed(here, float(time.monotonic() >= end)) or _too_large(key, task["memory_bytes"]):
            continue
        left = max(end - time.monotonic(), 0.0) / (len(task["keys"]) - number)
        if rank < key["num_gpus"]:
            _measure_and_report(here, number, key, groups[key["num_gpus"]], limit_seconds=2 * left)
        dist.barrier()
    if ENGINE_COLLECTIVE in {key["collective"] for key in task["keys"]}:
        out.close()
        os._exit(0)  # nothing else may end before its shared memory
    dist.destroy_process_group()


def _too_large(key: dict[str, Any], memory_bytes: int) -> bool:
    return bool(3 * key["size_bytes"] > memory_bytes)


def _agreed(here: _Here, value: float, group: Any = None) -> float:
    """The first process's number, in all of them."""
    shared = torch.tensor([value], dtype=torch.float64, device=here.device)
    dist.broadcast(shared, src=0, group=group)
    return float(shared.item())


def _measure_and_report(
    here: _Here, number: int, key: dict[str, Any], group: Any, *, limit_seconds: float
) -> None:
    result: dict[str, Any] = {"number": number}
    try:
        found = _measured(here, key, group, limit_seconds)
        result["measurement"] = asdict(found)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        # A backend that lacks a collective says so in all processes alike.
        result["failed"] = str(error).splitlines()[0][:200]
    if here.rank == 0:
        here.out.write(json.dumps(result) + "\n")
        here.out.flush()


def _measured(here: _Here, key: dict[str, Any], group: Any, limit_seconds: float) -> Measurement:
    work = Work(_buffer_elements(key)) if here.device.type == "cpu" else None
    run = _collective(here, key, group, work)
    run()
    sampler = _Together(here, run, group, repeats=1, work=work)
    once = _agreed(here, sampler.sample().seconds, group)
    fill = SAMPLE_SECONDS if work is None else WORK_SAMPLE_SECONDS
    sampler.repeats = min(repeats(once, fill), MOST_REPEATS)
    end = time.perf_counter() + max(limit_seconds, LEAST_LIMIT_SECONDS)

    def clock() -> float:
        return _agreed(here, time.perf_counter() - end, group)

    return measure(sampler, limit_seconds=-clock(), clock=clock)


@dataclass
class _Together:
    """Samples of a collective: all start at a barrier, the slowest one's time counts.

    `work`: what makes its buffers; the same without the collective is subtracted.
    """

    here: _Here
    run: Callable[[], object]
    group: Any
    repeats: int
    work: Work | None = None

    def sample(self) -> Sample:
        wall, waited = self._slowest(self.run)
        if self.work is None:
            # One waits for the other: how much of it was for a processor is unknown.
            return Sample(wall / self.repeats, min(waited / wall, 1.0))
        # Threads that carry messages wait for cores that compute, which is what is measured. In the
        # work alone nobody of ours waits for a core, so whoever does tells of others.
        alone, waited = self._slowest(self.work.result)
        added = (wall - alone) / self.repeats
        return Sample(max(added, LEAST_SECONDS), min(waited / alone, 1.0))

    def _slowest(self, run: Callable[[], object]) -> tuple[float, float]:
        """Seconds, and of those waited for a processor, of all repeats."""
        dist.barrier(group=self.group)
        waited, start = self.here.waiting.seconds(), time.perf_counter()
        for _ in range(self.repeats):
            run()
        self.here.wait_for_device()
        wall = time.perf_counter() - start
        waited = self.here.waiting.seconds() - waited
        both = torch.tensor([wall, waited], dtype=torch.float64, device=self.here.device)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group)
        wall, waited = both.tolist()
        return wall, waited


def _buffer_elements(key: dict[str, Any]) -> int:
    """Elements of the whole buffer, which is split evenly."""
    size, span = int(key["size_bytes"]), int(key["num_gpus"])
    return max(size // ELEMENT_BYTES // span, 1) * span


def _collective(
    here: _Here, key: dict[str, Any], group: Any, work: Work | None
) -> Callable[[], object]:
    """The collective of a key over a buffer of its size, as nccl-tests counts it."""
    size, span = _buffer_elements(key), key["num_gpus"]
    kept = torch.ones(size, device=here.device)

    def made(share: int = 1) -> Tensor:
        """The buffer, or a rank's part of it: where there is work, its newest result."""
        return (work.result() if work else kept)[: size // share]

    def room(share: int = 1) -> Tensor:
        """Where results go: as in a model, memory that was just asked for."""
        return torch.empty(size // share, device=here.device)

    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(made(), op=dist.ReduceOp.MAX, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(room(), made(span), group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(room(span), made(), group=group),
        "all_to_all": lambda: dist.all_to_all_single(room(), made(), group=group),
        "broadcast": lambda: dist.broadcast(made(), src=0, group=group),
        "send_recv": lambda: _send_or_receive(here.rank, made(), group),
    }
    if key["collective"] == ENGINE_COLLECTIVE:
        reduce = _engines_all_reduce(here, span, group)
        return lambda: reduce(made())
    return calls[key["collective"]]


def _store(file: str, rank: int) -> dist.Store:
    """The file, or with other machines a port of the first one's address and of no other."""
    if file:
        return dist.FileStore(file)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        return store_at(host, port)
    return dist.TCPStore(host, port, is_master=False)


def _import_engine() -> None:
    """Import the engine before a clock runs: it takes longer than the first collective may."""
    from automap.executor.rollout.environment import prepare_environment

    prepare_environment()
    from vllm.platforms import current_platform

    current_platform.import_kernels()


def _engines_all_reduce(here: _Here, span: int, group: Any) -> Callable[[Tensor], object]:
    """The all-reduce of vLLM between processes of a machine, started as its workers do.

    Through shared memory where its build for these cores has that (from AVX-512 on), else torch's.
    """
    if not hasattr(torch.ops._C, "init_shm_manager"):
        return lambda values: dist.all_reduce(values, group=group)
    from vllm.distributed.device_communicators.cpu_communicator import _CPUSHMDistributed

    from automap.executor.rollout.replica import unlink_name

    os.environ["VLLM_DIST_IDENT"] = f"profile-{here.world}-{next(_NUMBER)}"
    world: Any = SimpleNamespace(
        unique_name="tp:0",
        ranks=list(range(span)),
        world_size=span,
        rank=here.rank,
        device_group=group,
    )
    channel: Any = _CPUSHMDistributed(world)
    unlink_name(channel, here.rank)  # all have mapped it, and a killed profile leaves none
    reduce: Callable[[Tensor], object] = channel.all_reduce
    return reduce


def _send_or_receive(rank: int, buffer: Tensor, group: Any) -> None:
    """From the first process to the second; the others of the group have nothing to do."""
    if rank == 0:
        dist.send(buffer, dst=1, group=group)
    elif rank == 1:
        dist.recv(buffer, src=0, group=group)


if __name__ == "__main__":
    main()
