"""How fast and how good plans are: the search, the service, the command, and every example.

    python -m benchmarks.planning [--only speed|quality|scale|curve] [--repeat 3] [--plot FILE]

speed    Medians of `--repeat` runs after one that is not counted. Every case has a process of its
         own, whose peak memory is given. A request and a command plan in the process that answers;
         their whole seconds are what the caller waits.
quality  Every example once: its plan beside the named strategies, each priced and scheduled again
         by automap.planner.check.check, which shares no code with the search.
scale    PPO on up to 16,384 GPUs and on three GPU types, Safe-RLHF with a mixture of experts, and
         twelve models (benchmarks.instances) as requests to a service; then the curve.
curve    PPO on 64 to 16,384 GPUs: how seconds grow with GPUs; --plot draws it.

Targets are printed beside the figures; nothing is asserted.
"""

import argparse
import importlib.util
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from automap.planner.errors import PlanningError
from automap.planner.plan.types import Plan, Strategy
from automap.planner.spec import JobSpec
from automap.service.cli.inputs.files import read_spec
from benchmarks.scale import run_curve, run_scale
from tests.service.support.processes import peak_bytes, planners_of
from tests.service.support.servers import serving_alone

EXAMPLES = Path(__file__).parent.parent / "examples"
PPO = "hybridflow-ppo-70b-128xa100"
IN_PROCESS = {
    PPO: "whole ≤ 0.5 s",
    "hybridflow-ppo-70b-1024xa100": "whole ≤ 0.7 s",
    "hybridflow-ppo-70b-4096xa100": "whole ≤ 1 s",
    "grpo-70b-128xa100": "solving ≤ 1 s",
    "remax-70b-128xa100": "solving ≤ 1 s",
    "safe-rlhf-70b-128xa100": "solving ≤ 1 s",
}
SHOWN_STRATEGIES = ("colocate_all", "hybridflow")
CANDIDATES_TARGET = "≥ 200,000 on one core"


@dataclass(frozen=True, slots=True)
class Measured:
    """One way to plan a job, several times."""

    name: str
    target: str
    plans: list[Plan]
    whole_seconds: list[float]
    peak_bytes: int
    """Of the process that plans; 0 where the system does not tell."""


def example(name: str) -> Path:
    """The file of a shipped example."""
    return EXAMPLES / f"{name}.yaml"


def spec_of(path: Path) -> JobSpec:
    """The job spec in a YAML file."""
    return read_spec(str(path))


def timed(work: Callable[[], Plan]) -> tuple[Plan, float]:
    """A plan and the seconds it took."""
    start = time.perf_counter()
    plan = work()
    return plan, time.perf_counter() - start


def warm_runs(work: Callable[[], Plan], repeat: int) -> tuple[Plan, float, list[Plan], list[float]]:
    """The first plan with its seconds, then those of `repeat` further ones."""
    first, first_seconds = timed(work)
    runs = [timed(work) for _ in range(repeat)]
    return first, first_seconds, [plan for plan, _ in runs], [seconds for _, seconds in runs]


