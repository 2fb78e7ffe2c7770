"""How many GPUs each set gets: every allocation of sizes over the sets of a partition, in numpy.

Sets are added one by one; a state is what the sets so far take of each pool and, per stage, the
slowest of them. States that exceed a pool or cannot beat the bound are dropped at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.search.strategies.groups import FloatArray, IntArray
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placing import packed

MOST_COMBINATIONS = 400_000
"""Sizes per set are thinned so that sizes ^ sets stays below: all 99 sizes of 512 nodes for two
sets, 73 for three, 25 for four, 13 for five. A second pass tries the sizes next to the winners."""
NEIGHBOURS = 3
"""Sizes on either side of a winner that the second pass tries; fewer for seven sets and more, so
that it has no more combinations than the first."""

MOST_PACKED = 4096
"""Cheapest combinations tried for disjoint aligned ranges; sizes that are powers of two or whole
nodes always have them, so that more than one is tried only for odd sizes."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A size and a place for every set, and the stage cost."""

    slots: tuple[int, ...]
    firsts: tuple[int, ...]
    seconds: float


def best_allocation(
    index: Index, tables: Sequence[FloatArray], *, bound: float
) -> Allocation | None:
    """Least stage cost below `bound` over all sizes whose sum is within the pools.

    `tables` has per set [slots, stages] seconds, infinite where the set does not fit. Of equal
    costs, the fewest GPUs.
    """
    useful = [_useful(index, table) for table in tables]
    most = max(2, int(MOST_COMBINATIONS ** (1 / len(tables))))
    thinned = [_thinned(slots, most) for slots in useful]
    found = _search(index, tables, thinned, bound)
    if all(len(few) == len(many) for few, many in zip(thinned, useful, strict=True)):
        return found
    if found is None:
        return None
    reach = min(NEIGHBOURS, (most - 1) // 2)
    near = [
        many[max(0, at - reach) : at + reach + 1]
        for many, slot in zip(useful, found.slots, strict=True)
        for at in [int(np.flatnonzero(many == slot)[0])]
    ]
    return _search(index, tables, near, found.seconds * (1 + 1e-12)) or found


def _useful(index: Index, table: FloatArray) -> IntArray:
    """Slots on which the set fits and no smaller one of the pool is as fast in every stage."""
    slots: IntArray = np.flatnonzero(np.isfinite(table).all(axis=1))
    same_pool = index.pool_of[slots][:, None] == index.pool_of[slots][None, :]
    smaller = index.count_of[slots][:, None] < index.count_of[slots][None, :]
    no_slower = (table[slots][:, None, :] <= table[slots][None, :, :]).all(axis=2)
    useful: IntArray = slots[~(same_pool & smaller & no_slower).any(axis=0)]
    return useful


def _thinned(slots: IntArray, most: int) -> IntArray:
    """At most `most` slots, denser where sizes are small, as halving matters more than adding."""
    if len(slots) <= most:
        return slots
    picks = np.geomspace(1, len(slots), 4 * most).round().astype(np.int64) - 1
    picks = np.unique(picks)
    return slots[picks[np.linspace(0, len(picks) - 1, most).round().astype(np.int64)]]


def _search(
    index: Index, tables: Sequence[FloatArray], choices: Sequence[IntArray], bound: float
) -> Allocation | None:
    """Every combination of the choices, with what cannot be the best dropped on the way."""
    if not all(len(slots) for slots in choices):
        return None
    order = sorted(range(len(tables)), key=lambda i: len(choices[i]))
    sizes = np.array([pool.num_gpus for pool in index.problem.pools], dtype=np.int64)
    taken = np.zeros((len(index.slots), len(sizes)), dtype=np.int64)
    taken[np.arange(len(index.slots)), index.pool_of] = index.count_of
    used = np.zeros((1, len(sizes)), dtype=np.int64)
    slowest = index.function_seconds[None, :]
    trail: list[tuple[IntArray, IntArray]] = []
    for step, number in enumerate(order):
        slots = choices[number]
        later = order[step + 1 :]
        rest_used = sum(int(index.count_of[choices[i]].min()) for i in later)
        rest = np.max([tables[i][choices[i]].min(axis=0) for i in [*later, number]], axis=0)
        total = (used[:, None, :] + taken[slots][None, :, :]).reshape(-1, len(sizes))
        worst = np.maximum(slowest[:, None, :], tables[number][slots][None, :, :])
        worst = worst.reshape(-1, worst.shape[2])
        inside = (total <= sizes).all(axis=1) & (total.sum(axis=1) + rest_used <= sizes.sum())
        keep = np.flatnonzero(inside & (np.maximum(worst, rest).sum(axis=1) < bound))
        if len(keep) == 0:
            return None
        trail.append((keep // len(slots), slots[keep % len(slots)]))
        used, slowest = total[keep], worst[keep]
    costs = slowest.sum(axis=1)
    for at in np.lexsort((used.sum(axis=1), costs))[:MOST_PACKED]:
        picked = _trace(order, trail, int(at))
        firsts = packed(index.problem, [index.slots[slot] for slot in picked])
        if firsts is not None:
            return Allocation(tuple(picked), tuple(firsts), float(costs[at]))
    return None


def _trace(order: Sequence[int], trail: Sequence[tuple[IntArray, IntArray]], at: int) -> list[int]:
    """The slot of every set in the state `at` of the last step."""
    picked = [0] * len(order)
    for number, (previous, slot) in zip(reversed(order), reversed(trail), strict=True):
        picked[number] = int(slot[at])
        at = int(previous[at])
    return picked
