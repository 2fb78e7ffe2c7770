"""The scenarios of a problem, one after another, all against the best placement so far.

A scenario is a set of shadows that exist: in each fewer calls have a choice of copy, so bounds are
sharper and much more can be pruned.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from automap.planner.search.decomposition.coarse import coarse_problem
from automap.planner.search.decomposition.dominance import Undominated
from automap.planner.search.decomposition.sizes import (
    LEAST_PATIENCE,
    Relaxed,
    Sizes,
    SizeSearch,
    cause,
)
from automap.planner.search.decomposition.symmetry import Interchange, interchanges
from automap.planner.search.many_models.many_model_search import large_start
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import TICK_SECONDS, Budget, minimise_period
from automap.planner.search.space.bounds_filter import least_period, rows_within
from automap.planner.search.space.rows import Rows, Selected, rows_of
from automap.planner.search.space.search_space import SearchSpace

PATIENCE = 3.0
"""Times the effort of solving sizes exactly that widening their cut is worth."""
OPEN_SECONDS = 0.1
"""Deterministic seconds without which the search of a scenario proves nothing."""
ROUNDS_WITHOUT_MEMORY = 4
"""Rounds of a scenario before the relaxed problem may count memory."""
COARSE_SECONDS_PER_OPTION = 4e-5
"""Deterministic seconds that a scenario has to have taken, per option of the relaxed problem with
memory, before that is worth its time: what took little so far is likely to end soon."""
MOST_COARSE_OPTIONS = 10_000
"""Options of calls up to which it does: larger models take longer than many rounds."""
COARSE_SHARE = 0.95
"""Of what is left of the limit: what its first solution may take."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One set of shadows that exist, with its best sizes in the relaxed problem."""

    rows: Rows
    sizes: SizeSearch
    alike: list[Interchange]
    horizon_seconds: float
    least_seconds: float
    """By bounds alone."""
    relaxed: Relaxed
    known: Selected | None
    """The best placement when this was found out."""


class _Coarse:
    """The relaxed problem of a scenario with memory, built when it may be worth its time."""

    def __init__(self, space: SearchSpace, rows: Rows) -> None:
        self.space, self.rows = space, rows
        self.problem: Problem | None = None
        self.done = False
        """Once is enough: it was too large, or it is what is searched."""

    def is_due(self, rows: Rows, spent_seconds: float) -> bool:
        """True, once, when the scenario has taken so much that memory is worth being counted."""
        if self.done or not self.space.is_complete(rows):
            return False
        if self.problem is None:
            self.rows, self.problem = rows, coarse_problem(self.space, rows)
        options = sum(len(call.options) for call in self.problem.calls)
        due = spent_seconds >= COARSE_SECONDS_PER_OPTION * options
        self.done = due or options > MOST_COARSE_OPTIONS
        return due and options <= MOST_COARSE_OPTIONS


