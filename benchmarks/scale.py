"""How planning grows with the cluster: the instances of benchmarks.instances, and a curve.

Run by `python -m benchmarks.planning --only scale`. Every instance is a request to a running
service that has planned it once before. CPU seconds are those of the planner process; on a machine
that others use they say more than the clock.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from automap.planner.plan.types import Plan
from automap.planner.spec import JobSpec
from benchmarks import instances
from tests.service.support.processes import peak_bytes, planners_of, processor_seconds
from tests.service.support.servers import Server, serving_alone

CURVE = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
LONG_SECONDS = 20.0
"""CPU seconds of a first request after which it is the only one."""
MEMORY_TARGET = "≤ 1,024 MiB"


@dataclass(frozen=True, slots=True)
class Instance:
    """A job, and what is wanted of its planning."""

    name: str
    spec: Callable[[], JobSpec]
    target: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One request."""

    plan: Plan
    whole_seconds: float
    cpu_seconds: float


INSTANCES = (
    Instance("PPO, 4 × 70B, 128 GPUs", lambda: instances.ppo(128), "proven, ≤ 0.5 s"),
    Instance("PPO, 4 × 70B, 1,024 GPUs", lambda: instances.ppo(1024), "proven, ≤ 0.7 s"),
    Instance("PPO, 4 × 70B, 4,096 GPUs", lambda: instances.ppo(4096), "proven, ≤ 1 s"),
    Instance("PPO, 4 × 70B, 16,384 GPUs", lambda: instances.ppo(16384), "proven, ≤ 2 s"),
    Instance(
        "PPO, 4 × 70B, 3 GPU types × 256",
        lambda: instances.ppo_on_three_types(256),
        "proven, ≤ 2 s",
    ),
    Instance(
        "Safe-RLHF, 5 models, 235B, 1,024", lambda: instances.safe_rlhf(1024), "proven, ≤ 2 s"
    ),
    Instance("12 models, 20 calls, 512 GPUs", instances.agents, "gap ≤ 1 %, ≤ 5 s"),
)


def measured(spec: JobSpec, repeat: int) -> tuple[list[Sample], int]:
    """Requests after one that is not counted, and the planner process's peak bytes."""
    body = spec.model_dump_json(exclude_none=True)
    with serving_alone() as server:
        first = _request(server, body)
        samples = [_request(server, body) for _ in range(repeat)] if _is_short(first) else [first]
        return samples, max(map(peak_bytes, planners_of(server.process.pid)), default=0)


def _is_short(sample: Sample) -> bool:
    return sample.cpu_seconds <= LONG_SECONDS


def _request(server: Server, body: str) -> Sample:
    before, start = _cpu_seconds(server), time.perf_counter()
    response = server.client.post(
        "/v1/plans",
        content=body,
        headers={"Content-Type": "application/json"},
        timeout=httpx.Timeout(900.0),
    )
    seconds = time.perf_counter() - start
    response.raise_for_status()
    plan = Plan.model_validate(response.json()["plan"])
    return Sample(plan, seconds, _cpu_seconds(server) - before)


def _cpu_seconds(server: Server) -> float:
    """Of the service's planner processes (Linux)."""
    return sum(map(processor_seconds, planners_of(server.process.pid)))


def _table(title: str, first: str) -> Table:
    table = Table(title=title, box=None)
    table.add_column(first, no_wrap=True)
    table.add_column("status")
    for name in ("gap", "candidates", "pricing s", "solving s", "whole s", "CPU s", "peak MiB"):
        table.add_column(name, justify="right")
    table.add_column("target")
    return table


def _row(name: str, samples: list[Sample], peak_bytes: int, target: str) -> list[str]:
    report = samples[0].plan.search

    def median(value: Callable[[Sample], float]) -> str:
        return f"{statistics.median(map(value, samples)):.2f}"

    return [
        name,
        report.status,
        f"{max(sample.plan.relative_gap for sample in samples):.4%}",
        f"{report.candidates_priced:,}",
        median(lambda sample: sample.plan.search.pricing_seconds),
        median(lambda sample: sample.plan.search.solving_seconds),
        median(lambda sample: sample.whole_seconds),
        median(lambda sample: sample.cpu_seconds),
        f"{peak_bytes / 2**20:,.0f}",
        target,
    ]


def run_scale(out: Console, repeat: int, plot: Path | None) -> None:
    """Measure every instance, then the curve."""
    table = _table(f"Scale: requests to a service; memory target {MEMORY_TARGET}", "instance")
    for instance in INSTANCES:
        print(f"  {instance.name}", file=sys.stderr)
        samples, peak = measured(instance.spec(), repeat)
        table.add_row(*_row(instance.name, samples, peak, instance.target))
    out.print(table)
    out.print()
    run_curve(out, repeat, plot)


def run_curve(out: Console, repeat: int, plot: Path | None) -> None:
    """PPO with four 70B models on ever more GPUs: seconds, and the power of GPUs they grow with."""
    table = _table("Curve: PPO, four 70B models, 8 prompts per GPU", "GPUs")
    points: list[tuple[int, float, float]] = []
    for num_gpus in CURVE:
        print(f"  {num_gpus} GPUs", file=sys.stderr)
        samples, peak = measured(instances.ppo(num_gpus), repeat)
        table.add_row(*_row(f"{num_gpus:,}", samples, peak, ""))
        whole = statistics.median(sample.whole_seconds for sample in samples)
        cpu = statistics.median(sample.cpu_seconds for sample in samples)
        points.append((num_gpus, whole, cpu))
    out.print(table)
    for name, column in (("whole", 1), ("CPU", 2)):
        power = _power([(point[0], point[column]) for point in points])
        out.print(f"{name} seconds grow with GPUs to the power {power:.2f} (target: below 1)")
    if plot is not None:
        _plot(points, plot)
        out.print(f"curve drawn to {plot}")


def _power(points: list[tuple[int, float]]) -> float:
    """Slope of the least-squares line through ln(GPUs), ln(seconds)."""
    return statistics.linear_regression(
        [math.log(gpus) for gpus, _ in points], [math.log(seconds) for _, seconds in points]
    ).slope


def _plot(points: list[tuple[int, float, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="GPUs", ylabel="seconds")
    gpus = [point[0] for point in points]
    axes.plot(gpus, [point[1] for point in points], "o-", label="whole request")
    axes.plot(gpus, [point[2] for point in points], "s--", label="CPU")
    linear = [points[0][1] * count / gpus[0] for count in gpus]
    axes.plot(gpus, linear, ":", color="grey", label="linear growth")
    axes.legend()
    figure.savefig(path)
