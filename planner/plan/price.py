"""What a placement costs: the nodes it pays for, and the one number that an objective minimises.

Whole nodes are paid for, at the price of their pool, from the start of a run to its end.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from automap.planner.catalogue.hardware import Pool
from automap.planner.layout import FloatArray
from automap.planner.plan.types import CopyPlacement
from automap.planner.spec import JobSpec, WorkloadSpec

Seconds = TypeVar("Seconds", float, FloatArray)


def paid_gpus(pools: Sequence[Pool], copies: Iterable[CopyPlacement]) -> dict[str, int]:
    """Pool → GPUs of the nodes that some copy touches; these are paid for."""
    by_name = {pool.name: pool for pool in pools}
    nodes: dict[str, set[int]] = {pool.name: set() for pool in pools}
    for copy in copies:
        per_node = by_name[copy.pool].gpus_per_node
        last = copy.first_gpu + copy.num_gpus - 1
        nodes[copy.pool] |= set(range(copy.first_gpu // per_node, last // per_node + 1))
    return {pool.name: len(nodes[pool.name]) * pool.gpus_per_node for pool in pools}


def price_per_second(pools: Sequence[Pool], copies: Iterable[CopyPlacement]) -> float:
    """Price of all paid GPUs for one second, in the unit of price_per_gpu_hour."""
    paid = paid_gpus(pools, copies)
    return sum(paid[pool.name] * pool.price_per_gpu_hour / 3600.0 for pool in pools)


def fixed_seconds(workload: WorkloadSpec) -> float:
    """Seconds of a whole run that no plan changes: start-up and checkpoints."""
    every = workload.checkpoint_every_iterations
    checkpoints = 0 if every is None else workload.iterations // every
    return workload.startup_seconds + checkpoints * workload.checkpoint_seconds


def run_seconds(workload: WorkloadSpec, period: float) -> float:
    """Seconds of a whole run: start-up, iterations, checkpoints.

    A cyclic schedule also fills and drains once, which is within the noise of a run.
    """
    return workload.iterations * period + fixed_seconds(workload)


def objective_value(spec: JobSpec, period: Seconds, price_per_second: float, gpus: int) -> Seconds:
    """What the spec's objective minimises: seconds, price, or paid GPUs.

    A target of seconds or price is the caller's to keep.
    """
    objective = spec.search.objective
    if objective == "throughput":
        return period
    if objective == "price":
        return period * price_per_second
    if objective == "run_price":
        workload = spec.workload
        return (workload.iterations * period + fixed_seconds(workload)) * price_per_second
    return 0 * period + gpus
