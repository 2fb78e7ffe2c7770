"""HybridFlow's Algorithms 1 and 2 (arXiv 2409.19256, section 6), and its standalone placement.

Algorithm 1: for every partition of the models into colocated sets and every allocation of GPUs over
the sets, the cost is Σ over stages of the maximum over sets of the sum inside a set (d_cost), each
model with the best strategy it has on so many GPUs (Algorithm 2, kept per model and size).

Mended: sizes and strategies are those that have a layout, so no data-parallel size is a fraction
and sets may be smaller than a machine; and since strategies chosen one by one may not fit beside
one another, the sets of the cheapest allocation are chosen again to fit together (`together`) until
the cheapest allocation has only such sets.
"""

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from automap.planner.search.strategies.allocation import Allocation, best_allocation
from automap.planner.search.strategies.groups import FloatArray, Shared
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placing import (
    DoesNotFit,
    Placed,
    PlacedSet,
    assignment_of,
    check_pairs,
    check_served,
    contradiction,
    shortage,
    stage_seconds,
    stage_sums,
)
from automap.planner.search.strategies.stages import TRAINING
from automap.planner.search.strategies.together import together

Members = tuple[int, ...]
Partition = tuple[Members, ...]
MOST_SETS_SOLVED = 256
"""Sets that are chosen again to fit together; after so many, only those count that were."""
MOST_UNITS = 6
"""Models that are partitioned freely (203 partitions); inference-only ones beyond join one unit."""


def hybridflow(index: Index) -> Placed:
    """The partition and allocation of least d_cost whose sets fit together."""
    check_served(index)
    partitions = [
        partition
        for partition in _partitions(_units(index))
        if contradiction(index, partition) is None
    ]
    if not partitions:
        raise DoesNotFit(
            f"hybridflow: none of the partitions of the {len(index.homes)} models keeps all "
            f"{len(index.problem.colocate) + len(index.problem.separate)} constrained pairs"
        )
    return cheapest(index, partitions, strategy="hybridflow")


def standalone(index: Index) -> Placed:
    """Every model on GPUs of its own; the sizes are those of least d_cost."""
    check_served(index)
    partition = tuple((home,) for home in index.homes)
    check_pairs(index, partition, strategy="standalone")
    return cheapest(index, [partition], strategy="standalone")


def cheapest(index: Index, partitions: Sequence[Partition], *, strategy: str) -> Placed:
    """The partition and allocation of least d_cost.

    Raises:
        DoesNotFit: no allocation holds the sets of any of the partitions.
    """
    search = _Search(index, most_sets_solved=MOST_SETS_SOLVED)
    placed = search.cheapest(partitions)
    if placed is None and search.limited:  # what was left out may fit
        search = _Search(index, most_sets_solved=None)
        placed = search.cheapest(partitions)
    if placed is None:
        raise DoesNotFit(f"{strategy}: {search.why_none(partitions)}")
    return placed


