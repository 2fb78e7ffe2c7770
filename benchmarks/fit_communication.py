"""Fit the network constants of automap.planner.cost.communication on measured collectives.

    python -m benchmarks.fit_communication COLLECTIVES.csv

The table has one row per collective and size: gpu_type, collective, num_gpus, num_nodes, fabric,
size_bytes, seconds, quality; rows of quality A and B count. A run is one sweep over sizes. Messages
from 1 MB of runs whose `fabric` states the network's speed count (`benchmarks.hierarchical`), each
run with the square root of its rows, but for one with an outdated plug-in, whose successor is a run
of its own. What small messages (up to 16 kB) took beyond the seconds inside a node is printed per
pass: the start of a crossing, of the first EFA by itself.

Printed: prior, posterior and rows behind every constant; errors on the rows of the fit, and on
every row when its project, its GPU type or its run had no part in it.
"""

import csv
import math
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
from benchmarks import hierarchical
from benchmarks.hierarchical import Prior, Problem, tell

SMALL = 16 << 10
LARGE = 1_000_000
FIRST_EFA = "EFA "
OUTDATED_PLUG_IN = "aws-ofi-nccl 1.7"
CONSTANTS = {
    "network_fraction": (0.9, 0.1),  # headers, and credits of flow control
    "network_start_seconds": (20e-6, math.log(1.6)),  # kernel, proxy thread, port, switches
    "pipeline_bytes": (16e6, math.log(2.5)),  # four channels' buffers of 4 MiB
    "fill_starts": (4.0, math.log(1.6)),
}
"""Constant → its value by what it stands for, and the width of ln."""
SCHEMES = ("project", "gpu", "name")


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
    project: str

    @property
    def gpu(self) -> str:
        return self.pool.gpu.name

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
        project=source.partition(";")[2].split(",")[0].strip(),
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


def links_of(values: FloatArray) -> LinkModel:
    return replace(FITTED, **dict(zip(CONSTANTS, map(float, values), strict=True)))  # type: ignore[arg-type]


def fit(runs: list[Run]) -> tuple[Problem, tuple[int, ...]]:
    """The problem of all large messages, and which constants stay free."""

    def errors(values: FloatArray) -> FloatArray:
        links = links_of(values)
        return np.concatenate([run.log_ratios(links)[run.size_bytes >= LARGE] for run in runs])

    priors = tuple(Prior(name, value, width) for name, (value, width) in CONSTANTS.items())
    problem = Problem(priors, errors, hierarchical.numerical_slopes(errors), per_row(runs, "name"))
    ways = {name: per_row(runs, name) for name in SCHEMES}
    return problem, hierarchical.choose(problem, ways)


def per_row(runs: list[Run], name: str) -> tuple[str, ...]:
    """A property of each run, once for each of its large messages."""
    return tuple(
        str(getattr(run, name)) for run in runs for _ in range(int((run.size_bytes >= LARGE).sum()))
    )


def main() -> None:
    runs = read_runs(Path(sys.argv[1]))
    fitted = [run for run in runs if run.network_is_stated and (run.size_bytes >= LARGE).any()]
    for first in (False, True):
        print(f"median start {fit_start([run for run in runs if run.first_efa is first]):.3g} s")
    problem, free = fit(fitted)
    found = hierarchical.solve(problem, np.ones(len(problem.groups)), free)
    now = np.array([getattr(FITTED, name) for name in CONSTANTS])
    hierarchical.tell_constants(problem, found, free, now)
    projects = per_row(fitted, "project")
    tell("as shipped", problem.errors(now), projects)
    tell("fitted", problem.errors(found.values), projects)
    for name in SCHEMES:
        groups = per_row(fitted, name)
        tell(f"left out: {name}", hierarchical.left_out(problem, groups, free), projects)


if __name__ == "__main__":
    main()
