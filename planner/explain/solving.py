"""Solving a study under some errors: is there a placement whose objective is at most a limit?"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

import numpy as np

from planner.cost.streaming import TAILS
from planner.explain.contenders import Contender, contender
from planner.explain.factors import Factors, scaled
from planner.explain.study import Study
from planner.layout import FloatArray, IntArray
from planner.objective import objective_value
from planner.search.objectives import best_placement, touched_gpus
from planner.search.objectives import price_per_second as price_of
from planner.search.problem import Range
from planner.search.pruning import prune
from planner.search.search import search
from planner.search.selected import Selected, as_placed, lies_in_one_node, rows_of
from planner.search.solve import TICK_SECONDS, Budget, Limits, minimise_period
from planner.search.space import Rows, arena
from planner.search.tables import CallTable

START = ("colocate_all",)
"""What starts a search over node numbers."""
ROUNDING_SECONDS = 1e-4
"""More than rounding to microseconds adds to a chain of calls."""
TAIL_SHAPES = (
    np.array([1, *(tail.ratio for tail in TAILS)], dtype=np.int64),
    np.array([1, *(tail.tensor_factor for tail in TAILS)], dtype=np.int64),
)
"""By the number of a tail: GPUs before it per GPU after it, and tensor size after it per before."""
SEARCH_SECONDS = 4.0
"""Time limit of one search, in the unit of search.time_limit_seconds."""


@dataclass(frozen=True, slots=True)
class Solved:
    """The best placement within a limit (None: there is none, or none in time)."""

    selected: Selected | None
    lower_bound: float
    """No placement has a lower objective."""
    proven: bool
    deterministic_seconds: float = 0.0
    """What the solver took."""


def limits_of(study: Study, seconds: float = SEARCH_SECONDS) -> Limits:
    """Limits of one search."""
    return Limits.within(seconds, seed=study.job.spec.search.seed)


def best_within(study: Study, limit: float, limits: Limits) -> Solved:
    """The best placement whose objective is at most `limit`."""
    if study.job.spec.search.objective == "throughput" and limit < inf:
        found = search(
            arena(study.tables, study.problem),
            limits=limits,
            incumbent=None,
            horizon_seconds=limit,
        )
        bound = (
            found.lower_bound_seconds if found.selected else min(found.lower_bound_seconds, limit)
        )
        return Solved(found.selected, bound, found.proven, found.deterministic_seconds)
    spec = study.job.spec
    seconds = limits.deterministic_seconds / Limits.within(1.0, seed=0).deterministic_seconds
    # A search that stops at the spec's gap would prove less than what is asked here.
    update = {"time_limit_seconds": seconds, "optimality_gap": 0.0}
    search_spec = spec.search.model_copy(update=update)
    job = replace(study.job, spec=spec.model_copy(update={"search": search_spec}))
    best = best_placement(job, study.tables, study.problem, START)
    used = best.deterministic_seconds
    if best.selected is None or best.objective_value > limit:
        return Solved(None, min(best.lower_bound, limit), best.proven, used)
    return Solved(best.selected, best.lower_bound, best.proven, used)


def values(study: Study, each: Contender, periods: FloatArray) -> FloatArray:
    """What the objective says of a placement with these periods."""
    search_spec = study.job.spec.search
    if search_spec.objective == "throughput":
        return periods
    touched = touched_gpus(study.tables, study.problem, each.selected)
    price = price_of(study.problem, touched)
    found = objective_value(study.job.spec, periods, price, sum(touched))
    target = search_spec.target_iteration_seconds or inf
    return np.where(periods <= target, found, inf)


class Pool:
    """A plan and the placements that may beat it; every solve may add one.

    The plan's placement may be run with other settings and in another order: that is no other
    placement, and counts as the plan's own.
    """

    def __init__(
        self,
        study: Study,
        plan: Selected,
        *,
        budget: Budget | None = None,
    ) -> None:
        self.study = study
        self.plan = plan
        self.budget = budget
        """What all challenges together may take; None: each what it is given."""
        self._key = placement_key(study, plan)
        self.orders: list[Contender] = [contender(study, plan)]
        """The plan's placement with several settings and orders, its own first."""
        self.others: list[Contender] = []
        self.solves, self.unproven = 0, 0

    def add(self, selected: Selected) -> bool:
        """Add a placement, or an order of the plan's own; False when both are known."""
        own = placement_key(self.study, selected) == self._key
        known = self.orders if own else self.others
        new = contender(self.study, selected)
        if any(_same(new, other) for other in known):
            return False
        known.append(new)
        return True

    def plan_values(self, factors: list[Factors]) -> FloatArray:
        """[factors] the plan's objective, with the best of its known settings and orders."""
        return np.asarray(np.min([self.values_of(each, factors) for each in self.orders], axis=0))

    def best_values(self, factors: list[Factors]) -> tuple[FloatArray, list[Contender | None]]:
        """[factors] the best objective among the others, and whose it is."""
        if not self.others:
            return np.full(len(factors), inf), [None] * len(factors)
        table = np.array([self.values_of(each, factors) for each in self.others])
        winner = table.argmin(axis=0)
        return table.min(axis=0), [self.others[index] for index in winner]

    def own_values(self, factors: list[Factors]) -> FloatArray:
        """[factors] the plan's objective with its own settings and order, as a run keeps them."""
        return self.values_of(self.orders[0], factors)

    def least_values(self, factors: list[Factors]) -> FloatArray:
        """[factors] the best objective known."""
        return np.minimum(self.plan_values(factors), self.best_values(factors)[0])

    def values_of(self, each: Contender, factors: list[Factors]) -> FloatArray:
        """[factors] the objective of a placement with its settings and order."""
        return values(self.study, each, each.periods(factors))

    def refit(self, factors: Factors) -> bool:
        """Learn the plan's best settings and order under some errors; False: nothing better."""
        study = scaled(self.study, factors)
        period = float(min(each.periods([factors])[0] for each in self.orders))
        part = as_placed(arena(study.tables, study.problem), self.plan)
        problem = part.options(_rows_of_placement(study, self.plan))
        # Prices are rounded up to whole microseconds once they are scaled, periods are not.
        horizon = period + ROUNDING_SECONDS
        found = prune(problem, upper_bound_seconds=horizon)
        if found.hopeless:
            return False
        pruned, ranges = found.problem, self.plan.first_gpus
        outcome = minimise_period(
            pruned, limits=limits_of(study), horizon_seconds=horizon, ranges=ranges
        )
        if outcome.solution is None or outcome.solution.timing.period >= period - TICK_SECONDS:
            return False
        return self.add(rows_of(pruned, outcome.solution))

    def share(self, part: float) -> AbstractContextManager[None]:
        """Inside, challenges may take such a part of what is left of the budget, if any."""
        return nullcontext() if self.budget is None else self.budget.share(part)

    def challenge(self, factors: Factors, limit: float, limits: Limits) -> Solved:
        """Search for a placement within the limit under some errors, and add what is found."""
        solved = Solved(None, 0.0, False)
        if self.budget is None:
            solved = best_within(scaled(self.study, factors), limit, limits)
        elif not self.budget.spent:
            some = min(limits.deterministic_seconds, self.budget.left)
            limits = replace(limits, deterministic_seconds=some)
            solved = best_within(scaled(self.study, factors), limit, limits)
            self.budget.take(solved.deterministic_seconds)
        self.solves += 1
        self.unproven += not solved.proven
        if solved.selected is not None:
            self.add(solved.selected)
        return solved


