"""What was measured on, and in which state: the file that identifies a profile."""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from automap.planner.plan import code_version
from automap.profiler.errors import ProfileError
from automap.profiler.machine.devices import Device, cores
from automap.profiler.machine.lock import FOLDER_FILE
from automap.profiler.machine.nvidia import GpuState, visible_gpus

FILE = "fingerprint.json"
FORMAT = 3


def identity(device: Device) -> dict[str, Any]:
    """What must be equal for two measurements to belong to one profile."""
    gpus = visible_gpus() if device.kind == "cuda" else []
    return {
        "format": FORMAT,
        "device": device.kind,
        "device_type": device.gpu.name,
        "device_name": torch.cuda.get_device_name(0) if device.kind == "cuda" else _cpu_model(),
        "num_devices": device.count,
        "threads_per_process": torch.get_num_threads(),
        "attention_precision": device.attention_precision,
        "cpu": _cpu_model(),
        "driver": gpus[0].driver if gpus else None,
        "max_clock_mhz": _megahertz(gpus[0].max_clock_mhz) if gpus else _cpu_max_mhz(),
        "power_limit_watts": _power_limit(gpus),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": _nccl() if device.kind == "cuda" else None,
        "kernel_library": torch.backends.cpu.get_cpu_capability(),
        "automap": code_version(),
    }


def conditions(device: Device) -> dict[str, Any]:
    """What may change while measuring: the load, ours included, and how fast the clock is."""
    gpus = visible_gpus() if device.kind == "cuda" else []
    return {
        "load": round(os.getloadavg()[0], 2),
        "cores": cores(),
        "clock_mhz": _megahertz(gpus[0].clock_mhz) if gpus else _cpu_mhz(),
    }


def device_keys(device: Device) -> list[str]:
    """What a lock is taken on: each device that this process sees."""
    if device.kind == "cpu":
        return ["cpu"]
    uuids = [gpu.uuid for gpu in visible_gpus()]
    return sorted(uuids) or [f"cuda-{number}" for number in range(device.count)]


def check_same(folder: Path, here: dict[str, Any]) -> dict[str, Any] | None:
    """The fingerprint of the profile in a folder; None where the folder is empty.

    Raises:
        ProfileError: it was measured elsewhere or with another version, each difference a line; or
            there is something else in the folder, which a profile might overwrite.
    """
    path = folder / FILE
    if not path.exists():
        others = sorted(each.name for each in folder.iterdir() if each.name != FOLDER_FILE)
        if others:
            raise ProfileError(
                f"--output: {folder} is no profile (it has no {FILE}) and not empty: it holds "
                f"{', '.join(others[:3])}{', …' if len(others) > 3 else ''}",
                ["give a new or an empty folder"],
            )
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        there = found["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise ProfileError(
            f"{path} is no fingerprint: {error}", ["give another --output"]
        ) from None
    lines = list(_differences(there, here))
    if lines:
        raise ProfileError(
            f"{folder} holds a profile of another device or version",
            [*lines, "give another --output, or remove the folder"],
        )
    return found


def _differences(there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*there, *here]):
        if there.get(name) != here.get(name):
            yield f"{name}: the profile has {there.get(name)}, this machine {here.get(name)}"


def write(folder: Path, document: dict[str, Any]) -> None:
    """Replace the folder's fingerprint as a whole."""
    unfinished = folder / f".{FILE}.part"
    unfinished.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    os.replace(unfinished, folder / FILE)


def _nccl() -> str:
    return ".".join(map(str, torch.cuda.nccl.version()))


def _megahertz(value: int | None) -> str | None:
    return None if value is None else str(value)


def _power_limit(gpus: Sequence[GpuState]) -> str | None:
    """Watts with two decimals, as profiles have always spelled them: equal text, equal device."""
    watts = gpus[0].power_limit_watts if gpus else None
    return None if watts is None else f"{watts:.2f}"


def _cpu_info(name: str) -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)


def _cpu_model() -> str:
    return (
        f"{_cpu_info('model name') or platform.processor() or platform.machine()}, {cores()} cores"
    )


def _cpu_mhz() -> str | None:
    return _cpu_info("cpu MHz")


def _cpu_max_mhz() -> str | None:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    return str(int(path.read_text()) // 1000) if path.exists() else None
