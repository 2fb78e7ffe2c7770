"""Seconds until a tiny job of four workers is ready, and what they go into.

    python -m benchmarks.start_up [--repeat 3]

PPO of the tiny example on four cores: four processes that each hold actor, critic and reference on
Megatron-core and a vLLM, and two processes without a device (numeric steps, the reward). Every
start is a new process and a new Ray; figures are medians.

imports           From the start of the controlling process until it has imported the executor.
Ray               Until a local Ray runs.
worker processes  Until all processes have started and imported torch.
process groups    Until they are connected.
ROLE: …           Building a role's workers, on the slowest rank: importing the software of its
                  engines, and the rest (weights, optimizer, groups, vLLM's cache). Roles on the
                  same devices follow one another; the first one imports for all.
other             Between these.
Controller.start  From its call until the job is ready.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from automap.executor.runtime.finished_calls import FinishedCall
    from automap.executor.workers.model_setup import ModelSetup
    from automap.executor.workers.model_worker import Factories
    from automap.executor.workers.process import ProcessContext

MEGATRON, VLLM = "import Megatron-core", "import vLLM"
_CHILD = "--start"


def four_workers(document: dict[str, Any]) -> None:
    """The example's spec on four devices, with two of them to each of the actor's tensor groups."""
    document["cluster"]["pools"][0]["gpus_per_node"] = 4
    layouts = document["constraints"]["parallelism"]
    layouts["actor"] |= {"num_gpus": 4, "data_parallel_size": 2}
    for role in ("critic", "reference"):
        layouts[role] |= {"num_gpus": 4, "data_parallel_size": 4, "micro_batch_size": 8}


def _timed_factories() -> "Factories":
    """The executor's, which first import what they need and say how long that took."""
    from automap.executor.run.factories import FACTORIES
    from automap.executor.workers.model_worker import Factories

    def build_engine(setup: "ModelSetup", context: "ProcessContext") -> Any:
        begun = time.perf_counter()
        import automap.executor.engines.megatron  # noqa: F401

        context.measured[MEGATRON] = time.perf_counter() - begun
        return FACTORIES.build_engine(setup, context)

    def build_rollout(setup: "ModelSetup", context: "ProcessContext", engine: Any) -> Any:
        begun = time.perf_counter()
        import automap.executor.rollout.vllm_engine
        import automap.executor.rollout.vllm_rollout  # noqa: F401

        context.measured[VLLM] = time.perf_counter() - begun
        return FACTORIES.build_rollout(setup, context, engine)

    return Factories(build_engine, build_rollout, FACTORIES.build_sync)


@contextmanager
def _timed_joins(seconds: dict[str, float]) -> Iterator[None]:
    """Wait for a set's processes before they are connected, and note both times."""
    import ray

    from automap.executor.runtime.process_sets import ProcessSet

    join = ProcessSet.join

    def timed(self: ProcessSet, **options: Any) -> Any:
        begun = time.time()
        ray.get([process.identity.remote() for process in self.processes])
        up = time.time()
        identities = join(self, **options)
        seconds["worker processes"] += up - begun
        seconds["process groups"] += time.time() - up
        return identities

    ProcessSet.join = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        ProcessSet.join = join  # type: ignore[method-assign]


def _of_builds(builds: "Sequence[FinishedCall]") -> dict[str, float]:
    """Seconds of building the models' workers, which follow one another on their devices."""
    seconds: dict[str, float] = {}
    for call in builds:
        if not call.devices:
            continue
        imports = {name: call.worst(name) for name in (MEGATRON, VLLM) if call.worst(name)}
        for name, each in imports.items():
            seconds[f"{call.name.role}: {name}"] = each
        seconds[f"{call.name.role}: build"] = call.seconds - sum(imports.values())
    return seconds


def start(folder: Path, begun: float) -> dict[str, float]:
    """Start the job of the folder once, in a process that began at that Unix time."""
    from automap.executor.settings import RunSettings
    from automap.planner.plan.types import Plan
    from benchmarks.tiny_jobs import controller_of, local_ray

    seconds: dict[str, float] = defaultdict(float)
    seconds["imports"] = time.time() - begun
    plan = Plan.model_validate_json((folder / "plan.json").read_text())
    settings = RunSettings.model_validate_json((folder / "settings.json").read_text())
    builds: list[FinishedCall] = []
    before_ray = time.time()
    with local_ray(plan), _timed_joins(seconds):
        seconds["Ray"] = time.time() - before_ray
        before_start = time.time()
        factories = _timed_factories()
        with controller_of(plan, settings, factories=factories, on_call=builds.append):
            ready = time.time()
    seconds |= _of_builds(builds)
    parts = sum(seconds.values())
    return {
        **seconds,
        "other": ready - begun - parts,
        "Controller.start": ready - before_start,
        "in all": ready - begun,
    }


def _start_anew(folder: Path) -> dict[str, float]:
    """In a process of its own."""
    command = [sys.executable, "-m", "benchmarks.start_up", _CHILD, str(folder), str(time.time())]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    if _CHILD in sys.argv:
        _, _, folder, begun = sys.argv
        print(json.dumps(start(Path(folder), float(begun))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    from benchmarks.tiny_jobs import tiny_job

    plan, settings = tiny_job("ppo", change=four_workers)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plan.json").write_text(plan.model_dump_json(by_alias=True))
        (Path(folder) / "settings.json").write_text(settings.model_dump_json())
        starts = [_start_anew(Path(folder)) for _ in range(given.repeat)]
    table = Table("part", "median s", "least s")
    for name in starts[0]:
        found = [each[name] for each in starts]
        table.add_row(name, f"{statistics.median(found):.2f}", f"{min(found):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