class Race:
    """The scenarios one after another, all against the best placement so far."""

    def __init__(
        self,
        space: SearchSpace,
        budget: Budget,
        incumbent: Selected | None,
        horizon_seconds: float | None,
    ) -> None:
        self.space, self.budget = space, budget
        self.best, self.horizon_seconds = incumbent, horizon_seconds
        self.options = 0
        self.open_bounds: list[float] = []
        """Of what the limit left undecided."""

    @property
    def wanted_seconds(self) -> float:
        """Only shorter periods are looked for."""
        if self.best is None:
            return np.inf
        return self.best.timing.period * (1.0 - self.budget.limits.gap)

    @property
    def limit(self) -> float | None:
        """The longest period of interest, where one is known."""
        return period_limit(self.best, self.horizon_seconds, self.budget.limits.gap)

    def start_large(self, limit: float) -> None:
        """Look for a better placement than the known one before sizes are decided."""
        if not self.space.is_complete(self.space.rows):
            return
        found = large_start(self.space, self.space.rows, limit_seconds=limit, budget=self.budget)
        if found is not None and found[1].timing.period < limit:
            self.best = rows_of(*found)

    def affordable(self, scenarios: list[Rows]) -> list[Rows]:
        """All, or none where a start left so little that building their models would be in vain."""
        limit = self.budget.limits.deterministic_seconds
        needed = min(OPEN_SECONDS * len(scenarios), limit)
        if self.budget.left >= needed:
            return scenarios
        self.open_bounds.append(0.0)  # the linear relaxation bounds them
        return []

    def opened(self, scenarios: list[Rows]) -> list["Scenario"]:
        """Those that may hold a better placement, the most promising first."""
        found = []
        for number, rows in enumerate(scenarios):
            with self.budget.share(0.5 / (len(scenarios) - number)):
                scenario = self._opened(rows)
            if scenario is not None:
                self.options += sum(len(call.options) for call in scenario.sizes.problem.calls)
                found.append(scenario)
        return sorted(found, key=lambda each: each.relaxed.bound_seconds)

    def _opened(self, rows: Rows) -> "Scenario | None":
        limit = self.limit
        if limit is not None:
            rows = rows_within(self.space.tables, self.space.problem, rows, limit)
        if not self.space.is_complete(rows):
            return None
        horizon = limit if limit is not None else slowest(self.space, rows)
        least = least_period(self.space.tables, self.space.problem, rows) or 0.0
        alike = interchanges(self.space, rows)
        sizes = SizeSearch(self.space, rows, horizon_seconds=horizon, alike=alike)
        sizes.minimise_period()
        if self.best is not None:
            sizes.shorter_than(self.wanted_seconds)
        relaxed = sizes.best(self.budget)
        if relaxed.sizes is None and relaxed.proven:
            return None
        return Scenario(rows, sizes, alike, horizon, least, relaxed, self.best)

    def run(self, scenario: "Scenario") -> None:
        """Sizes in the order of their relaxed periods, each solved exactly."""
        if self.best is not None and self.best is not scenario.known:
            if scenario.relaxed.bound_seconds >= self.wanted_seconds:
                return
            again = self._opened(scenario.rows)
            if again is None:
                return
            scenario = again
        rows, sizes, relaxed = scenario.rows, scenario.sizes, scenario.relaxed
        undominated = Undominated(self.space, rows)
        cuts: list[Sizes] = []
        coarse, begun = _Coarse(self.space, rows), self.budget.left
        for round_ in itertools.count():
            if round_ >= ROUNDS_WITHOUT_MEMORY and coarse.is_due(rows, begun - self.budget.left):
                sizes, relaxed = self._counting_memory(scenario, coarse, cuts, relaxed)
            elif relaxed.sizes is None or round_:
                relaxed = sizes.best(self.budget)
            if relaxed.sizes is None and relaxed.proven:
                return
            if relaxed.sizes is None or self.budget.spent:
                self.open_bounds.append(max(relaxed.bound_seconds, scenario.least_seconds))
                return
            before = self.best
            sizes.no_shorter_than(relaxed.bound_seconds)
            real = undominated.of_sizes(rows, relaxed.sizes)
            effort = self._solve(real, relaxed.bound_seconds)
            if self.best is not None and self.best is not before:
                sizes.shorter_than(self.wanted_seconds)
                rows = rows_within(self.space.tables, self.space.problem, rows, self.wanted_seconds)
            cuts.append(self._cut(scenario, undominated, rows, relaxed.sizes, effort, round_))
            sizes.rule_out(cuts[-1])

    def _cut(
        self,
        scenario: "Scenario",
        undominated: Undominated,
        rows: Rows,
        sizes: Sizes,
        effort: float,
        round_: int,
    ) -> Sizes:
        """As many sizes as can be ruled out with those that were solved."""
        limit = scenario.horizon_seconds
        if self.best is not None:
            limit = self.wanted_seconds - TICK_SECONDS
        return cause(
            self.space,
            partial(undominated.of_sizes, rows),
            scenario.sizes,
            sizes,
            limit_seconds=limit,
            budget=self.budget,
            patience_seconds=min(max(PATIENCE * effort, LEAST_PATIENCE), 0.5),
            widen=round_ > 0,
            thorough=round_ > 1,
        )

    def _counting_memory(
        self, scenario: "Scenario", coarse: "_Coarse", cuts: list[Sizes], relaxed: Relaxed
    ) -> tuple[SizeSearch, Relaxed]:
        """The sizes left by memory in coarse steps, and the best; as before where that is too hard.

        Where a few cuts were not enough, it is most often memory that the relaxed problem lacks.
        """
        limit = self.limit
        sizes = SizeSearch(
            self.space,
            coarse.rows,
            horizon_seconds=slowest(self.space, coarse.rows) if limit is None else limit,
            coarse=coarse.problem,
            alike=scenario.alike,
        )
        sizes.minimise_period()
        sizes.no_shorter_than(relaxed.bound_seconds)
        if self.best is not None:
            sizes.shorter_than(self.wanted_seconds)
        for cut in cuts:
            sizes.rule_out(cut)
        with self.budget.share(COARSE_SHARE):
            found = sizes.best(self.budget)
        if found.sizes is not None or found.proven:
            return sizes, found
        return scenario.sizes, scenario.sizes.best(self.budget)

    def _solve(self, rows: Rows, relaxed_seconds: float) -> float:
        """The real problem on fixed sizes; returns the deterministic seconds it took."""
        limit = self.limit
        if limit is not None:
            rows = rows_within(self.space.tables, self.space.problem, rows, limit)
        if not self.space.is_complete(rows):
            return 0.0
        pruned = prune(self.space.options(rows), upper_bound_seconds=limit)
        if pruned.hopeless:
            return 0.0
        self.options += sum(len(call.options) for call in pruned.problem.calls)
        outcome = minimise_period(
            pruned.problem,
            limits=self.budget.rest(),
            horizon_seconds=limit if limit is not None else slowest(self.space, rows),
        )
        self.budget.take(outcome.deterministic_seconds)
        if not outcome.is_proven:
            self.open_bounds.append(max(outcome.lower_bound, relaxed_seconds))
        if outcome.solution is not None:
            found = rows_of(pruned.problem, outcome.solution)
            if self.best is None or found.timing.period < self.best.timing.period:
                self.best = found
        return outcome.deterministic_seconds


