"""The transition to generation weights against gathering everything, on the same ranks.

    python -m benchmarks.reshard [--repeat 7] [--layers 8] [--hidden 256] [--bucket-mib 4]

Eight gloo processes hold a Llama of random weights in fp32. For every layout the weights go to the
generation shard in two ways, by turns: by the all-gather of the interval grouping, and by the
vanilla grouping's, which gathers the whole model and keeps a shard (HybridFlow, Table 2). Bytes are
those that the ledger counts on rank 0; seconds are the slowest rank's, medians after one run that
is not counted. Figures are ratios, ours over the baseline's. Nothing is asserted.
"""

import argparse
import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from automap.executor.layout import GenerationLayout, Grouping, RankLayout
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.transition import gather_within
from benchmarks.rank_processes import run_ranks
from tests.executor.reshard.generation_buffer import GenerationBuffer
from tests.executor.reshard.sharded_model import Llama, ShardedLlama

WORLD_SIZE = 8
LAYOUTS = [
    (1, 8, 1, 1, 1),
    (1, 8, 1, 1, 2),
    (1, 8, 1, 1, 4),
    (2, 4, 1, 1, 1),
    (2, 4, 1, 1, 2),
    (2, 4, 1, 2, 2),
    (1, 4, 2, 1, 1),
    (1, 4, 2, 1, 2),
    (2, 2, 2, 1, 2),
    (1, 2, 4, 1, 1),
]
"""p, t, d of training, p and t of generation."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way through one layout."""

    received_bytes: int
    peak_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """Both ways through one layout, and the ratio of bytes that the paper's formulas give."""

    name: str
    ours: Measured
    baseline: Measured
    expected_ratio: float


class _Way:
    """One grouping of one layout, run as often as asked."""

    def __init__(self, model: ShardedLlama, layout: GenerationLayout, bucket_bytes: int) -> None:
        self._ledger = Ledger()
        gather = gather_within(model.pieces, layout, bucket_bytes=bucket_bytes, ledger=self._ledger)
        self._buffer = GenerationBuffer(gather, model.weights)
        self._runs = 0
        self._seconds: list[float] = []

    def run(self) -> None:
        dist.barrier()
        begin = time.perf_counter()
        self._buffer.fill()
        elapsed = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
        dist.all_reduce(elapsed, dist.ReduceOp.MAX)
        self._buffer.release()
        self._runs += 1
        self._seconds.append(float(elapsed))

    def measured(self) -> Measured:
        return Measured(
            received_bytes=self._ledger.received_bytes() // self._runs,
            peak_bytes=self._ledger.peak_bytes,
            seconds=statistics.median(self._seconds[1:]),
        )


def measure(llama: Llama, repeat: int, bucket_bytes: int) -> list[Row]:
    """Every layout, on the ranks of the default group."""
    rows = []
    for p, t, d, p_g, t_g in LAYOUTS:
        training = RankLayout(
            tensor_parallel_size=t, pipeline_parallel_size=p, data_parallel_size=d
        )
        model = ShardedLlama(llama, training, dist.get_rank())
        groupings: tuple[Grouping, Grouping] = ("interval", "vanilla")
        layouts = [GenerationLayout(training, t_g, p_g, grouping) for grouping in groupings]
        ways = [_Way(model, layout, bucket_bytes) for layout in layouts]
        for _ in range(repeat + 1):
            for way in ways:
                way.run()
        ours, baseline = (layout.received_fraction for layout in layouts)
        rows.append(
            Row(
                name=f"{p}-{t}-{d} → {p_g}-{t_g}",
                ours=ways[0].measured(),
                baseline=ways[1].measured(),
                expected_ratio=float(ours / baseline),
            )
        )
    return rows


def show(rows: list[Row], llama: Llama) -> None:
    """A table of ratios."""
    total = sum(llama.value(name).nbytes for name in llama.shapes())
    weights = f"{total / 2**20:.1f} MiB of weights, {WORLD_SIZE} gloo processes"
    table = Table(title=f"{weights}: × gathering everything", title_justify="left")
    table.add_column("p-t-d → p_g-t_g", no_wrap=True)
    for column in ("bytes", "formulas", "seconds", "peak", "ms", "baseline ms"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.ours.received_bytes / row.baseline.received_bytes:.3f}",
            f"{row.expected_ratio:.3f}",
            f"{row.ours.seconds / row.baseline.seconds:.3f}",
            f"{row.ours.peak_bytes / row.baseline.peak_bytes:.3f}",
            f"{row.ours.seconds * 1e3:.1f}",
            f"{row.baseline.seconds * 1e3:.1f}",
        )
    Console().print(table)


def _rank(rank: int, port: int, llama: Llama, repeat: int, bucket_bytes: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD_SIZE
    )
    rows = measure(llama, repeat, bucket_bytes)
    if rank == 0:
        show(rows, llama)
    dist.destroy_process_group()


def main() -> None:
    """Start the processes and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--bucket-mib", type=float, default=4)
    given = parser.parse_args()
    llama = Llama(
        num_layers=given.layers,
        hidden_size=given.hidden,
        intermediate_size=4 * given.hidden,
        vocab_size=8192,
    )
    run_ranks(_rank, WORLD_SIZE, llama, given.repeat, int(given.bucket_mib * 2**20))


if __name__ == "__main__":
    main()
