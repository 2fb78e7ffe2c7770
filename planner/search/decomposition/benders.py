"""Logic-based Benders decomposition: sizes are decided first, then layouts, settings and order.

Every set of shadows that may exist is searched by itself, as with fewer copies to choose from its
bounds are sharper. In each the master problem (`decomposition.master`) proposes range sizes, the
placement problem on these sizes is solved exactly, and a cut excludes them, until the master has
nothing to propose that is shorter than the best placement of all sets so far.

One model of everything takes 16 s where this takes 1 s (PPO with four 70B models, 1,024 GPUs).
Searched together, the sets of shadows of Safe-RLHF with 235B on 1,024 GPUs are left with a gap of
1 %; one by one they are proven.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from automap.planner.search.decomposition.coarse import coarse_problem
from automap.planner.search.decomposition.dominance import DominanceFilter
from automap.planner.search.decomposition.master import (
    MasterProblem,
    Relaxed,
    Sizes,
    relaxed_problem,
    rows_of_sizes,
)
from automap.planner.search.decomposition.wider_cuts import WiderCuts
from automap.planner.search.model.problem import Problem, Solution
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import Budget, minimise_period
from automap.planner.search.proven import Proven
from automap.planner.search.space.bounds_filter import least_period, rows_within
from automap.planner.search.space.rows import Rows, Selected, rows_of
from automap.planner.search.space.search_space import SearchSpace

SECONDS_PER_OPTION = 5e-5
"""Deterministic seconds that a round takes outside of the solver for each of its options: without
them a job with hundreds of equally good sizes would go on far beyond its limit."""
OPEN_SECONDS = 0.1
"""Deterministic seconds without which the search of a set of shadows proves nothing."""
ROUNDS_WITHOUT_MEMORY, SECONDS_WITHOUT_MEMORY = 4, 0.05
"""Rounds and deterministic seconds after which the master problem counts memory: most sets of
shadows need fewer."""
MOST_COARSE_OPTIONS = 4_000
"""Options of calls up to which it does: larger models take longer than many rounds (one of 8,000
spends 30 s in the solver's presolve, which the deterministic seconds do not count)."""
OPENING_SHARE = 0.5
"""What the first proposals for all sets, which order them, may take of the limit."""
FIRST_ROUND_SHARE = 0.05
"""What each set may take of the limit before all others had as much."""
START_SHARE = 0.5
"""What the search for a better incumbent may take: Safe-RLHF with six models on 384 GPUs has the
best one after 1.4 s, and is proven in 8 s in place of 18 s."""
PLACING_SHARE = 0.1
"""What sizes that are not proven to be the best may take of it."""
SHORTER = 0.999
"""The part of a limit below which it is worth to begin again with fewer rows."""
MASTER_SHARE = 0.95
"""What a master problem may take of what is left, so that the sizes it found can be solved."""


Start = Callable[[float, Budget], Selected | None]
"""(seconds, what it may take) → a placement that is shorter."""


@dataclass(slots=True)
class _ShadowSet:
    """The search of one set of shadows: it ends where nothing is left, or pauses at a limit."""

    where: str
    """The placements in it, in words."""
    rows: Rows
    master: MasterProblem
    found: Relaxed
    """What the master problem proposed last."""
    dominance: DominanceFilter
    wider: WiderCuts
    narrowed_to: Selected | None
    """The best placement, that only shorter ones are looked for than."""
    counts_memory: bool = False
    """True once the master problem has been tried with memory."""
    cuts: list[Sizes] = field(default_factory=list)
    unsolved: list[tuple[Rows, float]] = field(default_factory=list)
    """Rows of proposed sizes that a limit left unsolved, and the bound on their periods."""
    is_exhausted: bool = False
    """True when the master problem has no sizes left that may hold a shorter period."""

    @property
    def bound_seconds(self) -> float:
        """No period that is still looked for is shorter; infinite where none is."""
        own = inf if self.is_exhausted else self.found.bound_seconds
        return min([own, *(bound for _, bound in self.unsolved)])


class BendersLoop:
    """The sets of shadows one after another, all against the best placement so far."""

    def __init__(
        self,
        space: SearchSpace,
        budget: Budget,
        incumbent: Selected | None,
        given_cutoff_seconds: float | None,
        start: "Start | None" = None,
    ) -> None:
        """`start` looks for a better incumbent once proofs turn out to be hard."""
        self.space, self.budget, self._start = space, budget, start
        self.best, self.given_cutoff_seconds = incumbent, given_cutoff_seconds
        self.options = 0
        """Options that reached CP-SAT."""
        self.open_bounds: dict[str, float] = {}
        """Lower bounds on the periods that the limit left undecided, by the placements, in words,
        that they are of."""

    @property
    def cutoff_seconds(self) -> float:
        """Only shorter periods are looked for."""
        if self.best is None:
            return inf
        return self.best.timing.period * (1.0 - self.budget.limits.gap)

    @property
    def limit(self) -> float | None:
        """The longest period of interest, where one is known."""
        return period_limit(self.best, self.given_cutoff_seconds, self.budget.limits.gap)

    def run(self) -> None:
        """Search every set of shadows, the one with the least relaxed period first."""
        every = list(shadow_sets(self.space))
        limit = self.budget.limits.deterministic_seconds
        if self.budget.left < min(OPEN_SECONDS * len(every), limit):
            self.open_bounds["of every kind"] = 0.0  # the linear relaxation bounds them
            return
        opened = []
        for number, rows in enumerate(every):
            with self.budget.share(OPENING_SHARE / (len(every) - number)):
                opened += self._opened(rows)
        left = sorted(opened, key=lambda each: each.bound_seconds)
        part = FIRST_ROUND_SHARE
        while left and not self.budget.spent:
            for number, each in enumerate(left):
                # A share for each, larger from round to round: a hard one leaves the others their
                # bounds, and what they find makes it easier.
                with self.budget.share(min(1.0 / (len(left) - number), part)):
                    self._search(each)
            left = [each for each in left if each.bound_seconds < self.cutoff_seconds]
            part = 1.0 if len(left) == 1 else 2.0 * part
        for each in left:
            bound = self.open_bounds.get(each.where, inf)
            self.open_bounds[each.where] = min(bound, each.bound_seconds)

    def _opened(self, rows: Rows) -> "list[_ShadowSet]":
        """The set of shadows with these rows, unless nothing in it is shorter than the cutoff."""
        while True:
            rows = self._within_limit(rows)
            if not self.space.is_complete(rows):
                return []
            least_seconds = least_period(self.space.tables, self.space.problem, rows) or 0.0
            best = self.best
            master = self._master(relaxed_problem(self.space, rows), rows, least_seconds)
            found = master.best(self.budget, tries=1)
            if found.proven or not (self._shortened(rows, found.sizes) or self._started()):
                break
        if found.sizes is None and found.proven:
            return []
        found = replace(found, bound_seconds=max(found.bound_seconds, least_seconds))
        dominance = DominanceFilter(self.space, rows)
        wider = WiderCuts(self.budget)
        return [_ShadowSet(self._where(rows), rows, master, found, dominance, wider, best)]

    def _shortened(self, rows: Rows, sizes: Sizes | None) -> bool:
        """Place sizes that are not proven to be the best: True where the limit is shorter now.

        A shorter limit leaves fewer rows, and what one try could not prove of many is often proven
        of few at once: ReMax on 512 GPUs takes 1.2 s in place of 7.7 s, and Safe-RLHF with six
        models on 384, which was left with a gap of 5 %, is proven.
        """
        if sizes is None or self.budget.spent:
            return False
        before = self.limit
        real = DominanceFilter(self.space, rows).of_sizes(rows, sizes)
        with self.budget.share(PLACING_SHARE):
            self._placed(self._within_limit(real))
        return self.limit is not None and (before is None or self.limit < SHORTER * before)

    def _started(self) -> bool:
        """Look for a better incumbent by other means, once: True where there is one."""
        start, limit = self._start, self.limit
        if start is None or limit is None or self.budget.spent:
            return False
        self._start = None
        with self.budget.share(START_SHARE):
            found = start(limit, self.budget)
        if found is not None:
            self.best = found
        return found is not None

    def _search(self, each: "_ShadowSet") -> None:
        """Solve the sizes of one set of shadows in the order of their relaxed periods."""
        unsolved, each.unsolved = each.unsolved, []
        for rows, bound_seconds in unsolved:
            self._solve(each, rows, bound_seconds)
        memory_at = self.budget.left - SECONDS_WITHOUT_MEMORY
        while not each.is_exhausted and each.found.bound_seconds < self.cutoff_seconds:
            if self.best is not each.narrowed_to:
                self._narrow(each)
            if self.budget.left <= memory_at:
                self._count_memory(each)
            if (each.cuts or not each.found.proven) and not self._proposed(each):
                return
            assert each.found.sizes is not None
            self._rule_out(each, each.found.sizes)

    def _proposed(self, each: "_ShadowSet") -> bool:
        """Ask the master problem for the next sizes; False: there are none, or not yet."""
        with self.budget.share(MASTER_SHARE):
            found = each.master.best(self.budget, tries=1)
            while not found.proven and not self.budget.spent:
                if self._shortened(each.rows, found.sizes):
                    self._narrow(each)
                found = each.master.best(self.budget, tries=1)
        each.is_exhausted = found.sizes is None and found.proven
        bound_seconds = max(found.bound_seconds, each.found.bound_seconds)
        each.found = replace(found, bound_seconds=bound_seconds)
        return found.sizes is not None and not self.budget.spent

    def _narrow(self, each: "_ShadowSet") -> None:
        """Look only for what is shorter than the best placement, which is new."""
        each.narrowed_to, each.rows = self.best, self._within_limit(each.rows)
        if not each.master.is_large or not self.space.is_complete(each.rows):
            each.master.shorter_than(self.cutoff_seconds)
            return
        problem_of = coarse_problem if each.master.counts_memory else relaxed_problem
        self._renew(each, problem_of(self.space, each.rows), each.master.counts_memory)

    def _renew(self, each: "_ShadowSet", problem: Problem, counts_memory: bool) -> None:
        """A master problem of the rows that are left, with all cuts so far."""
        bound_seconds = each.found.bound_seconds
        each.master = self._master(problem, each.rows, bound_seconds, counts_memory=counts_memory)
        for cut in each.cuts:
            each.master.rule_out(cut)

    def _rule_out(self, each: "_ShadowSet", sizes: Sizes) -> None:
        """Solve proposed sizes, and exclude them from the master problem."""
        before, real = self.budget.left, each.dominance.of_sizes(each.rows, sizes)
        self._solve(each, real, each.found.bound_seconds)
        cut = sizes
        if self.best is not None and each.wider.are_due(len(each.cuts)):
            problems = self.space.options(real), each.master.problem
            effort = before - self.budget.left
            cut = each.wider.widened(cut, each.cuts, problems, self.cutoff_seconds, effort)
        each.cuts.append(cut)
        each.master.rule_out(cut)
        each.master.no_shorter_than(each.found.bound_seconds)

    def _where(self, rows: Rows) -> str:
        """A set of shadows in words."""
        apart = [
            copy.id
            for copy, mask in zip(self.space.tables.copies, rows.copies, strict=True)
            if copy.shadow_of is not None and mask.any()
        ]
        return f"with {' and '.join(apart)}" if apart else "without shadow copies"

    def _count_memory(self, each: "_ShadowSet") -> None:
        """After some rounds let the master problem count memory, unless it is too large.

        Where a few cuts were not enough, it is most often memory that the first one lacks. Coarse
        bytes must show that: a round with memory takes up to forty times as long (RLOO with
        adapters on 32,768 GPUs needs fifty rounds, and ends in 4 s or in 40 s).
        """
        due = len(each.cuts) >= ROUNDS_WITHOUT_MEMORY and not each.counts_memory
        if not due or not self.space.is_complete(each.rows):
            return
        each.counts_memory = True
        if not any(self._lacks_memory(each, cut) for cut in each.cuts):
            return
        problem = coarse_problem(self.space, each.rows)
        if sum(len(call.options) for call in problem.calls) > MOST_COARSE_OPTIONS:
            return
        self._renew(each, problem, counts_memory=True)

    def _lacks_memory(self, each: "_ShadowSet", sizes: Sizes) -> bool:
        """True when coarse bytes alone show that nothing is shorter on sizes that were tried."""
        rows = rows_of_sizes(self.space, each.rows, sizes)
        if self.limit is None or not self.space.is_complete(rows):
            return False
        pruned = prune(coarse_problem(self.space, rows), upper_bound_seconds=self.limit)
        if pruned.hopeless:
            return True
        with self.budget.share(PLACING_SHARE):
            limits, longest = self.budget.rest(), self._longest_period(rows)
            outcome = minimise_period(pruned.problem, limits=limits, cutoff_seconds=longest)
        self.budget.take(outcome.deterministic_seconds)
        return outcome.is_proven and outcome.solution is None

    def _master(
        self, problem: Problem, rows: Rows, bound_seconds: float, *, counts_memory: bool = False
    ) -> MasterProblem:
        self.options += sum(len(call.options) for call in problem.calls)
        master = MasterProblem(
            problem, cutoff_seconds=self._longest_period(rows), counts_memory=counts_memory
        )
        master.minimise_period()
        master.no_shorter_than(bound_seconds)
        if self.best is not None:
            master.shorter_than(self.cutoff_seconds)
        return master

    def _solve(self, each: "_ShadowSet", rows: Rows, bound_seconds: float) -> None:
        """Solve the placement problem on fixed sizes, whose periods the bound is proven for."""
        rows = self._within_limit(rows)
        outcome = self._placed(rows)
        if not outcome.is_proven:
            each.unsolved.append((rows, max(outcome.lower_bound, bound_seconds)))

    def _placed(self, rows: Rows) -> Proven[Solution]:
        """The best placement with these rows, if it is shorter than the best one known."""
        nothing: Proven[Solution] = Proven(None, inf, is_proven=True)
        if not self.space.is_complete(rows):
            return nothing
        self.budget.take(SECONDS_PER_OPTION * sum(int(mask.sum()) for mask in rows.calls))
        pruned = prune(self.space.options(rows), upper_bound_seconds=self.limit)
        if pruned.hopeless:
            return nothing
        self.options += sum(len(call.options) for call in pruned.problem.calls)
        outcome = minimise_period(
            pruned.problem, limits=self.budget.rest(), cutoff_seconds=self._longest_period(rows)
        )
        self.budget.take(outcome.deterministic_seconds)
        if outcome.solution is not None:
            found = rows_of(pruned.problem, outcome.solution)
            if self.best is None or found.timing.period < self.best.timing.period:
                self.best = found
        return outcome

    def _within_limit(self, rows: Rows) -> Rows:
        """The rows that a placement within the limit can use."""
        if self.limit is None:
            return rows
        return rows_within(self.space.tables, self.space.problem, rows, self.limit)

    def _longest_period(self, rows: Rows) -> float:
        """What no period of interest with these rows exceeds."""
        return slowest(self.space, rows) if self.limit is None else self.limit


def shadow_sets(space: SearchSpace) -> Iterator[Rows]:
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
    best: Selected | None, cutoff_seconds: float | None, gap: float = 0.0
) -> float | None:
    """The longest period of interest: within the gap of the best one known and the cutoff."""
    limits = [] if best is None else [best.timing.period * (1.0 - gap)]
    return min([*limits, *([] if cutoff_seconds is None else [cutoff_seconds])], default=None)


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