def in_process(name: str, repeat: int) -> Measured:
    """Plan in a fresh process of ours, warm."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(_in_this_process, name, repeat).result()


def _in_this_process(name: str, repeat: int) -> Measured:
    from automap.planner.planning import make_plan

    spec = spec_of(example(name))
    _, _, plans, seconds = warm_runs(lambda: make_plan(spec), repeat)
    return Measured(name, IN_PROCESS[name], plans, seconds, peak_bytes("self"))


def as_requests(name: str, repeat: int) -> list[Measured]:
    """Plan as requests to a running service: its first, and the ones after it."""
    body = example(name).read_bytes()
    with serving_alone() as server:

        def post() -> Plan:
            response = server.client.post(
                "/v1/plans",
                content=body,
                headers={"Content-Type": "application/yaml"},
                timeout=120,
            )
            response.raise_for_status()
            return Plan.model_validate(response.json()["plan"])

        first, first_seconds, plans, seconds = warm_runs(post, repeat)
        peak = max(map(peak_bytes, planners_of(server.process.pid)), default=0)
    return [
        Measured("… first request to a service", "", [first], [first_seconds], peak),
        Measured("… as a request", "whole ≤ 0.5 s", plans, seconds, peak),
    ]


def as_command(name: str, repeat: int) -> Measured:
    """Plan with `automap plan`, every time in a fresh process."""
    command = [str(Path(sys.executable).with_name("automap")), "plan", str(example(name)), "--json"]
    peaks: list[int] = []

    def plan() -> Plan:
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdout=output)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, command)
            peaks.append(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
            output.seek(0)
            return Plan.model_validate_json(output.read())

    _, _, plans, seconds = warm_runs(plan, repeat)
    return Measured("… as `automap plan`", "whole ≤ 2 s", plans, seconds, max(peaks))


def print_speed(out: Console, measured: list[Measured]) -> None:
    """Seconds and memory of every case."""
    table = Table(title="Speed: medians; target of every case: proven optimal", box=None)
    table.add_column("job", no_wrap=True)
    for name in ("status", "gap", "pricing s", "solving s", "whole s", "target"):
        table.add_column(name, justify="left" if name in ("status", "target") else "right")
    for name in ("candidates", "per second", "peak MiB"):
        table.add_column(name, justify="right")
    for case in measured:
        reports = [plan.search for plan in case.plans]
        pricing = statistics.median(report.pricing_seconds for report in reports)
        candidates = reports[0].candidates_priced
        table.add_row(
            case.name,
            "/".join(sorted({report.status for report in reports})),
            f"{max(plan.relative_gap for plan in case.plans):.4%}",
            f"{pricing:.2f}",
            f"{statistics.median(report.solving_seconds for report in reports):.2f}",
            f"{statistics.median(case.whole_seconds):.2f}",
            case.target,
            f"{candidates:,}",
            f"{candidates / pricing:,.0f}",
            f"{case.peak_bytes / 2**20:,.0f}" if case.peak_bytes else "–",
        )
    out.print(table)
    out.print(f"candidates per second: target {CANDIDATES_TARGET}\n", highlight=False)


def print_outcome(out: Console, measured: list[Measured]) -> None:
    """Seconds of an iteration by each plan and by strategies of the same run."""
    table = Table(title="What was found: seconds of one iteration", box=None)
    table.add_column("job", no_wrap=True)
    for name in ("plan", *SHOWN_STRATEGIES, "different plans", "options left to CP-SAT"):
        table.add_column(name, justify="right")
    for case in measured:
        plan = case.plans[0]
        strategies = {strategy.name: strategy for strategy in plan.alternatives}
        placements = {each.placement().model_dump_json() for each in case.plans}
        table.add_row(
            case.name,
            f"{plan.iteration_seconds:.3f}",
            *(_seconds(strategies[name]) for name in SHOWN_STRATEGIES),
            f"{len(placements)} in {len(case.plans)} runs",
            f"{plan.search.options:,}",
        )
    out.print(table)
    out.print()


def _seconds(strategy: Strategy) -> str:
    seconds = strategy.iteration_seconds
    return "does not fit" if seconds is None else f"{seconds:.3f}"


def run_speed(out: Console, repeat: int) -> None:
    """Measure every case and print both tables."""
    measured = []
    for name in IN_PROCESS:
        print(f"  {name}", file=sys.stderr)
        measured.append(in_process(name, repeat))
        if name == PPO:
            measured += [*as_requests(name, repeat), as_command(name, repeat)]
    print_speed(out, measured)
    print_outcome(out, measured)


def objective_by_check(spec: JobSpec, plan: Plan) -> float:
    """The job's objective by the independent check: seconds, price of an iteration, or GPUs."""
    from automap.planner.check.check import recomputed_iteration_seconds
    from automap.planner.job.resolution import resolve

    if spec.search.objective == "fewest_gpus":
        return plan.gpus_used
    seconds = recomputed_iteration_seconds(resolve(spec), plan)
    if spec.search.objective == "run_price":
        return plan.run_price
    if spec.search.objective == "price":
        return plan.price_per_iteration * seconds / plan.iteration_seconds
    return seconds


def run_quality(out: Console) -> None:
    """Plan every example and print how many times the plan's objective each strategy takes."""
    from automap.planner.planning import make_plan
    from automap.planner.search.strategies import STARTS

    table = Table(title="Quality: objective by the check, strategies ÷ plan", box=None)
    table.add_column("example", no_wrap=True)
    for name in ("objective", "status", "gap", "plan", *STARTS):
        table.add_column(name, justify="left" if name in ("objective", "status") else "right")
    better: list[str] = []
    for path in sorted(set(EXAMPLES.glob("*.yaml")) - set(EXAMPLES.glob("*.run.yaml"))):
        spec = spec_of(path)
        print(f"  {path.stem}", file=sys.stderr)
        try:
            plan = make_plan(spec)
        except PlanningError as error:
            table.add_row(path.stem, spec.search.objective, str(error))
            continue
        value = objective_by_check(spec, plan)
        ratios = {each.name: _ratio(spec, each, value) for each in plan.alternatives}
        better += [
            f"{name} on {path.stem}" for name, r in ratios.items() if r is not None and r < 1 - 1e-9
        ]
        table.add_row(
            path.stem,
            spec.search.objective,
            plan.search.status,
            f"{plan.relative_gap:.4%}",
            f"{value:.3f}",
            *("does not fit" if r is None else f"{r:.3f}×" for r in map(ratios.get, STARTS)),
        )
    out.print(table)
    out.print(f"better than its plan (target: none): {', '.join(better) or 'none'}")


def _ratio(spec: JobSpec, strategy: Strategy, value: float) -> float | None:
    """The strategy's objective by the check over the plan's; None where it does not fit."""
    from automap.planner.planning import estimate

    if strategy.placement is None:
        return None
    return objective_by_check(spec, estimate(spec, strategy.placement)) / value


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=["speed", "quality", "scale", "curve"])
    parser.add_argument("--repeat", type=int, default=3, help="runs per case (default 3)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curve (PNG, SVG, PDF)")
    arguments = parser.parse_args()
    if arguments.repeat < 1:
        parser.error("--repeat must be at least 1")
    if arguments.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib, or leave --plot out")
    out = Console(width=max(Console().width, 150), highlight=False)
    if arguments.only in (None, "speed"):
        run_speed(out, arguments.repeat)
    if arguments.only in (None, "quality"):
        run_quality(out)
    if arguments.only in ("scale", "curve"):
        run = run_scale if arguments.only == "scale" else run_curve
        run(out, arguments.repeat, arguments.plot)


if __name__ == "__main__":
    main()
