"""Placements that lie in one node of several: their weight syncs never leave it.

What a sync takes depends on the whole placement: inside the node where all of it lies in one,
across nodes anywhere else. So the placements in one node are a search of their own, on the first
node of every pool (nodes of a pool are alike), with prices of their own. It makes no search faster:
without it a plan on one node of several would be priced too dear and its bound would not hold.
"""

from collections.abc import Iterator
from dataclasses import replace

from automap.planner.search.space.rows import rows_up_to
from automap.planner.search.space.search_space import SearchSpace


def spaces_of_nodes(space: SearchSpace) -> Iterator[SearchSpace]:
    """A node of every pool, where that is priced otherwise than the whole."""
    if space.tables.differ_in_one_node:
        for pool in range(len(space.problem.pools)):
            yield space_of_node(space, pool)


def space_of_node(space: SearchSpace, pool: int) -> SearchSpace:
    """The placements on the first node of one pool."""
    pools = list(space.problem.pools)
    size = min(pools[pool].num_gpus, pools[pool].gpus_per_node)
    pools[pool] = replace(pools[pool], num_gpus=size)
    sizes = tuple(size if index == pool else 0 for index in range(len(pools)))
    tables = space.tables.in_one_node()
    rows = space.rows.both(rows_up_to(tables, sizes))
    return SearchSpace(tables, replace(space.problem, pools=tuple(pools)), rows)
