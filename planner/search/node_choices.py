"""Numbers of nodes by what they cost at least, and the time limit that their searches share."""

import heapq
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from automap.planner.search.candidates.enumeration import device_counts
from automap.planner.search.model.problem import PoolSlice, Problem
from automap.planner.search.model.solve import Limits
from automap.planner.search.space.search_space import SearchSpace

Sizes = tuple[int, ...]
"""Usable GPUs per pool."""
FIRST_SHARE = 0.5
"""The share of what is left of the limit that a search on some nodes may take."""
PROOF_SHARE = 1 / 256
"""The share of the time limit that a proven search on one number of nodes is counted as."""


@dataclass(frozen=True, order=True, slots=True)
class _Box:
    """Numbers of nodes from the lowest to the highest in every pool."""

    least: float
    """What none of them costs less than."""
    bound: float
    """Seconds that no period on them is below."""
    is_single: bool
    """A box is opened before a single one that equals it, lest it hold one that comes first."""
    lowest: tuple[int, ...]
    """Index of the size of each pool."""
    highest: tuple[int, ...] = field(compare=False)


class NodeChoices:
    """All numbers of nodes that may hold a job, ascending by cost, then bound, then sizes.

    More nodes never slow a job down, so what holds of the highest corner of a box of sizes bounds
    all of it, and a box that cannot be the next one is not opened. Where no plan may lie on the
    highest corner none lies in the box.
    """

    def __init__(self, space: SearchSpace, cost: Callable[[float, Sizes], float]) -> None:
        """`cost` of (bound on the period, sizes) must not fall as either grows; inf leaves out."""
        self._space, self._cost = space, cost
        pools = space.problem.pools
        self._axes = [sizes_of_nodes(space.problem, number) for number in range(len(pools))]
        self._grids = [_grid(pool) for pool in pools]
        self._known: dict[Sizes, float | None] = {}
        self._boxes: list[_Box] = []
        whole = tuple(len(axis) - 1 for axis in self._axes)
        self._add(tuple(0 for _ in whole), whole, 0.0)

    @property
    def least(self) -> float:
        """What all that are left cost at least; infinite where none is left."""
        return self._boxes[0].least if self._boxes else inf

    def next(self, *, most: float = inf, deadline: float = inf) -> tuple[float, Sizes] | None:
        """(cost, sizes) of the next.

        None where the next costs more than `most`, none is left, or time.perf_counter has passed
        the deadline; then `least` says what is left.
        """
        while self._boxes and self.least <= most:
            if time.perf_counter() > deadline:
                return None
            box = heapq.heappop(self._boxes)
            if box.is_single:
                return box.least, self._sizes(box.lowest)
            for lowest, highest in _halves(box):
                self._add(lowest, highest, box.bound)
        return None

    def _add(self, lowest: tuple[int, ...], highest: tuple[int, ...], known: float) -> None:
        """A box all of whose periods are known to be no shorter than that."""
        sizes = self._sizes(highest)
        bound = self._bound(sizes) if any(sizes) else None
        if bound is None:
            return
        bound = max(bound, known)
        least = self._cost(bound, self._sizes(lowest))
        if least < inf:
            heapq.heappush(self._boxes, _Box(least, bound, lowest == highest, lowest, highest))

    def _sizes(self, place: tuple[int, ...]) -> Sizes:
        return tuple(axis[index] for axis, index in zip(self._axes, place, strict=True))

    def _bound(self, sizes: Sizes) -> float | None:
        """Between two points of the grid the upper one's bound holds."""
        grids = zip(self._grids, sizes, strict=True)
        above = tuple(grid[bisect_left(grid, size)] for grid, size in grids)
        if above not in self._known:
            self._known[above] = self._space.on_gpus(above).lower_bound()
        return self._known[above]


class SharedBudget:
    """The time limit, shared by the searches of all numbers of nodes; the same every time.

    A search that ends by its limit has used what it got; one that ends by a proof far less.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.left = limits, limits.deterministic_seconds
        self.seconds = limits.clock_seconds
        """Seconds that there were until the deadline; infinite without one."""

    @property
    def is_spent(self) -> bool:
        """True when no further search may start."""
        if self.seconds < inf:
            return self.limits.clock_seconds <= 0.01 * self.seconds
        return self.left <= 0.01 * self.limits.deterministic_seconds

    def next_share(self, share: float = FIRST_SHARE) -> Limits:
        """Limits for the next search: such a share of what is left."""
        return replace(self.limits, deterministic_seconds=self.left).part(share)

    def take(self, *, proven: bool, share: float = FIRST_SHARE) -> None:
        """Count a search that has ended; what the clock counts needs none."""
        if self.seconds < inf:
            return
        proof = PROOF_SHARE * self.limits.deterministic_seconds
        self.left -= proof if proven else share * self.left


def _halves(box: _Box) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(lowest, highest) of both halves across the longest side."""
    lengths = [high - low for low, high in zip(box.lowest, box.highest, strict=True)]
    side = lengths.index(max(lengths))
    middle = (box.lowest[side] + box.highest[side]) // 2
    yield box.lowest, (*box.highest[:side], middle, *box.highest[side + 1 :])
    yield (*box.lowest[:side], middle + 1, *box.lowest[side + 1 :]), box.highest


def sizes_of_nodes(problem: Problem, number: int) -> list[int]:
    """Usable GPUs of a pool for every number of its nodes; none only where there are others."""
    pool = problem.pools[number]
    sizes = [*range(pool.gpus_per_node, pool.num_gpus, pool.gpus_per_node), pool.num_gpus]
    return [0, *sizes] if len(problem.pools) > 1 else sizes


def _grid(pool: PoolSlice) -> list[int]:
    """Node numbers, in GPUs, for which bounds are computed: those that one range can fill."""
    counts = device_counts(pool.num_gpus, pool.gpus_per_node)
    return sorted({n for n in counts if n % pool.gpus_per_node == 0} | {0, pool.num_gpus})
