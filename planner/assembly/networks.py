"""The networks that a plan assumes because its spec does not say them, and what they decide."""

from collections.abc import Iterator
from dataclasses import replace

from automap.planner.catalogue.hardware import Pool
from automap.planner.check.check import recomputed_iteration_seconds
from automap.planner.job.job import Job
from automap.planner.plan.types import AssumedNetwork, Plan
from automap.planner.spec import ClusterSpec

SLOWER = 4
"""A rented node often has a quarter of the reference design's network, if not less."""


def with_assumed_networks(job: Job, plan: Plan) -> Plan:
    """The plan with its assumed networks, and a line for each among its assumptions."""
    found = list(_assumed(job, plan))
    lines = [network_line(plan.iteration_seconds, each) for each in found]
    return plan.model_copy(
        update={"assumed_networks": found, "assumptions": [*lines, *plan.assumptions]}
    )


def network_line(iteration_seconds: float, assumed: AssumedNetwork) -> str:
    """One assumed network in words."""
    slower = assumed.iteration_seconds_at_a_quarter
    rate = assumed.inter_node_bytes_per_second / 1e9
    return (
        f"pools.{assumed.pool}: inter_node_bytes_per_second is not given; {rate:g} GB/s per GPU, "
        f"as {assumed.node} has, is assumed. At a quarter of that the same plan takes "
        f"{slower:.4g} s instead of {iteration_seconds:.4g} s"
    )


def _assumed(job: Job, plan: Plan) -> Iterator[AssumedNetwork]:
    """Pools that a plan of several nodes uses, and whose network the spec leaves out."""
    cluster = job.spec.cluster
    assert isinstance(cluster, ClusterSpec)
    open_pools = {
        given.name for given in cluster.pools if given.inter_node_bytes_per_second is None
    }
    nodes = {pool.name: _nodes_of(plan, pool) for pool in job.pools}
    used = [pool for pool in job.pools if nodes[pool.name]]
    if sum(nodes.values()) < 2:
        return
    for pool in used:
        alone_in_a_domain = len(used) == 1 and pool.num_gpus <= pool.nvlink_domain_gpus
        if pool.name not in open_pools or alone_in_a_domain:
            continue
        link = pool.inter_node_bytes_per_second
        yield AssumedNetwork(
            pool=pool.name,
            node=pool.gpu.node,
            inter_node_bytes_per_second=link,
            iteration_seconds_at_a_quarter=recomputed_iteration_seconds(
                _with_link(job, pool, link / SLOWER), plan
            ),
        )


def _nodes_of(plan: Plan, pool: Pool) -> int:
    """Nodes of a pool on which the plan has a copy."""
    return len(
        {
            gpu // pool.gpus_per_node
            for copy in plan.copies
            if copy.pool == pool.name
            for gpu in (copy.first_gpu, copy.first_gpu + copy.num_gpus - 1)
        }
    )


def _with_link(job: Job, pool: Pool, link: float) -> Job:
    """The job with another network between the nodes of one pool."""
    other = replace(pool, inter_node_bytes_per_second=link)
    return replace(job, pools=tuple(other if each == pool else each for each in job.pools))
