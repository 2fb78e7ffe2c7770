"""Proving over and over that nothing is within a limit, with seconds that differ a little.

A proof rules sizes of ranges out (`decomposition.sizes`). Why they are excluded hardly depends on
the seconds, so the reasons of one proof are tried first in the next: each is checked under the
new seconds before it counts, so none is taken on trust.
"""

from collections import defaultdict
from functools import partial

from automap.planner.search.decomposition.dominance import Undominated
from automap.planner.search.decomposition.race import scenarios
from automap.planner.search.decomposition.sizes import (
    Sizes,
    SizeSearch,
    cause,
    is_excluded,
    mixed_problem,
)
from automap.planner.search.model.solve import Budget
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.one_node import spaces_of_nodes
from automap.planner.search.space.rows import Rows
from automap.planner.search.space.search_space import SearchSpace

MOST_ROUNDS = 8
"""Choices of sizes that are ruled out before the ordinary search takes over."""
MOST_REASONS = 4
"""Per set of shadows; the latest are kept."""
PATIENCE_SECONDS = 0.1
"""Deterministic seconds for one check."""


class Exclusion:
    """What has ruled sizes out so far."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[int, int], list[Sizes]] = defaultdict(list)
        """By the part of the cluster and the number of the set of shadows; the latest first."""

    def nothing_within(self, space: SearchSpace, limit: float, budget: Budget) -> bool:
        """True: it is proven that no period is as short as the limit; False: it may be."""
        return all(
            self._nothing_in(part, limit, number, budget)
            for number, part in enumerate([space, *spaces_of_nodes(space)])
        )

    def _nothing_in(self, space: SearchSpace, limit: float, place: int, budget: Budget) -> bool:
        part = space.restrict(rows_within(space.tables, space.problem, space.rows, limit))
        return all(
            self._excluded(part, rows, limit, self._reasons[place, number], budget)
            for number, rows in enumerate(scenarios(part))
        )

    def _excluded(
        self, part: SearchSpace, rows: Rows, limit: float, reasons: list[Sizes], budget: Budget
    ) -> bool:
        rows = rows_within(part.tables, part.problem, rows, limit)
        if not part.is_complete(rows):
            return True
        sizes = SizeSearch(part, rows, horizon_seconds=limit)
        sizes.minimise_period()
        check = _Check(part, rows, sizes, limit, budget)
        for reason in list(reasons):
            if check.excludes(reason):
                sizes.rule_out(reason)
        for _ in range(MOST_ROUNDS):
            relaxed = sizes.best(budget)
            if relaxed.sizes is None or budget.spent:
                return relaxed.sizes is None and relaxed.proven
            if not check.excludes(relaxed.sizes):
                return False
            reason = check.widened(relaxed.sizes)
            sizes.rule_out(reason)
            reasons.insert(0, reason)
            del reasons[MOST_REASONS:]
        return False


class _Check:
    """Whether sizes can hold a limit."""

    def __init__(
        self, part: SearchSpace, rows: Rows, sizes: SizeSearch, limit: float, budget: Budget
    ) -> None:
        self.part, self.sizes, self.limit, self.budget = part, sizes, limit, budget
        self.rows_of = partial(Undominated(part, rows).of_sizes, rows)
        self.absent: Sizes = dict.fromkeys(range(len(part.tables.copies)), frozenset())

    def excludes(self, sizes: Sizes) -> bool:
        """True when no placement whose copies have these sizes is within the limit."""
        real = self.part.options(self.rows_of({**self.absent, **sizes}))
        return is_excluded(
            mixed_problem(real, self.sizes.problem, sizes),
            limit_seconds=self.limit,
            budget=self.budget,
            patience_seconds=PATIENCE_SECONDS,
        )

    def widened(self, sizes: Sizes) -> Sizes:
        """More sizes that are excluded for the same reason."""
        return cause(
            self.part,
            self.rows_of,
            self.sizes,
            sizes,
            limit_seconds=self.limit,
            budget=self.budget,
            patience_seconds=PATIENCE_SECONDS,
            widen=True,
            thorough=True,
        )
