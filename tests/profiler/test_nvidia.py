"""What is asked of NVML: its functions answer as the library's do, one GPU of two is visible."""

from types import SimpleNamespace
from typing import Any

import pytest

from automap.profiler.machine import nvidia
from automap.profiler.machine.nvidia import GpuProcess, GpuState, visible_gpus


class NVMLError(Exception):
    pass


def library(**answers: Any) -> SimpleNamespace:
    """Functions by name; what an answer raises, the function raises."""

    def answering(value: Any) -> Any:
        def function(*arguments: object) -> Any:
            found = value(*arguments) if callable(value) else value
            if isinstance(found, Exception):
                raise found
            return found

        return function

    usual = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlSystemGetDriverVersion": "550",
        "nvmlDeviceGetClockInfo": 345,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetPowerManagementLimit": 700_000,
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37, memory=1),
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x48,
        "nvmlDeviceGetComputeRunningProcesses": [
            SimpleNamespace(pid=7, usedGpuMemory=500 << 20),
            SimpleNamespace(pid=8, usedGpuMemory=None),
        ],
        "nvmlSystemGetProcessName": lambda pid: "python" if pid == 7 else NVMLError("not found"),
    }
    functions = {name: answering(value) for name, value in (usual | answers).items()}
    return SimpleNamespace(NVMLError=NVMLError, NVML_CLOCK_SM=1, **functions)


@pytest.fixture(autouse=True)
def _one_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "visible_uuids", lambda: ["GPU-b"])


def test_only_gpus_that_are_visible_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "pynvml", library())
    assert visible_gpus() == [
        GpuState(
            uuid="GPU-b",
            driver="550",
            clock_mhz=345,
            max_clock_mhz=1980,
            power_limit_watts=700.0,
            utilisation_percent=37,
            slowdown_reasons=0x48,
            processes=(GpuProcess(7, "python", 500), GpuProcess(8, "a process", 0)),
        )
    ]


def test_a_driver_that_does_not_answer_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "pynvml", library(nvmlInit=NVMLError("driver not loaded")))
    assert visible_gpus() == []
    monkeypatch.setattr(nvidia, "pynvml", None)
    assert visible_gpus() == []
    unknown = NVMLError("no such GPU")
    monkeypatch.setattr(nvidia, "pynvml", library(nvmlDeviceGetHandleByUUID=unknown))
    assert visible_gpus() == []


def test_what_a_gpu_does_not_say_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = NVMLError("not supported")
    silent = library(
        nvmlDeviceGetMaxClockInfo=refused,
        nvmlDeviceGetPowerManagementLimit=refused,
        nvmlDeviceGetUtilizationRates=refused,
        nvmlDeviceGetCurrentClocksThrottleReasons=refused,
        nvmlDeviceGetComputeRunningProcesses=refused,
    )
    monkeypatch.setattr(nvidia, "pynvml", silent)
    (found,) = visible_gpus()
    assert (found.max_clock_mhz, found.power_limit_watts) == (None, None)
    assert (found.utilisation_percent, found.slowdown_reasons, found.processes) == (0, 0, ())


def test_the_library_has_what_is_asked_of_it() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert set(vars(library())) <= set(dir(pynvml))
