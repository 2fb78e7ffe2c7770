"""Fit the network constants of automap.planner.cost.communication on measured collectives.

    python -m benchmarks.fit_communication COLLECTIVES.csv

The table has one row per collective and size: gpu_type, collective, num_gpus, num_nodes, fabric,
size_bytes, seconds, quality; rows of quality A and B count. A run is one sweep over sizes.

- network_start_seconds: median over all runs across nodes, of what small messages (up to 16 kB)
  took beyond the seconds inside a node, per pass; of the first EFA by itself.
- network_fraction, pipeline_bytes and fill_starts: least mean |log(predicted ÷ measured)| of
  messages from 1 MB, every run with the same weight, over runs whose `fabric` states the
  network's speed, but for one with an outdated plug-in, whose successor is a run of its own.
  Each such run is also predicted with constants fitted on the others.
"""

import csv
import itertools
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from automap.planner.catalogue import gpu_type, node_type
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.communication import (
    EFA_FIRST_GENERATION,
    FITTED,
    Collective,
    LinkModel,
    collective_seconds,
)
from automap.planner.cost.operators.profile import load_profile
from automap.planner.layout import FloatArray

SMALL = 16 << 10
LARGE = 1_000_000
FIRST_EFA = "EFA "
OUTDATED_PLUG_IN = "aws-ofi-nccl 1.7"


@dataclass(frozen=True)
class Run:
    """One measured sweep over message sizes."""

    name: str
    pool: Pool
    collective: Collective
    num_gpus: int
    stride: int
    size_bytes: FloatArray
    seconds: FloatArray
    crosses: bool
    network_is_stated: bool
    """And its software is current."""
    first_efa: bool

    def log_ratios(self, links: LinkModel) -> FloatArray:
        return np.log(self.predicted(links) / self.seconds)

    def predicted(self, links: LinkModel) -> FloatArray:
        if self.first_efa and links.network_start_seconds:
            start = EFA_FIRST_GENERATION.network_start_seconds
            links = replace(links, network_start_seconds=start)
        return collective_seconds(
            self.pool,
            load_profile(self.pool.gpu),
            self.collective,
            self.size_bytes,
            group_size=self.num_gpus,
            stride=self.stride,
            links=links,
        ).seconds


def port_bytes_per_second(fabric: str, gpus_per_node: int) -> float | None:
    """Bandwidth per GPU that a description such as "EFA 4x100 Gb/s per node" states."""
    several = re.search(r"(\d+)x(\d+) Gb/s", fabric)
    if several:
        return int(several[1]) * int(several[2]) * 1e9 / 8 / gpus_per_node
    whole = re.search(r"(\d+) Gb/s per node", fabric)
    return int(whole[1]) * 1e9 / 8 / gpus_per_node if whole else None


def read_runs(path: Path) -> list[Run]:
    rows = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["quality"] in "AB" and row["size_bytes"] and row["seconds"]:
                keys = ("source", "gpu_type", "collective", "num_gpus", "num_nodes", "fabric")
                rows[tuple(row[key] for key in keys)].append(row)
    return [_run(key, group) for key, group in rows.items()]


def _run(key: tuple[str, ...], rows: list[dict[str, str]]) -> Run:
    source, gpu_name, collective, num_gpus, num_nodes, fabric = key
    gpu = gpu_type(gpu_name)
    node = node_type(gpu.node)
    per_node = int(num_gpus) // int(num_nodes)
    port = port_bytes_per_second(fabric, node.gpus_per_node)
    pool = Pool(
        name=source,
        gpu=gpu,
        num_nodes=int(num_nodes),
        gpus_per_node=node.gpus_per_node,
        first_gpu=0,
        nvlink_domain_gpus=node.nvlink_domain_gpus,
        intra_node_bytes_per_second=node.intra_node_bytes_per_second,
        inter_node_bytes_per_second=port or node.inter_node_bytes_per_second,
        host_memory_bytes=node.host_memory_bytes,
        host_link_bytes_per_second=node.host_link_bytes_per_second,
        price_per_gpu_hour=node.price_per_gpu_hour,
    )
    return Run(
        name=f"{gpu_name} {collective} {num_gpus} GPUs on {num_nodes} nodes, {source[-45:]}",
        pool=pool,
        collective=collective,  # type: ignore[arg-type]
        num_gpus=int(num_gpus),
        stride=node.gpus_per_node // per_node if int(num_nodes) > 1 else 1,
        size_bytes=np.array([float(row["size_bytes"]) for row in rows]),
        seconds=np.array([float(row["seconds"]) for row in rows]),
        crosses=int(num_nodes) > 1,
        network_is_stated=(
            int(num_nodes) > 1 and port is not None and OUTDATED_PLUG_IN not in fabric
        ),
        first_efa=FIRST_EFA in fabric,
    )


def error(runs: list[Run], links: LinkModel) -> float:
    return float(
        np.mean([np.abs(run.log_ratios(links))[run.size_bytes >= LARGE].mean() for run in runs])
    )


def fit_start(runs: list[Run]) -> float:
    without = replace(FITTED, network_start_seconds=0.0, network_hop_seconds=0.0)
    starts = []
    for run in runs:
        small = run.size_bytes <= SMALL
        if run.crosses and small.any():
            passes = 2.0 if run.collective == "all_reduce" else 1.0
            beyond = (run.seconds - run.predicted(without))[small] / passes
            starts.append(float(np.median(beyond)))
            print(f"  start {1e6 * starts[-1]:5.1f} us: {run.name}, first EFA: {run.first_efa}")
    return float(np.median(starts))


def fit(runs: list[Run], start: LinkModel) -> LinkModel:
    """The best of a grid, refined around the best so far."""
    best, width = start, 2.0
    for _ in range(4):
        factors = np.linspace(-np.log(width), np.log(width), 9)
        candidates = [
            replace(
                best,
                network_fraction=float(min(1.0, best.network_fraction * np.exp(a / 4))),
                pipeline_bytes=float(best.pipeline_bytes * np.exp(b)),
                fill_starts=float(best.fill_starts * np.exp(c)),
            )
            for a, b, c in itertools.product(factors, repeat=3)
        ]
        best = min(candidates, key=lambda links: error(runs, links))
        width = width**0.4
    return best


def main() -> None:
    runs = read_runs(Path(sys.argv[1]))
    fitted = [run for run in runs if run.network_is_stated]
    start = fit_start([run for run in runs if not run.first_efa])
    fit_start([run for run in runs if run.first_efa])
    best = fit(fitted, replace(FITTED, network_start_seconds=start))
    print(f"shipped: {FITTED}, error {error(fitted, FITTED):.3f}")
    print(f"best:    {best}, error {error(fitted, best):.3f}")
    for run in fitted:
        others = fit([other for other in fitted if other is not run], best)
        print(f"{error([run], others):7.1%} left out, {error([run], best):.1%} fitted: {run.name}")
    for run in sorted(runs, key=lambda run: not run.network_is_stated):
        ratios = run.log_ratios(FITTED)
        large = np.abs(ratios[run.size_bytes >= LARGE])
        end = f", {np.mean(large):.1%} from 1 MB" if len(large) else ""
        use = "fitted" if run.network_is_stated else "not fitted"
        print(
            f"{np.mean(np.abs(ratios)):7.1%} (bias {np.mean(ratios):+.1%}{end}) {use}: {run.name}"
        )


if __name__ == "__main__":
    main()
