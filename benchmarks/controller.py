"""What the single controller adds to a call: eight workers against eight bare Ray calls.

    python -m benchmarks.controller [--repeat 300] [--workers 8]

bare     The same number of actors of a plain class, called at once and awaited together.
empty    A method without arguments or result on a worker group of that many processes, through
         protocol, scheduler, record and future. Target: at most twice the bare calls.
rows     The same with a batch by reference: split by the protocol, fetched, stored, collected.

Bare and grouped calls alternate, so a busy machine slows both alike; figures are medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import ray
import torch
from rich.console import Console
from rich.table import Table

from executor.batch import Batch
from executor.layout import RankLayout
from executor.protocols import transfer
from executor.runtime.group import ProcessSet, WorkerGroup
from executor.runtime.process import ProcessContext
from executor.runtime.rows import put
from executor.runtime.schedule import Scheduler

TARGET = 2.0
WARM_UP = 30


class Bare:
    """What a user of Ray would write."""

    def nothing(self) -> None: ...


class Worker:
    """Does nothing, so that all that is measured is the way there and back."""

    def __init__(self, context: ProcessContext) -> None: ...

    @transfer("ONE_TO_ALL")
    def nothing(self) -> None: ...

    @transfer("DP")
    def same(self, rows: Batch) -> Batch:
        return rows


def start(num_workers: int) -> tuple[WorkerGroup, list[ray.actor.ActorHandle]]:
    """Processes of both kinds, ready."""
    sets = [ProcessSet.on_host(f"worker-{rank}", run_id="bench") for rank in range(num_workers)]
    processes = ProcessSet("workers", (), tuple(each.processes[0] for each in sets))
    processes.join(timeout_seconds=300, collective_timeout_seconds=300)
    layout = RankLayout(data_parallel_size=num_workers)
    group = WorkerGroup("worker", Worker, processes, layout, Scheduler(), timeout_seconds=60)
    group.build(Worker, timeout_seconds=60).result()
    bare = ray.remote(num_cpus=0)(Bare)
    actors = [bare.remote() for _ in range(num_workers)]
    ray.get([actor.nothing.remote() for actor in actors])
    return group, actors


def alternate(repeat: int, *cases: Callable[[], object]) -> list[list[float]]:
    """Seconds of every case, called in turn."""
    seconds: list[list[float]] = [[] for _ in cases]
    for _ in range(WARM_UP + repeat):
        for case, measured in zip(cases, seconds, strict=True):
            begun = time.perf_counter()
            case()
            measured.append(time.perf_counter() - begun)
    return [measured[WARM_UP:] for measured in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=300)
    parser.add_argument("--workers", type=int, default=8)
    given = parser.parse_args()
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=128 * 2**20,
        log_to_driver=False,
        logging_level="error",
    )
    group, actors = start(given.workers)
    rows = put(Batch({"number": torch.arange(64 * given.workers)}))
    bare, empty, with_rows = alternate(
        given.repeat,
        lambda: ray.get([actor.nothing.remote() for actor in actors]),
        lambda: group.nothing().result(),
        lambda: group.same(rows).result(),
    )
    table = Table("call", "median ms", "90th percentile ms", "× bare", "target")
    for name, seconds, target in [
        (f"{given.workers} bare Ray calls", bare, ""),
        (f"empty call to {given.workers} workers", empty, f"≤ {TARGET:g}"),
        (f"{rows.num_rows} rows to {given.workers} workers and back", with_rows, ""),
    ]:
        table.add_row(
            name,
            f"{1e3 * statistics.median(seconds):.2f}",
            f"{1e3 * statistics.quantiles(seconds, n=10)[-1]:.2f}",
            f"{statistics.median(seconds) / statistics.median(bare):.2f}",
            target,
        )
    Console().print(table)
    ray.shutdown()


if __name__ == "__main__":
    main()
