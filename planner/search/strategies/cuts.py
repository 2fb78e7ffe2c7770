"""RLinf's scheduler (arXiv 2509.15965): dynamic programming over the s–t cuts of the workflow.

On n GPUs a workflow runs as one component; or it is cut in two, of which the first half waits for
nothing in the second. The halves take all n GPUs in turn, which costs the sum; or n₁ and n₂ of them
side by side. Then halves of which one waits for the other cost the sum too, unless iterations
overlap, in which case an iteration lasts as long as the slower half; halves that do not wait for
one another cost the longer. (RLinf streams chunks of a batch between halves. Calls here start when
all of their input is there, so that a batch is one chunk.)

A component is the calls of one copy, rollouts apart from the rest; calls that wait for one another
both ways are one component, and functions on the host are none. A component takes the fastest
option that it has by itself, as RLinf chooses no parallelism. Memory counts by least bytes: what
takes turns lies side by side, since copies stay where they are. So rollouts may also stay with the
rest of their model: then there is no second copy, and no cut between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from automap.planner.search.model.problem import Range
from automap.planner.search.model.solve import Limits
from automap.planner.search.strategies.groups import BoolArray, FloatArray, IntArray
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placing import DoesNotFit, Placed, check_served
from automap.planner.search.strategies.ranges import fastest_on
from automap.planner.search.strategies.shadows import rollouts_apart, shadows_of

NAME = "rlinf"
MOST_COMPONENTS = 8
"""Beyond, the last ones count as one: the cuts of k components are up to 3^k."""


def rlinf(index: Index, limits: Limits) -> Placed:
    """The cheapest tree of cuts on one pool, with the fastest layouts on its ranges."""
    check_served(index)
    problem = index.problem
    ways = [index]
    if shadows_of(problem):
        apart = rollouts_apart(problem, strategy=NAME).problem
        ways.append(Index(apart, stages=index.stages))
    best = min(
        (_Cuts(way, pool) for way in ways for pool in range(len(problem.pools))),
        key=lambda cuts: cuts.seconds,
    )
    if not np.isfinite(best.seconds):
        raise DoesNotFit(f"{NAME}: no tree of cuts of {index.name(index.homes)} fits on any pool")
    places = best.places()
    for shadow, home in shadows_of(problem).items():
        if places.get(shadow) == places[home]:
            del places[shadow]  # the same GPUs in turn: the home's own engine
    return fastest_on(
        problem, places, strategy=NAME, limits=limits, claimed_seconds=float(best.seconds)
    )


@dataclass(frozen=True, slots=True)
class _Solved:
    """The best of a part of the workflow on every size, by position in the pool's sizes."""

    seconds: FloatArray
    resident: IntArray
    """Least bytes that its copies hold on the fullest GPU."""
    transient: IntArray
    choice: list[tuple[int, int, int] | None]
    """(the first half, its size, the second half's size); None: one component."""


