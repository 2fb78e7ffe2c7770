"""The device that is measured: its clock, its precisions, how an operation is repeated on it."""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from automap.planner import catalogue
from automap.planner.catalogue import GpuType
from automap.planner.errors import SpecError
from automap.profiler.errors import ProfileError
from automap.profiler.results.measurement import Sample, Sampler
from automap.profiler.settings import DeviceKind

Operation = Callable[[], object]

CPU_SAMPLE_SECONDS = 0.5e-3
"""Repeats fill a sample: long beside the clock's reading, short beside a scheduler's slice."""
CUDA_SAMPLE_SECONDS = 0.2e-3
MOST_REPEATS = 200
CPU_MEMORY_SHARE = 0.2
"""Share of the available memory that operands may take: others need the rest."""
CUDA_MEMORY_SHARE = 0.5


class Device(ABC):
    """One kind of device; `count` of them are here."""

    kind: DeviceKind
    count: int
    gpu: GpuType
    """Its type in the catalogue."""
    precisions: tuple[str, ...]
    attention_precision: str
    torch_device: Any
    memory_bytes: int
    """Bytes of memory that operands may take."""

    @abstractmethod
    def sampler(self, operation: Operation) -> Sampler:
        """Warmed up and ready to be sampled."""

    @abstractmethod
    def release(self) -> None:
        """Give back what finished operations have cached."""


def choose_device(kind: DeviceKind | None) -> Device:
    """CUDA where there is a device, unless the CPU is asked for.

    Raises:
        ProfileError: CUDA is asked for and not there, or the catalogue does not know the GPU.
    """
    available = torch.cuda.is_available()
    if kind == "cuda" and not available:
        raise ProfileError(
            "--device cuda: PyTorch sees no CUDA device here",
            [
                f"torch {torch.__version__} is "
                + ("built without CUDA" if torch.version.cuda is None else "built with CUDA")
                + "; valid here: --device cpu"
            ],
        )
    return CudaDevice() if available and kind != "cpu" else CpuDevice()


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


class CpuDevice(Device):
    """A core: one thread per process, as plans for CPUs assume."""

    kind: DeviceKind = "cpu"
    precisions = ("fp32", "bf16")
    attention_precision = "fp32"

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.count = cores()
        self.gpu = catalogue.gpu_type("cpu")
        self.torch_device = torch.device("cpu")
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.memory_bytes = int(available * CPU_MEMORY_SHARE)

    def sampler(self, operation: Operation) -> Sampler:
        return _CpuSampler(operation)

    def release(self) -> None:
        """Nothing is cached."""


class WaitClock:
    """Seconds that threads of this process were ready and had to wait for a processor.

    Linux counts them per thread; where it does not, nothing seems to wait.
    """

    def __init__(self, *, all_threads: bool = False) -> None:
        own = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        tasks = Path("/proc/self/task")
        self._files = (
            [task / "schedstat" for task in tasks.iterdir()]
            if all_threads and tasks.exists()
            else [own]
        )

    def seconds(self) -> float:
        """So far."""
        return sum(_waited(file) for file in self._files)


def _waited(file: Path) -> float:
    try:
        return int(file.read_bytes().split()[1]) * 1e-9
    except (OSError, IndexError):  # the thread is over, or the kernel counts nothing
        return 0.0


@dataclass
class _CpuSampler:
    operation: Operation

    def __post_init__(self) -> None:
        self._waiting = WaitClock()
        self.operation()
        self._repeats = 1
        once = self.sample().seconds
        self._repeats = repeats(once, CPU_SAMPLE_SECONDS)

    def sample(self) -> Sample:
        waited = self._waiting.seconds()
        start = time.perf_counter()
        for _ in range(self._repeats):
            self.operation()
        wall = time.perf_counter() - start
        waited = min(self._waiting.seconds() - waited, 0.99 * wall)
        return Sample((wall - waited) / self._repeats, waited / wall)


def repeats(once: float, sample_seconds: float) -> int:
    """How often an operation of so many seconds is repeated to fill a sample."""
    return int(min(max(sample_seconds / max(once, 1e-9), 1.0), MOST_REPEATS))


class CudaDevice(Device):
    """The first visible GPU; collectives use the others too."""

    kind: DeviceKind = "cuda"
    attention_precision = "bf16"

    def __init__(self) -> None:
        self.count = torch.cuda.device_count()
        self.torch_device = torch.device("cuda:0")
        self.gpu = _catalogue_gpu(torch.cuda.get_device_name(0))
        self.precisions = ("bf16",) if self.gpu.has_bf16 else ("fp16",)
        free, _ = torch.cuda.mem_get_info(0)
        self.memory_bytes = int(free * CUDA_MEMORY_SHARE)

    def sampler(self, operation: Operation) -> Sampler:
        return _CudaSampler(operation)

    def release(self) -> None:
        torch.cuda.empty_cache()


def _catalogue_gpu(name: str) -> GpuType:
    """The catalogue's type of what the driver calls `name`, with or without the maker's name."""
    for spelling in (name, name.removeprefix("NVIDIA ").split(" ")[0].lower()):
        try:
            return catalogue.gpu_type(spelling, field="device")
        except SpecError:
            continue
    known = ", ".join(gpu for gpu in catalogue.gpu_types() if gpu != "cpu")
    raise ProfileError(
        f"the catalogue has no GPU type {name!r}, so a plan could not name it",
        [f"add it to planner/catalogue/gpus.toml (docs/guides/catalogue.md); known: {known}"],
    )


class _CudaSampler:
    """Repeats in one CUDA graph where the operation can be captured: no launches are timed."""

    def __init__(self, operation: Operation) -> None:
        for _ in range(3):
            operation()
        torch.cuda.synchronize()
        self._run, self._repeats = operation, 1
        self._repeats = repeats(self.sample().seconds, CUDA_SAMPLE_SECONDS)
        count = self._repeats
        self._run = _captured(operation, count) or (lambda: _repeat(operation, count))
        self.sample()

    def sample(self) -> Sample:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self._run()
        end.record()
        end.synchronize()
        return Sample(start.elapsed_time(end) * 1e-3 / self._repeats)


def _repeat(operation: Operation, count: int) -> None:
    for _ in range(count):
        operation()


def _captured(operation: Operation, count: int) -> Operation | None:
    """The repeats as a CUDA graph; None where the operation waits for the host or the like."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            _repeat(operation, count)
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    replay: Operation = graph.replay
    return replay
