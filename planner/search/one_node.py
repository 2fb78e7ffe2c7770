"""Placements that lie in one node of several: their weight syncs never leave it.

What a sync takes depends on the whole placement: inside the node where all of it lies in one,
across nodes anywhere else. So the placements in one node are a search of their own, on the first
node of every pool (nodes of a pool are alike), with prices of their own. It makes no search faster:
without it a plan on one node of several would be priced too dear and its bound would not hold.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.search.space import Arena, rows_up_to


def arenas(arena: Arena) -> Iterator[Arena]:
    """A node of every pool, where that is priced otherwise than the whole."""
    if arena.tables.differ_in_one_node:
        for pool in range(len(arena.problem.pools)):
            yield arena_of_pool(arena, pool)


def arena_of_pool(arena: Arena, pool: int) -> Arena:
    """The first node of one pool."""
    pools = list(arena.problem.pools)
    size = min(pools[pool].num_gpus, pools[pool].gpus_per_node)
    pools[pool] = replace(pools[pool], num_gpus=size)
    sizes = tuple(size if index == pool else 0 for index in range(len(pools)))
    tables = arena.tables.in_one_node()
    rows = arena.rows.both(rows_up_to(tables, sizes))
    return Arena(tables, replace(arena.problem, pools=tuple(pools)), rows)


def lies_in_one(
    arena: Arena, copy_rows: tuple[int | None, ...], first_gpus: tuple[int | None, ...]
) -> bool:
    """True for a placement in one node, where that is priced otherwise than the others."""
    if not arena.tables.differ_in_one_node:
        return False
    nodes = set()
    for copy, row, first in zip(arena.tables.copies, copy_rows, first_gpus, strict=True):
        if row is None or first is None:
            continue
        index = int(copy.pool[row])
        pool = arena.problem.pools[index]
        start = first - pool.first_gpu
        last = start + int(copy.layouts.num_gpus[row]) - 1
        nodes |= {(index, start // pool.gpus_per_node), (index, last // pool.gpus_per_node)}
    return len(nodes) == 1