class _Cuts:
    """The dynamic program on one pool."""

    def __init__(self, index: Index, pool: int) -> None:
        self.index, self.pool = index, pool
        self.slots = [n for n, slot in enumerate(index.slots) if slot.pool == pool]
        self.counts = index.count_of[self.slots]
        self.components, self.before = _components(index)
        self.solved: dict[int, _Solved] = {}
        total = self.counts[:, None] + self.counts[None, :]
        self.pairs: IntArray = np.argsort(total, axis=None, kind="stable")
        """Pairs of sizes, those with the smallest sum first."""
        self.pairs_within: IntArray = np.searchsorted(
            total.reshape(-1)[self.pairs], self.counts, side="right"
        )
        self.everything = 2 ** len(self.components) - 1
        found = self._solve(self.everything).seconds
        self.seconds = float(found.min(initial=np.inf))

    def _solve(self, mask: int) -> _Solved:
        if mask not in self.solved:
            self.solved[mask] = self._cut(mask) if mask & (mask - 1) else self._component(mask)
        return self.solved[mask]

    def _component(self, mask: int) -> _Solved:
        alone = [self.index.alone[copy] for copy in self.components[mask.bit_length() - 1]]
        seconds = np.sum([each.seconds.sum(axis=1) for each in alone], axis=0)[self.slots]
        resident = np.sum([each.resident for each in alone], axis=0)[self.slots]
        transient = np.max([each.transient for each in alone], axis=0)[self.slots]
        return self._fitting(seconds, resident, transient, [None] * len(self.slots))

    def _cut(self, mask: int) -> _Solved:
        sizes = len(self.slots)
        best = self._fitting(
            np.full(sizes, np.inf),
            np.zeros(sizes, dtype=np.int64),
            np.zeros(sizes, dtype=np.int64),
            [None] * sizes,
        )
        for first in self._halves(mask):
            one, other = self._solve(first), self._solve(mask ^ first)
            best = _better(best, self._in_turn(first, one, other))
            best = _better(best, self._side_by_side(first, mask ^ first, one, other))
        return best

    def _halves(self, mask: int) -> Iterator[int]:
        """Parts that wait for nothing in the rest of the mask."""
        part = (mask - 1) & mask
        while part:
            rest = mask ^ part
            if not any(self.before[n] & rest for n in _members(part)):
                yield part
            part = (part - 1) & mask

    def _in_turn(self, first: int, one: _Solved, other: _Solved) -> _Solved:
        return self._fitting(
            one.seconds + other.seconds,
            one.resident + other.resident,
            np.maximum(one.transient, other.transient),
            [(first, size, size) for size in range(len(self.slots))],
        )

    def _side_by_side(self, first: int, second: int, one: _Solved, other: _Solved) -> _Solved:
        """For every size the best two sizes within it."""
        waits = any(self.before[n] & first for n in _members(second))
        if waits and self.index.problem.barrier:
            cost = one.seconds[:, None] + other.seconds[None, :]
        else:
            cost = np.maximum(one.seconds[:, None], other.seconds[None, :])
        ordered = cost.reshape(-1)[self.pairs]
        least = np.minimum.accumulate(ordered)
        falls = np.concatenate([[True], ordered[1:] < least[:-1]])
        at = np.maximum.accumulate(np.where(falls, np.arange(len(falls)), 0))
        last = np.maximum(self.pairs_within - 1, 0)
        pair = self.pairs[at[last]]
        left, right = pair // len(self.slots), pair % len(self.slots)
        seconds = np.where(self.pairs_within > 0, least[last], np.inf)
        return _Solved(
            seconds,
            np.maximum(one.resident[left], other.resident[right]),
            np.maximum(one.transient[left], other.transient[right]),
            [(first, int(a), int(b)) for a, b in zip(left, right, strict=True)],
        )

    def _fitting(
        self,
        seconds: FloatArray,
        resident: IntArray,
        transient: IntArray,
        choice: list[tuple[int, int, int] | None],
    ) -> _Solved:
        fits: BoolArray = resident + transient <= self.index.capacity[self.slots]
        return _Solved(np.where(fits, seconds, np.inf), resident, transient, choice)

    def places(self) -> dict[int, Range]:
        """The ranges of the cheapest tree; of equally cheap ones on the fewest GPUs."""
        size = int(np.argmin(self._solve(self.everything).seconds))
        places: dict[int, Range] = {}
        self._place(self.everything, size, self.index.problem.pools[self.pool].first_gpu, places)
        return places

    def _place(self, mask: int, size: int, first_gpu: int, places: dict[int, Range]) -> None:
        choice = self._solve(mask).choice[size]
        if choice is None:
            for copy in self.components[mask.bit_length() - 1]:
                places[copy] = Range(first_gpu, int(self.counts[size]))
            return
        first, one, other = choice
        parts = [(first, one), (mask ^ first, other)]
        if one == other == size:
            for part, its_size in parts:
                self._place(part, its_size, first_gpu, places)
            return
        # The larger one first: then both begin where their sizes may.
        for part, its_size in sorted(parts, key=lambda each: -each[1]):
            self._place(part, its_size, first_gpu, places)
            first_gpu += int(self.counts[its_size])


def _better(best: _Solved, other: _Solved) -> _Solved:
    """Size by size the faster one, the first of equals."""
    wins = other.seconds < best.seconds
    return _Solved(
        np.where(wins, other.seconds, best.seconds),
        np.where(wins, other.resident, best.resident),
        np.where(wins, other.transient, best.transient),
        [b if win else a for win, a, b in zip(wins, best.choice, other.choice, strict=True)],
    )


def _members(mask: int) -> list[int]:
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


def _components(index: Index) -> tuple[list[list[int]], list[int]]:
    """The copies of each component, and per component those (as a mask) that it waits for."""
    problem = index.problem
    calls = len(problem.calls)
    reach = np.zeros((calls, calls), dtype=bool)
    for edge in problem.precedences:
        reach[edge.source, edge.target] |= edge.distance == 0
    _close(reach)
    owner = [index.calls_of[copy] for copy in index.homes]
    waits = np.array(
        [[bool(reach[np.ix_(mine, theirs)].any()) for theirs in owner] for mine in owner]
    )
    _close(waits)
    groups: list[list[int]] = []
    for number in range(len(owner)):
        joined = next((g for g in groups if waits[g[0], number] and waits[number, g[0]]), None)
        if joined is None and len(groups) < MOST_COMPONENTS:
            groups.append([number])
        else:
            (groups[-1] if joined is None else joined).append(number)
    before = [
        sum(
            1 << i
            for i, group in enumerate(groups)
            if group is not mine and waits[np.ix_(group, mine)].any()
        )
        for mine in groups
    ]
    return [[index.homes[n] for n in group] for group in groups], before


def _close(reach: BoolArray) -> None:
    """Make a relation transitive, in place."""
    for middle in range(len(reach)):
        reach |= reach[:, middle : middle + 1] & reach[middle : middle + 1, :]
