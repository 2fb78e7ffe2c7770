"""Objectives beside the period: the price of an iteration or a run, or the number of GPUs.

Both depend on the nodes that a plan may touch. For a fixed number of nodes per pool the best plan
is the one with the least period, so these objectives say on which numbers of nodes that is searched
for (`search.best_on_nodes`), and let every search share the best value known and the time limit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from automap.planner.job.job import Job
from automap.planner.plan.price import fixed_seconds
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.pruning import SLACK
from automap.planner.search.model.solve import TICK_SECONDS, Limits
from automap.planner.search.node_choices import FIRST_SHARE, NodeChoices, SharedBudget, Sizes
from automap.planner.search.proven import Proven
from automap.planner.search.space.rows import Selected
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies.attempts import Attempt

NOT_SEARCHED = "on numbers of nodes that were not searched"
SECOND_SHARE = 0.95
"""What all second searches may take of what is left once no other nodes need it."""


@dataclass(frozen=True, slots=True)
class SearchResult(Proven[Selected]):
    """The best placement under an objective, and what is proven about it."""

    objective_value: float = inf
    """The placement's seconds, price, or GPUs; infinite where there is no placement."""
    lower_bound_seconds: float = 0.0
    """No placement on the nodes that the objective chose has a shorter period."""
    options: int = 0
    """Options that reached CP-SAT, over all its runs."""
    warm_start: str | None = None
    """The strategy that the search started from."""
    weak_side: str | None = None
    """The placements, in words, of which least is proven; None: nothing is open, or not known."""
    is_simplified: bool = False
    """True: a simpler placement, or one that fills less memory, was taken than the best, which has
    the value of the bound."""
    attempts: list[Attempt] = field(default_factory=list)
    """Results, on the whole cluster, of the strategies that may start a search."""