def scenarios(space: SearchSpace) -> Iterator[Rows]:
    """Rows for every set of shadows that exist, none first.

    A shadow with a single call serves it wherever it exists: otherwise nothing would use it.
    """
    tables = space.tables
    shadows = [i for i, copy in enumerate(tables.copies) if copy.shadow_of is not None]
    for present in itertools.product([False, True], repeat=len(shadows)):
        used = {shadow for shadow, there in zip(shadows, present, strict=True) if there}
        alone = {shadow for shadow in used if sum(t.copy == shadow for t in tables.calls) == 1}
        taken = {table.call for table in tables.calls if table.copy in alone}
        copies = [
            mask if tables.copies[i].shadow_of is None or i in used else np.zeros_like(mask)
            for i, mask in enumerate(space.rows.copies)
        ]
        calls = []
        for table, mask in zip(tables.calls, space.rows.calls, strict=True):
            shadow = tables.copies[table.copy].shadow_of is not None
            keep = table.copy in used if shadow else table.call not in taken
            calls.append(mask.copy() if keep else np.zeros_like(mask))
        yield Rows([mask.copy() for mask in copies], calls)


def period_limit(
    best: Selected | None, horizon_seconds: float | None, gap: float = 0.0
) -> float | None:
    """The longest period of interest: within the gap of the best one known, and the horizon."""
    limits = [] if best is None else [best.timing.period * (1.0 - gap)]
    return min([*limits, *([] if horizon_seconds is None else [horizon_seconds])], default=None)


def slowest(space: SearchSpace, rows: Rows) -> float:
    """A period that no sensible schedule exceeds: every call at its slowest, one by one."""
    total = sum(call.fixed_seconds for call in space.problem.calls)
    of_calls: dict[int, float] = {}
    for table, mask in zip(space.tables.calls, rows.calls, strict=True):
        here = float(table.seconds[mask].max(initial=0.0))
        of_calls[table.call] = max(of_calls.get(table.call, 0.0), here)
    for copy, mask in zip(space.tables.copies, rows.copies, strict=True):
        total += float(copy.sync_seconds[mask].max(initial=0.0))
    return total + sum(of_calls.values()) + 1e-3
