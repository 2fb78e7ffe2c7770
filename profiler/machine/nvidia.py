"""What the NVIDIA driver says of the GPUs that this process sees, by its management library."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

try:
    import pynvml
except ImportError:  # it comes with the executor for GPUs
    pynvml = None

MIB = 2**20
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU, under the number that the driver knows it by."""

    pid: int
    name: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU just now; None and 0 where the driver does not say."""

    uuid: str
    driver: str
    clock_mhz: int | None
    max_clock_mhz: int | None
    power_limit_watts: float | None
    utilisation_percent: int
    slowdown_reasons: int
    """Bits, as NVML numbers them."""
    processes: tuple[GpuProcess, ...]


def visible_uuids() -> list[str]:
    """The GPUs that this process sees, in its order, named as the driver names them."""
    count = torch.cuda.device_count()
    return [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(count)]


def visible_gpus() -> list[GpuState]:
    """Each GPU that this process sees, in its order; none without a driver or its library."""
    # The driver knows nothing of CUDA_VISIBLE_DEVICES, PyTorch does.
    with _driver() as is_there:
        handles = [
            (uuid, _asked(pynvml.nvmlDeviceGetHandleByUUID, uuid, unknown=None))
            for uuid in (visible_uuids() if is_there else ())
        ]
        return [_state(uuid, handle) for uuid, handle in handles if handle is not None]


@contextmanager
def _driver() -> Iterator[bool]:
    """Whether the driver can be asked, meanwhile."""
    if pynvml is None:
        yield False
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # there is no driver, or not one that answers
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _state(uuid: str, handle: Any) -> GpuState:
    watts = _asked(pynvml.nvmlDeviceGetPowerManagementLimit, handle, unknown=None)
    utilisation = _asked(pynvml.nvmlDeviceGetUtilizationRates, handle, unknown=None)
    sm = pynvml.NVML_CLOCK_SM
    return GpuState(
        uuid=uuid,
        driver=_asked(pynvml.nvmlSystemGetDriverVersion, unknown=""),
        clock_mhz=_asked(pynvml.nvmlDeviceGetClockInfo, handle, sm, unknown=None),
        max_clock_mhz=_asked(pynvml.nvmlDeviceGetMaxClockInfo, handle, sm, unknown=None),
        power_limit_watts=None if watts is None else watts / 1e3,
        utilisation_percent=0 if utilisation is None else utilisation.gpu,
        slowdown_reasons=_asked(
            pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle, unknown=0
        ),
        processes=tuple(
            GpuProcess(
                pid=each.pid,
                name=_asked(pynvml.nvmlSystemGetProcessName, each.pid, unknown="a process"),
                memory_mib=(each.usedGpuMemory or 0) // MIB,
            )
            for each in _asked(pynvml.nvmlDeviceGetComputeRunningProcesses, handle, unknown=())
        ),
    )


def _asked(question: Callable[..., Any], *arguments: object, unknown: Value) -> Any | Value:
    """The driver's answer; `unknown` where it has none for this GPU."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return unknown