@dataclass(frozen=True, slots=True)
class RunPrice:
    """What is paid for: one iteration, or all of a run with its start-up and checkpoints."""

    space: SearchSpace
    iterations: int
    fixed_seconds: float
    """Paid at the same price, whatever the period."""

    @staticmethod
    def of_job(job: Job, space: SearchSpace) -> "RunPrice":
        """What a job pays for whose objective is a price."""
        if job.spec.search.objective == "price":
            return RunPrice(space, 1, 0.0)
        workload = job.spec.workload
        return RunPrice(space, workload.iterations, fixed_seconds(workload))

    def price(self, seconds: float, price_per_second: float) -> float:
        """The price of a period."""
        return (self.iterations * seconds + self.fixed_seconds) * price_per_second

    def seconds(self, price: float, price_per_second: float) -> float:
        """The period that has this price."""
        return (price / price_per_second - self.fixed_seconds) / self.iterations

    def of(self, selected: Selected | None) -> float:
        """Price of a placement; infinite where there is none."""
        if selected is None:
            return inf
        touched = self.space.touched_gpus(selected)
        return self.price(selected.timing.period, self.space.price_per_second(touched))


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes on which the shortest period is to be searched for."""

    sizes: Sizes
    least: float
    """No placement on them has a lower objective."""
    space: SearchSpace
    """The placements on them."""
    cutoff_seconds: float | None
    """Only shorter periods are of interest; None: all are."""
    share: float = FIRST_SHARE
    """What their search may take of what is left of the limit."""
    is_first: bool = True
    """False where the limit ended a search on them before."""


class NodeObjective(ABC):
    """An objective that depends on the nodes: which of them are searched, and the best of all.

    `next` gives the nodes in the order of what they cost at least; `improves` and `keep` take in
    what was found there; `result` sums up.
    """

    def __init__(
        self,
        space: SearchSpace,
        attempts: list[Attempt],
        limits: Limits,
        cost: Callable[[float, Sizes], float],
    ) -> None:
        self.attempts, self.gap = attempts, limits.gap
        # A gap is one of objectives: on each number of nodes the search is exact.
        self.limits = replace(limits, gap=0.0)
        self.budget = SharedBudget(self.limits)
        self.best: SearchResult | None = None
        self.open_bounds: dict[str, float] = {}
        """What the limit left undecided, in words → no placement there has a lower objective."""
        self._cut: dict[str, Sizes] = {}
        """Nodes of these that were searched once, in words → sizes."""
        self._space, self._choices = space, NodeChoices(space, cost)
        self._options, self._used = 0, 0.0

    @abstractmethod
    def value(self, selected: Selected | None) -> float:
        """The objective of a placement; infinite where there is none or it is not good enough."""

    @abstractmethod
    def improves(self, nodes: Nodes, found: SearchResult) -> bool:
        """Count a search that has ended; whether it found a better placement than all before."""

    @abstractmethod
    def keep(self, found: SearchResult, canonical: SearchResult) -> None:
        """Take what improves as the best, in its canonical form."""

    def _most(self) -> float:
        """The highest objective of interest."""
        return inf

    @abstractmethod
    def _cutoff_seconds(self, sizes: Sizes) -> float | None:
        """The longest period of interest on these nodes; None: all are."""

    def next(self) -> Nodes | None:
        """The nodes to search next; None: no others are better, or the limit is reached."""
        most, choice = self._most(), None
        if not self._is_beaten(self._choices.least) and not self.budget.is_spent:
            choice = self._choices.next(most=most, deadline=self.limits.deadline)
        least, sizes = choice or (self._choices.least, ())
        if least == inf or least > most or self._is_beaten(least):
            return self._second()
        if choice is None:
            self.open_bounds[NOT_SEARCHED] = least
            return None
        return self._nodes(sizes, least)

    def _second(self) -> Nodes | None:
        """Nodes on which a search was cut, with what no others need of the limit."""
        bounds = {where: self.open_bounds[where] for where in self._cut}
        left = {where: least for where, least in bounds.items() if not self._is_beaten(least)}
        if not left or self.budget.is_spent:
            return None
        where = min(left, key=left.__getitem__)
        sizes, least = self._cut.pop(where), self.open_bounds.pop(where)
        return replace(self._nodes(sizes, least), share=SECOND_SHARE / len(left), is_first=False)

    def _nodes(self, sizes: Sizes, least: float) -> Nodes:
        return Nodes(sizes, least, self._space.on_gpus(sizes), self._cutoff_seconds(sizes))

    def _leave_open(self, nodes: Nodes, bound: float) -> None:
        """Note what the limit left undecided on these nodes."""
        where = _on(nodes.sizes)
        self.open_bounds[where] = max(bound, nodes.least)
        if nodes.is_first:
            self._cut[where] = nodes.sizes

    def _is_beaten(self, least: float) -> bool:
        return self.best is not None and least >= self.best.objective_value

    def result(self) -> SearchResult:
        """The best placement, and what is proven over all numbers of nodes."""
        best = self.best or self._best_attempt()
        best = best or SearchResult(None, inf, is_proven=True)
        within = best.objective_value * (1 - self.gap)
        left = {where: least for where, least in self.open_bounds.items() if least < within}
        return replace(
            best,
            lower_bound=min([within, *left.values()]),
            is_proven=not left,
            deterministic_seconds=self._used,
            options=self._options,
            attempts=self.attempts,
            weak_side=min(left, key=left.__getitem__, default=None),
        )

    def _count(self, nodes: Nodes, found: SearchResult) -> None:
        self.budget.take(proven=found.is_proven, share=nodes.share)
        self._options += found.options
        self._used += found.deterministic_seconds

    def _best_attempt(self) -> SearchResult | None:
        """The strategy of the least value, for when the search found nothing in its time."""
        start = min(self.attempts, key=lambda a: self.value(a.selected), default=None)
        if start is None or self.value(start.selected) == inf:
            return None
        return SearchResult(
            start.selected,
            0.0,
            is_proven=False,
            objective_value=self.value(start.selected),
            warm_start=start.strategy,
        )


class Cheapest(NodeObjective):
    """The least price; done when the next nodes cost more at least.

    With prices of 0 every plan costs nothing, and the fastest is taken.
    """

    def __init__(self, run_price: RunPrice, attempts: list[Attempt], limits: Limits) -> None:
        self.run_price, space = run_price, run_price.space
        super().__init__(
            space,
            attempts,
            limits,
            lambda bound, sizes: run_price.price(bound, space.price_per_second(sizes)),
        )
        self._known = min((self.value(a.selected) for a in attempts), default=inf)

    def value(self, selected: Selected | None) -> float:
        """Price of a placement; infinite where there is none."""
        return self.run_price.of(selected)

    def improves(self, nodes: Nodes, found: SearchResult) -> bool:
        """Count a search that has ended; whether it found a cheaper placement than all before."""
        self._count(nodes, found)
        if not found.is_proven:
            per_second = self._space.price_per_second(nodes.sizes)
            self._leave_open(nodes, self.run_price.price(found.lower_bound, per_second))
        known = inf if self.best is None else self.best.objective_value
        return self.value(found.solution) < known

    def keep(self, found: SearchResult, canonical: SearchResult) -> None:
        """Take what is cheaper as the best, in its canonical form unless that costs more."""
        # Ties may touch more nodes.
        dearer = self.value(canonical.solution) > self.value(found.solution) * (1 + SLACK)
        solution = found.solution if dearer else canonical.solution
        value = self.value(solution)
        self.best = replace(canonical, solution=solution, objective_value=value)
        self._known = min(self._known, value)

    def _most(self) -> float:
        return self._known * (1 - self.gap) if self.gap else self._known * (1 + SLACK)

    def _cutoff_seconds(self, sizes: Sizes) -> float | None:
        per_second = self._space.price_per_second(sizes)
        if per_second <= 0 or self._known == inf:
            return None
        # Two ticks above: the search rules out what only equals its cutoff.
        price = self._known * (1 - self.gap)
        return self.run_price.seconds(price, per_second) + 2 * TICK_SECONDS


class FewestGpus(NodeObjective):
    """The fewest GPUs on which an iteration meets the target, and the fastest plan there.

    Every pool combination is tried from the fewest paid GPUs upwards; bounds skip what cannot meet
    the target.
    """

    def __init__(
        self,
        space: SearchSpace,
        attempts: list[Attempt],
        limits: Limits,
        target_seconds: float | None,
    ) -> None:
        self.target_seconds = target_seconds

        def cost(bound: float, sizes: Sizes) -> float:
            in_time = target_seconds is None or bound <= target_seconds
            return float(paid_gpus(space.problem, sizes)) if in_time else inf

        super().__init__(space, attempts, replace(limits, gap=0.0), cost)

    def value(self, selected: Selected | None) -> float:
        """GPUs of all touched nodes; infinite where there is no placement, or it is too slow."""
        target = self.target_seconds
        if selected is None or (target is not None and selected.timing.period > target):
            return inf
        return float(sum(self._space.touched_gpus(selected)))

    def improves(self, nodes: Nodes, found: SearchResult) -> bool:
        """Count a search that has ended; whether it found a placement that meets the target."""
        self._count(nodes, found)
        if found.solution is None and not found.is_proven:
            self._leave_open(nodes, nodes.least)
        return found.solution is not None

    def keep(self, found: SearchResult, canonical: SearchResult) -> None:
        """Take the canonical placement of what meets the target: it is the best."""
        assert canonical.solution is not None
        gpus = float(sum(self._space.touched_gpus(canonical.solution)))
        self.best = replace(canonical, objective_value=gpus)

    def result(self) -> SearchResult:
        """The best placement; proven only where it also is the fastest on its nodes."""
        result = super().result()
        if self.best is None:
            return result
        return replace(
            result,
            is_proven=result.is_proven and self.best.is_proven,
            weak_side=result.weak_side or self.best.weak_side,
        )

    def _cutoff_seconds(self, sizes: Sizes) -> float | None:
        return self.target_seconds


def paid_gpus(problem: Problem, sizes: Sizes) -> int:
    """GPUs of all nodes that the first `sizes` GPUs of every pool touch."""
    return sum(
        -(-size // pool.gpus_per_node) * pool.gpus_per_node
        for size, pool in zip(sizes, problem.pools, strict=True)
    )


def _on(sizes: Sizes) -> str:
    return f"on {' + '.join(str(size) for size in sizes)} GPUs"
