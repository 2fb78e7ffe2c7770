"""What a placement pays for: whole nodes, at the price of their pool."""

from automap.planner.assembly.parts import PricedCopy
from automap.planner.job.job import Job


def paid_gpus(job: Job, copies: list[PricedCopy]) -> dict[str, int]:
    """Pool → GPUs of the nodes that some copy touches; these are paid for."""
    nodes: dict[str, set[int]] = {pool.name: set() for pool in job.pools}
    for copy in copies:
        first, per_node = copy.placement.first_gpu, copy.pool.gpus_per_node
        last = first + copy.placement.num_gpus - 1
        nodes[copy.pool.name] |= set(range(first // per_node, last // per_node + 1))
    return {pool.name: len(nodes[pool.name]) * pool.gpus_per_node for pool in job.pools}


def price_per_second(job: Job, copies: list[PricedCopy]) -> float:
    """Of all GPUs that are paid for, in the unit of price_per_gpu_hour."""
    touched = paid_gpus(job, copies)
    return sum(touched[pool.name] * pool.price_per_gpu_hour / 3600.0 for pool in job.pools)
