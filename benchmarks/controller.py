"""What the single controller adds to a call: eight workers against eight bare Ray calls.

    python -m benchmarks.controller [--repeat 300] [--workers 8]

bare calls   As many actors of a plain class, called at once and awaited together.
empty call   A method without arguments or result on a worker group of that many processes, through
             protocol, scheduler, record and future. Target: at most twice the bare calls.
with rows    The same with a batch by reference: split by the protocol, fetched, stored, collected;
             against plain actors that are given a slice each, by reference, and return it. Few
             rows travel within the reference, many through the object store.

Both sides of a comparison take turns, in a new order each time, so a busy machine slows both alike;
figures are medians.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence

import ray
import torch
from rich.console import Console
from rich.table import Table

from automap.executor.batch import Batch
from automap.executor.layout import RankLayout
from automap.executor.runtime.group import WorkerGroup
from automap.executor.runtime.process_sets import ProcessSet
from automap.executor.runtime.scheduler import Scheduler
from automap.executor.workers.process import ProcessContext
from automap.executor.workers.protocols import transfer
from automap.executor.workers.row_references import put

TARGET = 2.0
WARM_UP = 30
ROWS_EACH = {"few": 64, "many": 16384}
"""Of 8 bytes: below and above what travels within a reference, for each worker."""


class Bare:
    """What a user of Ray would write."""

    def nothing(self) -> None: ...

    def same(self, rows: object) -> object:
        return rows


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
    """Seconds of every case; each time all of them, in a random order."""
    draw = random.Random(0)
    seconds: list[list[float]] = [[] for _ in cases]
    for _ in range(WARM_UP + repeat):
        for number in draw.sample(range(len(cases)), len(cases)):
            begun = time.perf_counter()
            cases[number]()
            seconds[number].append(time.perf_counter() - begun)
    return [measured[WARM_UP:] for measured in seconds]


def measure_rows(
    group: WorkerGroup, actors: list[ray.actor.ActorHandle], rows_each: int, repeat: int
) -> list[list[float]]:
    """Seconds of bare calls and of a group's with so many rows for each worker."""
    numbers = torch.arange(rows_each * len(actors))
    rows = put(Batch({"number": numbers}))
    parts = [ray.put(part.numpy()) for part in numbers.chunk(len(actors))]

    def same_bare() -> None:
        replies = [actor.same.remote(part) for actor, part in zip(actors, parts, strict=True)]
        ray.wait(replies, num_returns=len(replies))

    return alternate(repeat, same_bare, lambda: group.same(rows).result())


def show(table: Table, rows: Sequence[tuple[str, list[float], str]]) -> None:
    """Rows of a comparison, the first of which is what the others are compared with."""
    _, baseline, _ = rows[0]
    for name, seconds, target in rows:
        table.add_row(
            name,
            f"{1e3 * statistics.median(seconds):.2f}",
            f"{1e3 * statistics.quantiles(seconds, n=10)[-1]:.2f}",
            f"{statistics.median(seconds) / statistics.median(baseline):.2f}",
            target,
        )


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
    bare, empty = alternate(
        given.repeat,
        lambda: ray.get([actor.nothing.remote() for actor in actors]),
        lambda: group.nothing().result(),
    )
    columns = ("median ms", "90th percentile ms", "× bare", "target")
    table = Table(f"{given.workers} workers", *columns)
    show(table, [("bare calls", bare, ""), ("empty call", empty, f"≤ {TARGET:g}")])
    for name, rows_each in ROWS_EACH.items():
        bare_rows, with_rows = measure_rows(group, actors, rows_each, given.repeat)
        table.add_section()
        names = (f"bare calls with {name} rows", f"call with {name} rows")
        show(table, [(names[0], bare_rows, ""), (names[1], with_rows, "")])
    Console().print(table)
    ray.shutdown()


if __name__ == "__main__":
    main()
