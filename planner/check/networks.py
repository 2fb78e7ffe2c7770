"""Rules on assumed networks: only where the spec is silent, and with the seconds that follow."""

from collections.abc import Iterator
from dataclasses import replace

from automap.planner.catalogue import node_type
from automap.planner.check.prices import price_again
from automap.planner.check.subject import Subject, agrees
from automap.planner.check.time import least_period, schedule_of
from automap.planner.plan.types import AssumedNetwork


def wrong_networks(subject: Subject) -> Iterator[str]:
    """Networks that the plan calls assumed though they are given, or whose numbers are others."""
    cluster = subject.job.spec.cluster
    stated = {
        pool.name: pool.inter_node_bytes_per_second
        for pool in (() if isinstance(cluster, str) else cluster.pools)
    }
    for each in subject.plan.assumed_networks:
        name = f"the assumed network of pool {each.pool}"
        if each.pool not in stated or stated[each.pool] is not None:
            yield f"{name} is not left to the catalogue by the spec"
            continue
        node = node_type(subject.pools[each.pool].gpu.node)
        if (each.node, each.inter_node_bytes_per_second) != (
            node.name,
            node.inter_node_bytes_per_second,
        ):
            yield (
                f"{name} is {each.inter_node_bytes_per_second:g} bytes per second of {each.node}, "
                f"but {node.name} has {node.inter_node_bytes_per_second:g}"
            )
        expected = _at_a_quarter(subject, each)
        if expected is not None and not agrees(each.iteration_seconds_at_a_quarter, expected):
            yield (
                f"{name}: at a quarter the plan is said to take "
                f"{each.iteration_seconds_at_a_quarter:.6f} s, but takes {expected:.6f} s"
            )


def _at_a_quarter(subject: Subject, assumed: AssumedNetwork) -> float | None:
    """Seconds of the plan's own order with everything priced on the slower network."""
    pools = tuple(
        replace(pool, inter_node_bytes_per_second=pool.inter_node_bytes_per_second / 4)
        if pool.name == assumed.pool
        else pool
        for pool in subject.job.pools
    )
    slower = Subject(replace(subject.job, pools=pools), subject.plan)
    return least_period(schedule_of(slower, price_again(slower)))
