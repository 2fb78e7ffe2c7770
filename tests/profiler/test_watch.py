"""What is noticed of others and of a slow clock: counters made up, and real processes beside us."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from automap.profiler.errors import ProfileError
from automap.profiler.machine import device_use
from automap.profiler.machine.device_use import CpuUse, GpuUse
from automap.profiler.machine.nvidia import GpuProcess, GpuState
from automap.profiler.machine.watch import LEAST_LOOK_SECONDS, State, Watch
from automap.profiler.results.journal import Entry
from automap.profiler.results.measurement import Measurement, Sample

ME = os.getpid()
CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that psutil reads in place of /proc."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    psutil.process_iter.cache_clear()
    yield tmp_path
    psutil.process_iter.cache_clear()


def write_proc(proc: Path, *, work: int, idle: int, stolen: int = 0, **processes: int) -> None:
    """Ticks over all our cores; `mine`, `child`, `other`: those of processes."""
    share = len(CORES)
    cells = [work // share, 0, 0, idle // share, 0, 0, 0, stolen // share, 0, 0]
    every_core = range(max(CORES) + 1)
    lines = [f"cpu{core} {' '.join(map(str, cells))}\n" for core in every_core]
    (proc / "stat").write_text("cpu 9 9 9 9\n" + "".join(lines) + "btime 0\n")
    for name, (pid, parent) in {
        "mine": (ME, 1),
        "child": (ME + 1, ME),
        "other": (ME + 2, 1),
    }.items():
        (proc / str(pid)).mkdir(exist_ok=True)
        ticks = processes.get(name, 0)
        before = f"{pid} ((strange) name) S {parent} " + "0 " * 9
        (proc / str(pid) / "stat").write_text(before + f"{ticks} 0 0 0 " + "0 " * 40 + "\n")


def test_what_we_and_our_children_do_is_ours(proc: Path) -> None:
    write_proc(proc, work=0, idle=0)
    used = CpuUse()
    write_proc(proc, work=800, idle=200, mine=400, child=390)
    assert used.since_last() == State()
    assert used.since_last() == State()  # no time has passed


def test_others_are_named_with_their_share(proc: Path) -> None:
    write_proc(proc, work=0, idle=0)
    used = CpuUse()
    write_proc(proc, work=700, idle=300, mine=300, other=350)
    core_ticks = 1000 / len(CORES)
    found = used.since_last()
    assert found.others == (
        f"(strange) name (process {ME + 2}): {350 / core_ticks:.0%} of a core",
        "all others together: 40% of the cores",
    )
    assert found.slowed == ""
    write_proc(proc, work=900, idle=1100, mine=300, other=450)
    assert used.since_last() == State()  # a fifth is not much


def test_what_the_host_takes_slows_the_clock(proc: Path) -> None:
    write_proc(proc, work=0, idle=0)
    used = CpuUse()
    write_proc(proc, work=400, idle=400, stolen=200, mine=400)
    assert used.since_last().slowed == "the host took 20% of the cores' time"


class Fake:
    """States one after another in place of counters, and seconds in place of a product."""

    def __init__(self, *states: State, seconds: float = 1.0) -> None:
        self._states: Iterator[State] = iter([State(), *states])
        self._seconds = seconds

    def since_last(self) -> State:
        return next(self._states, State())

    def sample(self) -> Sample:
        return Sample(self._seconds)


def watch(fake: Fake, *, strict: bool = False) -> Watch:
    made = Watch(fake, reference=fake, usual=1.0, budget_seconds=60.0, strict=strict)
    made._looked -= LEAST_LOOK_SECONDS
    return made


MEASURED = Entry("optimizer", {}, Measurement(1.0, 1.0, 1.0, 7, 0, False))
FAILED = Entry("optimizer", {}, None, "out of memory")


def marks(entries: list[Entry]) -> list[tuple[bool, bool] | None]:
    return [
        None if each.measurement is None else (each.measurement.busy, each.measurement.throttled)
        for each in entries
    ]


def test_what_was_measured_meanwhile_is_marked() -> None:
    others = ("python (process 7): 90% of a core", "all others together: 45% of the cores")
    found = watch(Fake(State(others)))
    assert marks(found.marked([MEASURED, FAILED])) == [(True, False), None]
    # A moment later the last look says most.
    assert marks(found.marked([MEASURED])) == [(True, False)]
    assert found.others == list(others)
    quiet = watch(Fake(State()))
    assert quiet.marked([MEASURED]) == [MEASURED]
    assert quiet.others == quiet.slowed == []


def test_a_product_that_takes_longer_tells_of_the_clock_unless_others_are_there() -> None:
    slow = watch(Fake(State(), seconds=1.25))
    assert marks(slow.marked([MEASURED])) == [(False, True)]
    assert slow.slowed == ["a reference product took 25% longer"]
    hardly = watch(Fake(State(), seconds=1.05))
    assert marks(hardly.marked([MEASURED])) == [(False, False)]
    disturbed = watch(Fake(State(("python: 90% of a core",)), seconds=1.25))
    assert marks(disturbed.marked([MEASURED])) == [(True, False)]


def test_who_is_strict_ends_when_others_come() -> None:
    with pytest.raises(ProfileError, match="others use what is to be measured") as refused:
        watch(Fake(State(("python: 90% of a core",))), strict=True).marked([MEASURED])
    assert refused.value.lines[0] == "python: 90% of a core"


GPU = "GPU-b"


class Driver:
    """What the driver and PyTorch would say of one GPU of 80 GiB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.utilisation, self.reasons, self.apps = 0, 0, [GpuProcess(ME, "python", 500)]
        self.foreign = 2**29
        monkeypatch.setattr(device_use, "visible_gpus", lambda: [self.gpu()])
        monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
        monkeypatch.setattr("torch.cuda.memory_reserved", lambda index: 2**33)
        monkeypatch.setattr(
            "torch.cuda.mem_get_info", lambda index: (5 * 2**34 - 2**33 - self.foreign, 5 * 2**34)
        )
        monkeypatch.setattr(CpuUse, "since_last", lambda self: State())

    def gpu(self) -> GpuState:
        return GpuState(
            uuid=GPU,
            driver="550",
            clock_mhz=345,
            max_clock_mhz=1980,
            power_limit_watts=700.0,
            utilisation_percent=self.utilisation,
            slowdown_reasons=self.reasons,
            processes=tuple(self.apps),
        )


