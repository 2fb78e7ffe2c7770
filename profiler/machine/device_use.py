"""What the kernel and the driver count of the use of a device: ours and others' apart."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import torch

from automap.planner.units import GIB
from automap.profiler.machine.devices import Device
from automap.profiler.machine.nvidia import GpuState, visible_gpus
from automap.profiler.machine.watch import State, Use

BUSY_SHARE = 0.25
"""Share of the cores' time that others may use before they count as busy."""
STOLEN_SHARE = 0.05
"""Share of the cores' time that the host of a virtual machine may take before its clock counts as
slow."""
NAMED_SHARE = 0.1
"""Share of a core: a process that uses less is not named."""
NAMED = 3
BUSY_GPU_PERCENT = 10
"""Utilisation from which a GPU counts as busy before we have begun."""
GPU_MEMORY_BYTES = 2 * GIB
"""More than a GPU's driver and our own context take of its memory."""
GPU_GROWTH_BYTES = GIB
"""More than what our own libraries take beside PyTorch while they work."""
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
}
"""Reasons of the driver, by their bits. The power limit is not among them: a run reaches it too."""


def use_of(device: Device) -> Use:
    """The use of the device, from now on."""
    return GpuUse() if device.kind == "cuda" else CpuUse()


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    own: float
    """Processor seconds of its own."""
    reaped: float
    """Processor seconds of its children that have ended."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Seconds since the machine started: all of the cores' time, that at work, that taken away."""

    total: float
    work: float
    stolen: float
    processes: dict[int, _Process]
    ours: set[int]
    """This process and its descendants."""

    @property
    def our_seconds(self) -> float:
        known = [self.processes[pid] for pid in self.ours if pid in self.processes]
        return sum(process.own + process.reaped for process in known)


class CpuUse:
    """Use of the cores that this process may run on."""

    def __init__(self) -> None:
        self._last = _counts()

    def since_last(self) -> State:
        before, now = self._last, _counts()
        self._last = now
        total = now.total - before.total
        if total <= 0:  # no time has passed
            return State()
        used = now.our_seconds - before.our_seconds
        share = (now.work - before.work - used) / total
        stolen = (now.stolen - before.stolen) / total
        slowed = f"the host took {stolen:.0%} of the cores' time" if stolen > STOLEN_SHARE else ""
        if share <= BUSY_SHARE:
            return State(slowed=slowed)
        named = _named(before, now, total / len(os.sched_getaffinity(0)))
        return State((*named, f"all others together: {share:.0%} of the cores"), slowed)


def _named(before: _Counts, now: _Counts, seconds: float) -> list[str]:
    shares = {
        pid: (process.own - before.processes[pid].own) / seconds
        for pid, process in now.processes.items()
        if pid not in now.ours and pid in before.processes
    }
    most = sorted(shares, key=lambda pid: -shares[pid])[:NAMED]
    return [
        f"{now.processes[pid].name} (process {pid}): {shares[pid]:.0%} of a core"
        for pid in most
        if shares[pid] >= NAMED_SHARE
    ]


def _counts() -> _Counts:
    every_core = psutil.cpu_times(percpu=True)
    cores = [every_core[core] for core in os.sched_getaffinity(0) if core < len(every_core)]
    work = [each.user + each.nice + each.system + each.irq + each.softirq for each in cores]
    stolen = sum(each.steal for each in cores)
    idle = sum(each.idle + each.iowait for each in cores)
    return _Counts(sum(work) + stolen + idle, sum(work), stolen, _processes(), _ours())


def _processes() -> dict[int, _Process]:
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:  # else it has ended meanwhile
            own, reaped = times.user + times.system, times.children_user + times.children_system
            found[process.pid] = _Process(process.info["name"], own, reaped)
    return found


def _ours() -> set[int]:
    return {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}


class GpuUse:
    """Use of the GPUs that this process sees: others' processes and memory, and slowdowns."""

    def __init__(self) -> None:
        self._cpu = CpuUse()
        self._foreign = [0] * torch.cuda.device_count()
        self._is_first = True

    def since_last(self) -> State:
        gpus = visible_gpus()
        others = [*_processes_on(gpus), *self._memory()]
        if self._is_first:  # later it is ours
            others += [
                f"GPU {gpu.uuid} is {gpu.utilisation_percent} % utilised"
                for gpu in gpus
                if gpu.utilisation_percent >= BUSY_GPU_PERCENT
            ]
            others += self._cpu.since_last().others
        self._is_first = False
        active = [
            words
            for bit, words in SLOWDOWNS.items()
            if any(gpu.slowdown_reasons & bit for gpu in gpus)
        ]
        return State(tuple(others), ", ".join(active))

    def _memory(self) -> list[str]:
        """Memory that is neither free nor PyTorch's own here."""
        found = []
        for index, before in enumerate(self._foreign):
            free, total = torch.cuda.mem_get_info(index)
            foreign = total - free - torch.cuda.memory_reserved(index)
            allowed = GPU_MEMORY_BYTES if self._is_first else before + GPU_GROWTH_BYTES
            if foreign > allowed:
                found.append(f"others hold {foreign / GIB:.1f} GiB of GPU {index}")
            elif self._is_first:
                self._foreign[index] = foreign
        return found


def _processes_on(gpus: Sequence[GpuState]) -> list[str]:
    ours = _ours()
    if not any(process.pid in ours for gpu in gpus for process in gpu.processes):
        return []  # in a container the driver counts other numbers, or nothing: memory tells then
    return [
        f"{process.name} (process {process.pid}): {process.memory_mib} MiB of {gpu.uuid}"
        for gpu in gpus
        for process in gpu.processes
        if process.pid not in ours
    ]
