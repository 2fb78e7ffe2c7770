"""What Linux and the driver count of the use of a device, told apart into ours and others'."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from automap.planner.units import GIB
from automap.profiler.machine.devices import Device
from automap.profiler.machine.fingerprint import BUSY_GPU_PERCENT, number, nvidia_smi, visible_uuids
from automap.profiler.machine.watch import State, Use

BUSY_SHARE = 0.25
"""Of the cores: what others may use of them before they count as busy."""
STOLEN_SHARE = 0.05
"""Of the cores: what the host of a virtual machine may take before its clock counts as slow."""
NAMED_SHARE = 0.1
"""Of a core: a process that uses less is not named."""
NAMED = 3
PROC = Path("/proc")
GPU_MEMORY_BYTES = 2 * GIB
"""Of a GPU: more than its driver and our own context take."""
GPU_GROWTH_BYTES = GIB
"""More than what our own libraries take beside PyTorch while they work."""
_WORK = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
_STOLEN = 7
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
}
"""Of the driver's reasons. A GPU at its power limit is not among them: in a run it is there too."""


def use_of(device: Device) -> Use:
    """The use of the device, from now on."""
    return GpuUse() if device.kind == "cuda" else CpuUse()


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    name: str
    own: int
    """Ticks of its own."""
    reaped: int
    """Ticks of its children that have ended."""


@dataclass(frozen=True, slots=True)
class _Counts:
    total: int
    work: int
    stolen: int
    processes: dict[int, _Process]


class CpuUse:
    """Of the cores that this process may run on; its descendants are ours."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._last = _counts(proc)

    def since_last(self) -> State:
        before, now = self._last, _counts(self._proc)
        self._last = now
        total = now.total - before.total
        if total <= 0:  # no /proc here, or no time has passed
            return State()
        ours = _tree(now.processes)
        used = _ticks(now.processes, ours) - _ticks(before.processes, _tree(before.processes))
        share = (now.work - before.work - used) / total
        stolen = (now.stolen - before.stolen) / total
        slowed = f"the host took {stolen:.0%} of the cores' time" if stolen > STOLEN_SHARE else ""
        if share <= BUSY_SHARE:
            return State(slowed=slowed)
        named = _named(before, now, ours, total / len(os.sched_getaffinity(0)))
        return State((*named, f"all others together: {share:.0%} of the cores"), slowed)


def _named(before: _Counts, now: _Counts, ours: set[int], core_ticks: float) -> list[str]:
    shares = {
        pid: (process.own - before.processes[pid].own) / core_ticks
        for pid, process in now.processes.items()
        if pid not in ours and pid in before.processes
    }
    most = sorted(shares, key=lambda pid: -shares[pid])[:NAMED]
    return [
        f"{now.processes[pid].name} (process {pid}): {shares[pid]:.0%} of a core"
        for pid in most
        if shares[pid] >= NAMED_SHARE
    ]


def _counts(proc: Path) -> _Counts:
    total = work = stolen = 0
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    for line in _text(proc / "stat").splitlines():
        name, *cells = line.split()
        if name in cores:
            ticks = [int(cell) for cell in cells[:8]]
            total += sum(ticks)
            work += sum(ticks[each] for each in _WORK)
            stolen += ticks[_STOLEN]
    return _Counts(total, work, stolen, _processes(proc))


def _processes(proc: Path) -> dict[int, _Process]:
    found = {}
    for folder in proc.iterdir() if proc.exists() else ():
        if not folder.name.isdecimal():
            continue
        # The name may hold blanks and brackets: what follows its last bracket is numbers.
        before, _, after = _text(folder / "stat").rpartition(")")
        cells = after.split()
        if len(cells) > 14:
            user, system, reaped_user, reaped_system = map(int, cells[11:15])
            found[int(folder.name)] = _Process(
                parent=int(cells[1]),
                name=before.partition("(")[2],
                own=user + system,
                reaped=reaped_user + reaped_system,
            )
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended meanwhile
        return ""


def _tree(processes: dict[int, _Process]) -> set[int]:
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found, rest = set(), [os.getpid()]
    while rest:
        pid = rest.pop()
        found.add(pid)
        rest += children.get(pid, [])
    return found


def _ticks(processes: dict[int, _Process], ours: set[int]) -> int:
    known = [processes[pid] for pid in ours if pid in processes]
    return sum(process.own + process.reaped for process in known)


class GpuUse:
    """Of the GPUs that this process sees: processes and memory that are not ours, and slowdowns."""

    def __init__(self) -> None:
        self._cpu = CpuUse()
        self._foreign = [0] * torch.cuda.device_count()
        self._is_first = True

    def since_last(self) -> State:
        gpus = {
            row["uuid"]: row
            for row in nvidia_smi(
                "gpu", ("uuid", "utilization.gpu", "clocks_throttle_reasons.active")
            )
        }
        uuids = visible_uuids()
        rows = [gpus[uuid] for uuid in uuids if uuid in gpus]
        others = [*_processes_on(uuids), *self._memory()]
        if self._is_first:  # later it is ours
            others += [
                f"GPU {uuid} is {row['utilization.gpu']} % utilised"
                for uuid, row in zip(uuids, rows, strict=False)
                if number(row["utilization.gpu"]) >= BUSY_GPU_PERCENT
            ]
            others += self._cpu.since_last().others
        self._is_first = False
        return State(tuple(others), _slowdowns(rows))

    def _memory(self) -> list[str]:
        """Of PyTorch's point of view: what is neither free nor its own."""
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


def _processes_on(uuids: list[str]) -> list[str]:
    rows = nvidia_smi("compute-apps", ("gpu_uuid", "pid", "process_name", "used_memory"))
    on_ours = [row for row in rows if row["gpu_uuid"] in uuids]
    ours = _tree(_processes(PROC))
    if not any(number(row["pid"]) in ours for row in on_ours):
        return []  # in a container it counts other numbers, or nothing: memory tells then
    return [
        f"{row['process_name']} (process {row['pid']}): "
        f"{row['used_memory']} MiB of {row['gpu_uuid']}"
        for row in on_ours
        if number(row["pid"]) not in ours
    ]


def _slowdowns(rows: list[dict[str, str]]) -> str:
    active = 0
    for row in rows:
        try:
            active |= int(row["clocks_throttle_reasons.active"], 16)
        except ValueError:  # "[N/A]"
            continue
    return ", ".join(words for bit, words in SLOWDOWNS.items() if active & bit)