class _Search:
    """Sets' seconds per slot: at first each model's best alone, then what fits together."""

    def __init__(self, index: Index, *, most_sets_solved: int | None) -> None:
        self.index = index
        self.most_sets_solved = most_sets_solved
        self.seconds: dict[Members, FloatArray] = {}
        self.solved: dict[tuple[Members, int], Shared | None] = {}
        self.limited = False

    def cheapest(self, partitions: Sequence[Partition]) -> Placed | None:
        """Best first: the estimates of d_cost order the partitions, exact sets decide.

        The coarsest partition has the fewest allocations; its cost bounds those of the others.
        """
        best: tuple[Partition, Allocation] | None = None
        heap: list[tuple[float, int, Partition, Allocation]] = []
        bound = float("inf")
        for number, partition in enumerate(sorted(partitions, key=len)):
            allocation = self._allocation(partition, bound)
            while (
                number == 0
                and allocation is not None
                and not self._fits_together(partition, allocation)
            ):
                allocation = self._allocation(partition, bound)
            if allocation is None:
                continue
            if number == 0:
                best, bound = (partition, allocation), allocation.seconds
            else:
                heapq.heappush(heap, (allocation.seconds, number, partition, allocation))
        while heap:
            _, number, partition, allocation = heapq.heappop(heap)
            if self._fits_together(partition, allocation):
                best = (partition, allocation)
                break
            again = self._allocation(partition, bound)
            if again is not None:
                heapq.heappush(heap, (again.seconds, number, partition, again))
        return None if best is None else self._placed(*best)

    def _allocation(self, partition: Partition, bound: float) -> Allocation | None:
        tables = [self._table(members) for members in partition]
        return best_allocation(self.index, tables, bound=bound)

    def _table(self, members: Members) -> FloatArray:
        """[slots, stages] seconds of a set; infinite below A_min, where memory is short."""
        if members not in self.seconds:
            index = self.index
            alone = [index.alone[member] for member in members]
            resident = np.sum([a.resident for a in alone], axis=0)
            transient = np.max([a.transient for a in alone], axis=0)
            host = np.sum([a.host for a in alone], axis=0)
            seconds = np.sum([a.seconds for a in alone], axis=0)
            fits = (resident + transient <= index.capacity) & (host <= index.host_capacity)
            self.seconds[members] = np.where(fits[:, None], seconds, np.inf)
        return self.seconds[members]

    def _fits_together(self, partition: Partition, allocation: Allocation) -> bool:
        """True when the sets fit together at the cost that the allocation was found with."""
        slowest = self.index.function_seconds
        for members, slot in zip(partition, allocation.slots, strict=True):
            if (members, slot) not in self.solved:
                shared = together(self.index, members, slot)
                self.solved[members, slot] = shared
                sums = np.inf if shared is None else np.array(stage_sums(self.index, shared))
                self.seconds[members][slot] = sums
            slowest = np.maximum(slowest, self.seconds[members][slot])
        most = self.most_sets_solved
        if most is not None and len(self.solved) > most and not self.limited:
            self._only_solved()
        return bool(abs(slowest.sum() - allocation.seconds) <= 1e-9 * allocation.seconds)

    def _only_solved(self) -> None:
        self.limited = True
        for members, table in self.seconds.items():
            for slot in range(len(table)):
                if (members, slot) not in self.solved and len(members) > 1:
                    table[slot] = np.inf

    def _placed(self, partition: Partition, allocation: Allocation) -> Placed:
        sets = []
        for members, slot in zip(partition, allocation.slots, strict=True):
            shared = self.solved[members, slot]
            assert shared is not None, "a set that fits has finite seconds"
            sets.append(PlacedSet(slot, shared))
        return Placed(
            assignment_of(self.index, sets, allocation.firsts), stage_seconds(self.index, sets)
        )

    def why_none(self, partitions: Sequence[Partition]) -> str:
        """After a search in vain: reasons for the coarsest and the finest partition."""
        ends = dict.fromkeys([min(partitions, key=len), max(partitions, key=len)])
        return "; ".join(dict.fromkeys(self._why_not(partition) for partition in ends))

    def _why_not(self, partition: Partition) -> str:
        """The first set that fits nowhere, or the sum of the sets' least sizes."""
        index, least = self.index, []
        for members in partition:
            fitting = np.flatnonzero(np.isfinite(self._table(members)).all(axis=1))
            if len(fitting) == 0:
                return shortage(index, members, _most_likely(index, members))
            least.append(int(index.count_of[fitting].min()))
        parts = ", ".join(
            f"{count} for {index.name(members)}"
            for members, count in zip(partition, least, strict=True)
        )
        pools = " and ".join(f"{pool.num_gpus} of pool {pool.name}" for pool in index.problem.pools)
        return f"disjoint aligned ranges take at least {sum(least)} GPUs ({parts}), of {pools}"


def _units(index: Index) -> list[Members]:
    """What is partitioned: models, those forced together as one."""
    units: list[Members] = [(home,) for home in index.homes]
    for one, other in index.problem.colocate:
        joined = [unit for unit in units if one in unit or other in unit]
        units = [unit for unit in units if unit not in joined]
        units.append(tuple(sorted({copy for unit in joined for copy in unit})))
    units.sort(key=lambda unit: (not trains(index, unit), unit))
    if len(units) > MOST_UNITS:
        rest = tuple(sorted(copy for unit in units[MOST_UNITS - 1 :] for copy in unit))
        units = [*units[: MOST_UNITS - 1], rest]
    return units


def trains(index: Index, unit: Members) -> bool:
    """True when some model of the unit is trained."""
    return any(index.stages[call] == TRAINING for copy in unit for call in index.calls_of[copy])


def _partitions(units: Sequence[Members]) -> Iterator[Partition]:
    """All set partitions: each unit joins a set of those before it, or opens one."""
    if not units:
        yield ()
        return
    *before, last = units
    for partition in _partitions(before):
        for number, members in enumerate(partition):
            joined = tuple(sorted(members + last))
            yield (*partition[:number], joined, *partition[number + 1 :])
        yield (*partition, last)


def _most_likely(index: Index, members: Members) -> int:
    """The largest slot on which all members have layouts; the largest of all without one."""
    slots = sorted(range(len(index.slots)), key=lambda slot: int(index.count_of[slot]))
    common = [s for s in slots if all(len(index.group(member, s)) for member in members)]
    return common[-1] if common else slots[-1]
