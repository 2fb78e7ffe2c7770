"""A profile of the machine, and the loop's job on one device of it: planned, run, compared."""

import tempfile
from pathlib import Path

import torch

from automap.executor.telemetry.run_report import RunReport
from automap.planner.profiles.folder import fingerprint
from benchmarks.gpu_check.findings import Figures
from benchmarks.loop.jobs import ON_ONE, SIZES, Variant, pool_of
from benchmarks.loop.profiling import profiled
from benchmarks.loop.runs import planned, run

ITERATIONS = 3
VARIANTS = (ON_ONE, Variant("FSDP2", "fsdp", ON_ONE.constraints))
BUDGETS = {"cuda": 120.0, "cpu": 20.0}
"""Seconds of profiling."""
MOST_PEAK = 1.1
"""Of measured memory over the planned: a tenth is the margin that plans keep."""


def measure(device: torch.device, figures: Figures) -> None:
    """Profile, plan, run; what was predicted beside what was measured.

    Seconds have no limit, as nothing is fitted to this machine yet; memory has, as a plan that
    counts too little of it ends a run.
    """
    sizes, on_gpu = SIZES[device.type], device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        profile = profiled(Path(folder), sizes, BUDGETS[device.type])
        identity = fingerprint(profile)["identity"]
        figures.add("devices in the profile", identity["num_devices"], at_least=1)
        plans = planned(VARIANTS, sizes, pool_of(profile))
        for variant, plan in plans:
            outcome = run(variant, plan, sizes, Path(folder), iterations=ITERATIONS)
            name = {"megatron-core": "Megatron-core", "fsdp": "FSDP2"}[variant.stack]
            figures.add(f"{name}: iteration", outcome.measured, "s")
            predicted = plan.iteration_seconds / outcome.measured
            figures.add(f"{name}: iteration, predicted over measured", predicted)
            most = MOST_PEAK if on_gpu else None
            figures.add(
                f"{name}: peak memory, measured over planned", _peak(outcome.report), at_most=most
            )


def _peak(report: RunReport) -> float:
    """The most memory that any call took over the most that the plan has any take."""
    peaks = [each.bytes["peak_memory"] for each in report.calls if "peak_memory" in each.bytes]
    measured = max((each.measured or 0 for each in peaks), default=0)
    predicted = max((each.predicted or 0 for each in peaks), default=0)
    return measured / predicted if predicted else float("nan")
