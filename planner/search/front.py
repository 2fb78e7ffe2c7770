"""The placements that no other beats in both the seconds and the price of an iteration.

On a given number of nodes per pool the fastest placement is also the cheapest, so the front lies
among the fastest placements of all numbers of nodes. A box is a range of such numbers: no placement
in it is faster than the bound on its largest corner, nor paid less per second than its smallest.
Boxes that a known placement beats are dropped whole; the others are halved, larger numbers first,
down to one number of nodes, which is searched below the cutoff that the known ones leave.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from automap.planner.search.model.pruning import SLACK
from automap.planner.search.model.solve import Limits
from automap.planner.search.node_choices import SharedBudget, sizes_of_nodes
from automap.planner.search.objectives import SearchResult
from automap.planner.search.search import canonical, fastest
from automap.planner.search.space.rows import Selected
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies.attempts import attempted

Gpus = tuple[int, ...]
"""Usable GPUs per pool."""
_Corner = tuple[int, ...]
"""Per pool a position among its sizes."""


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """The fastest placement within some nodes."""

    best: SearchResult
    usable: Gpus
    """Usable GPUs per pool, up to the last node that the placement touches."""
    price: float
    """Price of one iteration."""
    searched_seconds: float
    """Wall seconds of the search."""

    @property
    def seconds(self) -> float:
        """Seconds of one iteration."""
        return self.best.objective_value


@dataclass(frozen=True, slots=True)
class Undecided:
    """Nodes on which, or on fewer, the limit left open whether there is a faster placement."""

    usable: Gpus
    lower_bound_seconds: float


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """The front, fastest first, and what is left open of it."""

    points: list[FrontPoint]
    undecided: list[Undecided]
    choices: int
    """How many numbers of nodes (combinations of them with several pools) there are."""
    searches: int
    """How many of the choices had to be searched; bounds decided the others."""


def pareto_front(
    space: SearchSpace,
    names: Sequence[str],
    limits: Limits,
    *,
    tolerance: float,
    tell: Callable[[str], None],
) -> ParetoFront:
    """Every placement that none beats by more than `tolerance`, a share, in seconds and price.

    Args:
        space: What is searched: the job on its whole cluster.
        names: The strategies that start the search.
        limits: What all searches share.
        tolerance: A share: what others beat by less is left out, which saves searches.
        tell: Hears what is being searched.
    """
    walk = _Walk(space, names, limits, tolerance, tell)
    walk.run()
    choices = 1
    for axis in walk.axes:
        choices *= len(axis)
    return ParetoFront(
        points=_not_beaten(walk.points),
        undecided=walk.undecided,
        choices=choices - all(axis[0] == 0 for axis in walk.axes),
        searches=walk.searches,
    )


class _Walk:
    """Boxes still to look at, and the placements known so far."""

    def __init__(
        self,
        space: SearchSpace,
        names: Sequence[str],
        limits: Limits,
        tolerance: float,
        tell: Callable[[str], None],
    ) -> None:
        self.space, self.names, self.tell = space, names, tell
        self.budget, self.worse = SharedBudget(limits), 1.0 + tolerance
        problem = space.problem
        self.axes = [sizes_of_nodes(problem, number) for number in range(len(problem.pools))]
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
            if self.budget.is_spent:
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
            self.bounds[usable] = self.space.on_gpus(usable).lower_bound()
        own = self.bounds[usable]
        if own is None:
            return None
        above = (bound for sizes, bound in self.proven if _within(usable, sizes))
        return max(own, *above, 0.0)

    def _beaten(self, seconds: float, least: Gpus) -> bool:
        """True when a known placement is as good as any of so many seconds on so many GPUs."""
        price = seconds * self.space.price_per_second(least)
        return any(
            point.seconds <= self.worse * seconds and point.price <= self.worse * price
            for point in self.points
        )

    def _solve(self, usable: Gpus, bound: float) -> None:
        started = time.perf_counter()
        self.tell(f"searching {sum(usable)} GPUs, {len(self.points)} plans found")
        cutoff_seconds = self._cutoff(usable)
        part = self.space.on_gpus(usable)
        limits = self.budget.next_share()
        # Below a cutoff no strategy that serves everyone is likely; the first has none.
        starts = [] if self.points else attempted(part, self.names, limits)
        found = fastest(part, starts, limits, cutoff_seconds)
        self.searches += 1
        self.budget.take(proven=found.is_proven)
        least = max(bound, min(found.lower_bound, cutoff_seconds or inf))
        if least < inf:
            self.proven.append((usable, least))
        if not found.is_proven:
            self.undecided.append(Undecided(usable, least))
        if found.solution is not None:
            least = min(least, found.objective_value)
            found = replace(found, lower_bound=least, lower_bound_seconds=least)
            best = self._canonical(part, found)
            self.points.append(self._point(best, time.perf_counter() - started))

    def _cutoff(self, usable: Gpus) -> float | None:
        """The seconds from which on a known placement is as good; None: none is known."""
        weight = self.space.price_per_second(usable)
        from_which = (
            max(point.seconds, point.price / weight if weight > 0 else 0.0) / self.worse
            for point in self.points
        )
        return min(from_which, default=None)

    def _point(self, best: SearchResult, searched_seconds: float) -> FrontPoint:
        assert best.solution is not None
        reach, price = self.space.reached_gpus(best.solution), self._price(best.solution)
        return FrontPoint(best, reach, price, searched_seconds)

    def _canonical(self, part: SearchSpace, found: SearchResult) -> SearchResult:
        """What was found, or the canonical one of all that are as fast, if that costs no more."""
        assert found.solution is not None
        best = canonical(part, found, self.budget.next_share())
        assert best.solution is not None
        # Ties may touch more nodes.
        dearer = self._price(best.solution) > self._price(found.solution) * (1 + SLACK)
        return found if dearer else best

    def _price(self, selected: Selected) -> float:
        touched = self.space.touched_gpus(selected)
        return selected.timing.period * self.space.price_per_second(touched)


def _halves(low: _Corner, high: _Corner) -> list[tuple[_Corner, _Corner]]:
    """The box cut in two along its longest side, the larger numbers last."""
    axis = max(range(len(low)), key=lambda n: high[n] - low[n])
    middle = (low[axis] + high[axis]) // 2
    below = (*high[:axis], middle, *high[axis + 1 :])
    above = (*low[:axis], middle + 1, *low[axis + 1 :])
    return [(low, below), (above, high)]


def _within(inner: Gpus, outer: Gpus) -> bool:
    return all(a <= b for a, b in zip(inner, outer, strict=True))


def _not_beaten(points: list[FrontPoint]) -> list[FrontPoint]:
    """Fastest first, each cheaper than all before it."""
    kept: list[FrontPoint] = []
    for point in sorted(points, key=lambda point: (point.seconds, point.price)):
        if not kept or point.price < kept[-1].price * (1 - SLACK):
            kept.append(point)
    return kept