def _rows_of_placement(study: Study, plan: Selected) -> Rows:
    """The rows with the plan's copies and generation layouts, whatever the other settings."""
    copies = []
    for copy, row in zip(study.tables.copies, plan.copy_rows, strict=True):
        mask = np.zeros(len(copy), dtype=bool)
        if row is not None:
            mask[row] = True
        copies.append(mask)
    calls = []
    for table in study.tables.calls:
        chosen = plan.call_rows[table.call]
        if chosen is None or chosen[0] != table.copy:
            calls.append(np.zeros(len(table), dtype=bool))
            continue
        mask = copies[table.copy][table.copy_row].copy()
        for column in _generation_layout(study, table):
            mask &= column == column[chosen[1]]
        calls.append(mask)
    return Rows(copies, calls)


def _generation_layout(study: Study, table: CallTable) -> list[IntArray]:
    """Columns that make a generation another one, its tail's GPUs and tensor size among them.

    When the tail begins is a setting; calls that do not generate run as their copy lies.
    """
    if study.job.dataflow.calls[table.call].kind != "generate":
        return []
    columns = list(table.engine.columns().values())
    return columns if table.tail is None else [*columns, *(c[table.tail] for c in TAIL_SHAPES)]


def placement_key(study: Study, selected: Selected) -> tuple[object, ...]:
    """What makes a placement: layouts, generation layouts, sharing of GPUs, and lying in one node.

    Micro-batches, recomputation and cache sizes are settings that a restart changes, not a
    placement; and which of two equal ranges is the left one matters to nobody.
    """
    by_key = {(table.call, table.copy): table for table in study.tables.calls}
    calls: list[tuple[int, ...] | None] = []
    for number, chosen in enumerate(selected.call_rows):
        if chosen is None:
            calls.append(None)
            continue
        columns = _generation_layout(study, by_key[number, chosen[0]])
        calls.append((chosen[0], *(int(column[chosen[1]]) for column in columns)))
    spans: list[tuple[int, Range]] = []
    for index, (row, first) in enumerate(zip(selected.copy_rows, selected.first_gpus, strict=True)):
        if row is not None and first is not None:
            num_gpus = int(study.tables.copies[index].layouts.num_gpus[row])
            spans.append((index, Range(first, num_gpus)))
    shared = frozenset(
        (one, other)
        for (one, mine), (other, theirs) in combinations(spans, 2)
        if mine.overlaps(theirs)
    )
    in_one_node = lies_in_one_node(arena(study.tables, study.problem), selected)
    return (selected.copy_rows, tuple(calls), shared, in_one_node)


def _same(one: Contender, other: Contender) -> bool:
    rows = [
        (c.selected.copy_rows, c.selected.call_rows, sorted(c.order.edges)) for c in (one, other)
    ]
    return rows[0] == rows[1]
