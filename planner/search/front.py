"""The placements that no other beats in both the seconds and the price of an iteration.

On a given number of nodes per pool the fastest placement is also the cheapest, so the front lies
among the fastest placements of all numbers of nodes. A box is a range of such numbers: no placement
in it is faster than the bound on its largest corner, nor paid less per second than its smallest.
Boxes that a known placement beats are dropped whole; the others are halved, larger numbers first,
down to one number of nodes, which is searched below the horizon that the known ones leave.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from automap.planner.search.candidates.tables import Tables
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.pruning import SLACK
from automap.planner.search.model.solve import Limits
from automap.planner.search.objectives import Best, Purse, attempted, price_per_second, touched_gpus
from automap.planner.search.search import search
from automap.planner.search.space.search_space import Arena, arena, least_period
from automap.planner.search.space.selected import Found, Selected
from automap.planner.search.tie_break import settled

Gpus = tuple[int, ...]
"""Usable GPUs per pool."""
_Corner = tuple[int, ...]
"""Per pool a position among its sizes."""


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """The fastest placement within some nodes."""

    best: Best
    usable: Gpus
    """Up to the last node that it touches."""
    price: float
    """Of an iteration."""
    searched_seconds: float
    """By the clock."""

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return self.best.objective_value


@dataclass(frozen=True, slots=True)
class Undecided:
    """Nodes on which, or on fewer, the limit left open whether there is a faster placement."""

    usable: Gpus
    lower_bound_seconds: float


@dataclass(frozen=True, slots=True)
class FoundFront:
    """The front, fastest first, and what is left open of it."""

    points: list[FrontPoint]
    undecided: list[Undecided]
    choices: int
    """Numbers of nodes that there are."""
    searches: int
    """Of these what had to be searched."""


def pareto_front(
    tables: Tables,
    problem: Problem,
    names: Sequence[str],
    limits: Limits,
    *,
    tolerance: float,
    tell: Callable[[str], None],
) -> FoundFront:
    """Every placement that none beats by more than `tolerance`, a share, in seconds and price.

    `names` are the baselines that start the search; all searches share the limits. `tell` hears
    what is being searched.
    """
    walk = _Walk(tables, problem, names, limits, tolerance, tell)
    walk.run()
    choices = 1
    for axis in walk.axes:
        choices *= len(axis)
    return FoundFront(
        points=_not_beaten(walk.points),
        undecided=walk.undecided,
        choices=choices - all(axis[0] == 0 for axis in walk.axes),
        searches=walk.searches,
    )


class _Walk:
    """Boxes still to look at, and the placements known so far."""

    def __init__(
        self,
        tables: Tables,
        problem: Problem,
        names: Sequence[str],
        limits: Limits,
        tolerance: float,
        tell: Callable[[str], None],
    ) -> None:
        self.tables, self.problem, self.names = tables, problem, names
        self.limits, self.purse, self.worse = limits, Purse(limits), 1.0 + tolerance
        self.tell = tell
        self.axes = [_sizes(problem, number) for number in range(len(problem.pools))]
        self.points: list[FrontPoint] = []
        self.undecided: list[Undecided] = []
        self.searches = 0
        self.bounds: dict[Gpus, float | None] = {}
        """Per largest corner what its rows alone allow; None: some call has none."""
        self.proven: list[tuple[Gpus, float]] = []
        """What searches have proven; it holds on fewer nodes as well."""

    def run(self) -> None:
        """Look at every number of nodes, alone or in a box."""
        boxes = [(tuple(0 for _ in self.axes), tuple(len(axis) - 1 for axis in self.axes))]
        while boxes:
            low, high = boxes.pop()
            usable = self._usable(high)
            bound = self._bound(usable) if any(usable) else None
            if bound is None or self._beaten(bound, self._usable(low)):
                continue
            if self.purse.spent:
                self.undecided.append(Undecided(usable, bound))
            elif low == high:
                self._solve(usable, bound)
            else:
                boxes += _halves(low, high)

    def _usable(self, corner: _Corner) -> Gpus:
        return tuple(axis[at] for axis, at in zip(self.axes, corner, strict=True))

    def _bound(self, usable: Gpus) -> float | None:
        """No placement within these GPUs is faster; None: there is none."""
        if usable not in self.bounds:
            part = arena(self.tables, self.problem, usable)
            least = part.tables.least_syncs()
            self.bounds[usable] = least_period(least, part.problem, part.rows)
        own = self.bounds[usable]
        if own is None:
            return None
        above = (bound for sizes, bound in self.proven if _within(usable, sizes))
        return max(own, *above, 0.0)

    def _beaten(self, seconds: float, least: Gpus) -> bool:
        """True when a known placement is as good as any of so many seconds on so many GPUs."""
        price = seconds * price_per_second(self.problem, least)
        return any(
            point.seconds <= self.worse * seconds and point.price <= self.worse * price
            for point in self.points
        )

    def _solve(self, usable: Gpus, bound: float) -> None:
        started = time.perf_counter()
        self.tell(f"searching {sum(usable)} GPUs, {len(self.points)} plans found")
        horizon = self._horizon(usable)
        part = arena(self.tables, self.problem, usable)
        limits = self.purse.some()
        # Below a horizon no strategy that serves everyone is likely; the first has none.
        starts = [] if self.points else attempted(part, self.names, limits)
        start = min(
            (each for each in starts if each.selected is not None),
            key=lambda each: _period(each.selected),
            default=None,
        )
        found = search(
            part,
            limits=limits,
            incumbent=None if start is None else start.selected,
            horizon_seconds=horizon,
        )
        self.searches += 1
        self.purse.take(proven=found.proven)
        least = max(bound, min(found.lower_bound_seconds, horizon or inf))
        if least < inf:
            self.proven.append((usable, least))
        if not found.proven:
            self.undecided.append(Undecided(usable, least))
        if found.selected is not None:
            best = self._settled(
                part,
                replace(found, lower_bound_seconds=min(least, _period(found.selected))),
                None if start is None else start.strategy,
            )
            self.points.append(self._point(best, time.perf_counter() - started))

    def _horizon(self, usable: Gpus) -> float | None:
        """The seconds from which on a known placement is as good; None: none is known."""
        weight = price_per_second(self.problem, usable)
        from_which = (
            max(point.seconds, point.price / weight if weight > 0 else 0.0) / self.worse
            for point in self.points
        )
        return min(from_which, default=None)

    def _point(self, best: Best, searched_seconds: float) -> FrontPoint:
        assert best.selected is not None
        reach, price = self._reach(best.selected), self._price(best.selected)
        return FrontPoint(best, reach, price, searched_seconds)

    def _settled(self, part: Arena, found: Found, warm_start: str | None) -> Best:
        """What was found, settled where it is proven."""
        assert found.selected is not None
        selected = found.selected
        if found.proven:
            selected = settled(part, found, limits=self.purse.some())
            if self._price(selected) > self._price(found.selected) * (1 + SLACK):
                selected = found.selected  # ties may touch more nodes
        return Best(
            selected=selected,
            problem=part.problem,
            objective_value=_period(selected),
            lower_bound=found.lower_bound_seconds,
            lower_bound_seconds=found.lower_bound_seconds,
            proven=found.proven,
            options=found.options,
            warm_start=warm_start,
            attempts=[],
        )

    def _reach(self, selected: Selected) -> Gpus:
        """Per pool the usable GPUs up to the end of the last node that a copy touches."""
        ends = [0] * len(self.problem.pools)
        for copy, row, first in zip(
            self.tables.copies, selected.copy_rows, selected.first_gpus, strict=True
        ):
            if row is not None and first is not None:
                index = int(copy.pool[row])
                end = first - self.problem.pools[index].first_gpu + copy.layouts.num_gpus[row]
                ends[index] = max(ends[index], int(end))
        return tuple(
            min(-(-end // pool.gpus_per_node) * pool.gpus_per_node, pool.num_gpus)
            for end, pool in zip(ends, self.problem.pools, strict=True)
        )

    def _price(self, selected: Selected) -> float:
        touched = touched_gpus(self.tables, self.problem, selected)
        return _period(selected) * price_per_second(self.problem, touched)


def _sizes(problem: Problem, number: int) -> list[int]:
    """Usable GPUs of a pool for every number of its nodes; none only where there are others."""
    pool = problem.pools[number]
    sizes = [*range(pool.gpus_per_node, pool.num_gpus, pool.gpus_per_node), pool.num_gpus]
    return [0, *sizes] if len(problem.pools) > 1 else sizes


def _halves(low: _Corner, high: _Corner) -> list[tuple[_Corner, _Corner]]:
    """The box cut in two along its longest side, the larger numbers last."""
    axis = max(range(len(low)), key=lambda n: high[n] - low[n])
    middle = (low[axis] + high[axis]) // 2
    below = (*high[:axis], middle, *high[axis + 1 :])
    above = (*low[:axis], middle + 1, *low[axis + 1 :])
    return [(low, below), (above, high)]


def _within(inner: Gpus, outer: Gpus) -> bool:
    return all(a <= b for a, b in zip(inner, outer, strict=True))


def _period(selected: Selected | None) -> float:
    return inf if selected is None else selected.timing.period


def _not_beaten(points: list[FrontPoint]) -> list[FrontPoint]:
    """Fastest first, each cheaper than all before it."""
    kept: list[FrontPoint] = []
    for point in sorted(points, key=lambda point: (point.seconds, point.price)):
        if not kept or point.price < kept[-1].price * (1 - SLACK):
            kept.append(point)
    return kept
