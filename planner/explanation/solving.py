"""Solving a study under some errors: is there a placement whose objective is at most a limit?"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import inf

import numpy as np

from automap.planner.cost.generation.streaming import TAILS
from automap.planner.explanation.contenders import Contender, contender
from automap.planner.explanation.factors import Factors, scaled
from automap.planner.explanation.study import Study
from automap.planner.layout import FloatArray, IntArray
from automap.planner.plan.price import objective_value
from automap.planner.search import (
    TICK_SECONDS,
    Budget,
    CallTable,
    Limits,
    Proven,
    Rows,
    Selected,
    best_placement,
    solve,
    solve_in_place,
)

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


def limits_of(study: Study, seconds: float = SEARCH_SECONDS) -> Limits:
    """Limits of one search."""
    return Limits.within(seconds, seed=study.job.spec.search.seed)


def best_within(study: Study, limit: float, limits: Limits) -> Proven[Selected]:
    """The best placement whose objective is at most `limit`."""
    if study.job.spec.search.objective == "throughput" and limit < inf:
        found = solve(study.space, limits=limits, cutoff_seconds=limit)
        bound = found.lower_bound if found.solution else min(found.lower_bound, limit)
        return replace(found, lower_bound=bound)
    spec = study.job.spec
    seconds = limits.deterministic_seconds / Limits.within(1.0, seed=0).deterministic_seconds
    # A search that stops at the spec's gap would prove less than what is asked here.
    update = {"time_limit_seconds": seconds, "limit_by": "work", "optimality_gap": 0.0}
    search_spec = spec.search.model_copy(update=update)
    job = replace(study.job, spec=spec.model_copy(update={"search": search_spec}))
    best = best_placement(job, study.space, START)
    if best.solution is None or best.objective_value > limit:
        return replace(best, solution=None, lower_bound=min(best.lower_bound, limit))
    return best


def values(study: Study, each: Contender, periods: FloatArray) -> FloatArray:
    """What the objective says of a placement with these periods."""
    search_spec = study.job.spec.search
    if search_spec.objective == "throughput":
        return periods
    touched = study.space.touched_gpus(each.selected)
    price = study.space.price_per_second(touched)
    found = objective_value(study.job.spec, periods, price, sum(touched))
    target = search_spec.target_iteration_seconds or inf
    return np.where(periods <= target, found, inf)


class Contenders:
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
        self.unproven = 0

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
        rows = _rows_of_placement(study, self.plan)
        # Prices are rounded up to whole microseconds once they are scaled, periods are not.
        cutoff_seconds = period + ROUNDING_SECONDS
        found = solve_in_place(
            study.space, self.plan, rows, limits=limits_of(study), cutoff_seconds=cutoff_seconds
        )
        if found is None or found.timing.period >= period - TICK_SECONDS:
            return False
        return self.add(found)

    def share(self, part: float) -> AbstractContextManager[None]:
        """Inside, challenges may take such a part of what is left of the budget, if any."""
        return nullcontext() if self.budget is None else self.budget.share(part)

    def challenge(self, factors: Factors, limit: float, limits: Limits) -> Proven[Selected]:
        """Search for a placement within the limit under some errors, and add what is found."""
        solved: Proven[Selected] = Proven(None, 0.0, is_proven=False)
        if self.budget is None:
            solved = best_within(scaled(self.study, factors), limit, limits)
        elif not self.budget.spent:
            some = min(limits.deterministic_seconds, self.budget.left)
            limits = replace(limits, deterministic_seconds=some)
            solved = best_within(scaled(self.study, factors), limit, limits)
            self.budget.take(solved.deterministic_seconds)
        self.unproven += not solved.is_proven
        if solved.solution is not None:
            self.add(solved.solution)
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
    calls: list[tuple[int, ...] | None] = []
    for number, chosen in enumerate(selected.call_rows):
        if chosen is None:
            calls.append(None)
            continue
        columns = _generation_layout(study, study.tables.of(number, chosen[0]))
        calls.append((chosen[0], *(int(column[chosen[1]]) for column in columns)))
    in_one_node = study.space.lies_in_one_node(selected)
    return (selected.copy_rows, tuple(calls), study.space.shared_gpus(selected), in_one_node)


def _same(one: Contender, other: Contender) -> bool:
    rows = [
        (c.selected.copy_rows, c.selected.call_rows, sorted(c.order.edges)) for c in (one, other)
    ]
    return rows[0] == rows[1]