def test_a_gpu_that_nobody_else_uses_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    used = GpuUse()
    assert used.since_last() == State()
    driver.utilisation = 97  # ours by now
    driver.foreign += 2**28
    assert used.since_last() == State()


def test_a_gpu_that_is_at_work_before_we_begin_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(monkeypatch).utilisation = 37
    assert GpuUse().since_last().others == ("GPU GPU-b is 37 % utilised",)


def test_processes_and_memory_of_others_on_a_gpu_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    used = GpuUse()
    assert used.since_last() == State()
    driver.apps += [GpuProcess(77, "train", 4000)]
    driver.foreign += 5 * 2**30
    assert used.since_last().others == (
        "train (process 77): 4000 MiB of GPU-b",
        "others hold 5.5 GiB of GPU 0",
    )
    # In a container we are not in the list.
    driver.apps = [GpuProcess(12345678, "host's number", 4000)]
    driver.foreign = 2**29
    assert used.since_last() == State()


@pytest.mark.parametrize(
    ("reasons", "slowed"),
    [
        (0x04, ""),  # at its power limit, as in a run
        (0x48, "hardware slowdown, thermal slowdown by the hardware"),
    ],
)
def test_the_driver_says_why_a_clock_is_slow(
    monkeypatch: pytest.MonkeyPatch, reasons: int, slowed: str
) -> None:
    Driver(monkeypatch).reasons = reasons
    assert GpuUse().since_last().slowed == slowed


def test_here_our_own_work_is_ours() -> None:
    """On this machine, whoever else is there: what this process does is none of theirs."""
    before, start = device_use._counts(), time.process_time()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    spent = time.process_time() - start
    ours = device_use._counts().our_seconds - before.our_seconds
    assert ours == pytest.approx(spent, abs=0.05)
