"""The best placement on given nodes: pruning, CP-SAT, and the proof.

A problem is split by which shadows exist: in each scenario fewer calls have a choice of copy, so
bounds are sharper and much more can be pruned. The best solution known so far bounds all of them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from planner.search import one_node
from planner.search.coarse import coarse_problem
from planner.search.dominance import Undominated
from planner.search.large import MANY_CALLS, large_start
from planner.search.linear import relax
from planner.search.problem import Assignment, Problem, Solution, Timing
from planner.search.pruning import SLACK, prune
from planner.search.sizes import (
    LEAST_PATIENCE,
    Relaxed,
    Sizes,
    SizeSearch,
    cause,
    relaxed_problem,
    rows_of_sizes,
)
from planner.search.solve import (
    MOST_TICKS,
    TICK_SECONDS,
    Budget,
    Limits,
    minimise_period,
    pinned,
    settle_ties,
)
from planner.search.space import (
    Arena,
    Compact,
    Rows,
    compact,
    least_period,
    problem_of,
    rows_within,
)
from planner.search.symmetry import Interchange, interchanges
from planner.search.tables import Tables

PATIENCE = 3.0
"""Times the effort of solving sizes exactly that widening their cut is worth."""
OPEN_SECONDS = 0.1
"""Deterministic seconds without which the search of a scenario proves nothing."""
NODE_SHARE = 0.2
"""Of the limit: what the search for placements in one node may take where there are several."""
ROUNDS_WITHOUT_MEMORY = 4
"""Rounds of a scenario after which the relaxed problem counts memory."""
MOST_COARSE_OPTIONS = 10_000
"""Options of calls up to which it does: larger models take longer than many rounds."""
COARSE_SHARE = 0.95
"""Of what is left of the limit: what its first solution may take."""
TIE_TRIES = 3
"""Smaller sizes that are tried for a placement that is already proven."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A placement by rows of the tables, with its schedule."""

    copy_rows: tuple[int | None, ...]
    first_gpus: tuple[int | None, ...]
    call_rows: tuple[tuple[int, int] | None, ...]
    """Per call (copy, row of that call's table on that copy)."""
    timing: Timing


@dataclass(frozen=True, slots=True)
class Found:
    """The best placement and what is proven about it."""

    selected: Selected | None
    lower_bound_seconds: float
    proven: bool
    options: int
    """Options that reached CP-SAT, over all scenarios."""
    warm_start: str | None = None
    deterministic_seconds: float = 0.0
    """What the solver took."""


def schedule(problem: Problem, assignment: Assignment, *, limits: Limits) -> Solution | None:
    """The shortest period of a fixed assignment."""
    fixed = pinned(problem, assignment)
    slowest = sum(
        max((option.seconds for option in call.options), default=call.fixed_seconds)
        for call in fixed.calls
    ) + sum(option.sync_seconds for copy in fixed.copies for option in copy.options)
    outcome = minimise_period(
        fixed, limits=limits, horizon_seconds=slowest + 1e-3, ranges=assignment.first_gpus
    )
    if outcome.solution is None:
        return None
    return replace(outcome.solution, assignment=assignment)


def search(
    arena: Arena,
    *,
    limits: Limits,
    incumbent: Selected | None,
    horizon_seconds: float | None = None,
) -> Found:
    """Least period, within the gap; `horizon_seconds` caps it where no incumbent does.

    With a gap only periods that are shorter by more are looked for, and the bound says so.
    Placements in one node have weight syncs of their own, and are searched by themselves.
    """
    budget, best = Budget(limits), in_its_place(arena, incumbent, limits)
    found, parts = [], [*one_node.arenas(arena), arena]
    for part in parts:
        with budget.share(1.0 if part is arena else NODE_SHARE / len(parts)):
            done = _search(part, budget.rest(), best, horizon_seconds)
            budget.take(done.deterministic_seconds)
        found.append(done)
        best = done.selected
    best = in_its_place(arena, best, limits)
    bound = min(each.lower_bound_seconds for each in found)
    return Found(
        best,
        bound if best is None else min(bound, best.timing.period),
        all(each.proven for each in found),
        sum(each.options for each in found),
        deterministic_seconds=sum(each.deterministic_seconds for each in found),
    )


def in_its_place(arena: Arena, selected: Selected | None, limits: Limits) -> Selected | None:
    """A placement with the schedule that it has where it lies: in one node syncs are shorter."""
    if selected is None or not _lies_in_one_node(arena, selected):
        return selected
    tables = as_placed(arena, selected).tables
    problem = problem_of(arena.problem, tables, _own_rows(tables, selected))
    assignment = Assignment(
        tuple(None if row is None else 0 for row in selected.copy_rows),
        selected.first_gpus,
        tuple(None if chosen is None else 0 for chosen in selected.call_rows),
    )
    found = schedule(problem, assignment, limits=limits)
    if found is None or found.timing.period >= selected.timing.period:
        return selected
    return replace(selected, timing=found.timing)


def as_placed(arena: Arena, selected: Selected) -> Arena:
    """The arena with the prices of a placement that lies where the given one does."""
    if not _lies_in_one_node(arena, selected):
        return arena
    return replace(arena, tables=arena.tables.in_one_node())


def _lies_in_one_node(arena: Arena, selected: Selected) -> bool:
    return one_node.lies_in_one(arena, selected.copy_rows, selected.first_gpus)


def _own_rows(tables: Tables, selected: Selected) -> Rows:
    """The rows of a placement alone."""
    copies = [
        np.arange(len(copy)) == (-1 if row is None else row)
        for copy, row in zip(tables.copies, selected.copy_rows, strict=True)
    ]
    calls = []
    for table in tables.calls:
        copy, row = selected.call_rows[table.call] or (-1, -1)
        calls.append(np.arange(len(table)) == (row if copy == table.copy else -1))
    return Rows(copies, calls)


def _search(
    arena: Arena, limits: Limits, incumbent: Selected | None, horizon_seconds: float | None
) -> Found:
    """The same with one price for every weight sync, wherever it is."""
    limit = _limit(incumbent, horizon_seconds, limits.gap)
    rows = arena.rows
    if limit is not None:
        rows = rows_within(arena.tables, arena.problem, rows, limit)
    part = compact(arena, rows)
    race = _Race(part.arena, Budget(limits), incumbent, horizon_seconds)
    if limit is not None and arena.problem.barrier and len(arena.problem.calls) > MANY_CALLS:
        race.start_large(limit)
    every = race.opened(race.affordable(list(scenarios(part.arena))))
    for number, scenario in enumerate(every):
        # A share for each, so that a hard one does not leave the others without any bound.
        with race.budget.share(1.0 / (len(every) - number)):
            race.run(scenario)
    wanted = race.wanted_seconds
    bound = float(min([wanted, *race.open_bounds]))
    if race.open_bounds and arena.problem.barrier:
        bound = max(bound, _linear_bound(part.arena, race.limit))
    if not arena.problem.barrier:
        # Only whole ticks were ruled out, and a cyclic period may lie between two.
        bound = max(bound - TICK_SECONDS, 0.0)
    longest = _slowest(part.arena, part.arena.rows) if limit is None else limit
    bound = max(bound - _hidden_seconds(arena.problem, longest), 0.0)
    best = race.best
    if best is not None and best is not incumbent:
        best = _original(best, part)
    used = limits.deterministic_seconds - race.budget.left
    proven = not race.open_bounds or bound >= wanted
    return Found(best, bound, proven, race.options, deterministic_seconds=used)


def _hidden_seconds(problem: Problem, longest: float) -> float:
    """By how much shorter a period may be than its whole ticks, where these are coarse.

    Of a call its seconds, its bulk and what comes out before the end are rounded up.
    """
    tick = longest / MOST_TICKS
    rounded = 3 * len(problem.calls) + len(problem.syncs) + len(problem.precedences)
    return tick * rounded if tick > TICK_SECONDS else 0.0


def _linear_bound(arena: Arena, limit: float | None) -> float:
    """A bound on all periods, at most the limit, that needs no search."""
    rows = arena.rows
    if limit is not None:
        rows = rows_within(arena.tables, arena.problem, rows, limit)
    if not complete(arena, rows):
        return 0.0 if limit is None else limit
    horizon = _slowest(arena, rows) if limit is None else limit
    relaxation = relax(relaxed_problem(arena, rows), horizon_seconds=horizon)
    return min(relaxation.bound_seconds, horizon)


def _original(selected: Selected, part: Compact) -> Selected:
    """A placement by the rows of the whole tables."""
    return replace(
        selected,
        copy_rows=tuple(
            None if row is None else int(rows[row])
            for row, rows in zip(selected.copy_rows, part.copy_rows, strict=True)
        ),
        call_rows=tuple(
            None if chosen is None else (chosen[0], int(part.call_rows[call, chosen[0]][chosen[1]]))
            for call, chosen in enumerate(selected.call_rows)
        ),
    )


@dataclass(frozen=True, slots=True)
class _Scenario:
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


class _Race:
    """The scenarios one after another, all against the best placement so far."""

    def __init__(
        self,
        arena: Arena,
        budget: Budget,
        incumbent: Selected | None,
        horizon_seconds: float | None,
    ) -> None:
        self.arena, self.budget = arena, budget
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
        return _limit(self.best, self.horizon_seconds, self.budget.limits.gap)

    def start_large(self, limit: float) -> None:
        """Look for a better placement than the known one before sizes are decided."""
        if not complete(self.arena, self.arena.rows):
            return
        found = large_start(self.arena, self.arena.rows, limit_seconds=limit, budget=self.budget)
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

    def opened(self, scenarios: list[Rows]) -> list["_Scenario"]:
        """Those that may hold a better placement, the most promising first."""
        found = []
        for number, rows in enumerate(scenarios):
            with self.budget.share(0.5 / (len(scenarios) - number)):
                scenario = self._opened(rows)
            if scenario is not None:
                found.append(scenario)
        return sorted(found, key=lambda each: each.relaxed.bound_seconds)

    def _opened(self, rows: Rows) -> "_Scenario | None":
        limit = self.limit
        if limit is not None:
            rows = rows_within(self.arena.tables, self.arena.problem, rows, limit)
        if not complete(self.arena, rows):
            return None
        horizon = limit if limit is not None else _slowest(self.arena, rows)
        least = least_period(self.arena.tables, self.arena.problem, rows) or 0.0
        alike = interchanges(self.arena, rows)
        sizes = SizeSearch(self.arena, rows, horizon_seconds=horizon, alike=alike)
        sizes.minimise_period()
        if self.best is not None:
            sizes.shorter_than(self.wanted_seconds)
        self.options += sum(len(call.options) for call in sizes.problem.calls)
        relaxed = sizes.best(self.budget)
        if relaxed.sizes is None and relaxed.proven:
            return None
        return _Scenario(rows, sizes, alike, horizon, least, relaxed, self.best)

    def run(self, scenario: "_Scenario") -> None:
        """Sizes in the order of their relaxed periods, each solved exactly."""
        if self.best is not None and self.best is not scenario.known:
            if scenario.relaxed.bound_seconds >= self.wanted_seconds:
                return
            again = self._opened(scenario.rows)
            if again is None:
                return
            scenario = again
        rows, sizes, relaxed = scenario.rows, scenario.sizes, scenario.relaxed
        undominated = Undominated(self.arena, rows)
        cuts: list[Sizes] = []
        for round_ in itertools.count():
            if round_ == ROUNDS_WITHOUT_MEMORY:
                sizes, relaxed = self._counting_memory(scenario, rows, cuts, relaxed)
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
                rows = rows_within(self.arena.tables, self.arena.problem, rows, self.wanted_seconds)
            cuts.append(self._cut(scenario, undominated, rows, relaxed.sizes, effort, round_))
            sizes.rule_out(cuts[-1])

    def _cut(
        self,
        scenario: "_Scenario",
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
            self.arena,
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
        self, scenario: "_Scenario", rows: Rows, cuts: list[Sizes], relaxed: Relaxed
    ) -> tuple[SizeSearch, Relaxed]:
        """The sizes left by memory in coarse steps, and the best; as before where that is too hard.

        Where a few cuts were not enough, it is most often memory that the relaxed problem lacks.
        """
        limit = self.limit
        if limit is not None:
            rows = rows_within(self.arena.tables, self.arena.problem, rows, limit)
        if complete(self.arena, rows):
            coarse = coarse_problem(self.arena, rows)
            if sum(len(call.options) for call in coarse.calls) <= MOST_COARSE_OPTIONS:
                sizes = SizeSearch(
                    self.arena,
                    rows,
                    horizon_seconds=_slowest(self.arena, rows) if limit is None else limit,
                    coarse=coarse,
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
            rows = rows_within(self.arena.tables, self.arena.problem, rows, limit)
        if not complete(self.arena, rows):
            return 0.0
        pruned = prune(self.arena.options(rows), upper_bound_seconds=limit)
        if pruned.hopeless:
            return 0.0
        self.options += sum(len(call.options) for call in pruned.problem.calls)
        outcome = minimise_period(
            pruned.problem,
            limits=self.budget.rest(),
            horizon_seconds=limit if limit is not None else _slowest(self.arena, rows),
        )
        self.budget.take(outcome.deterministic_seconds)
        if not outcome.proven:
            self.open_bounds.append(max(outcome.lower_bound_seconds, relaxed_seconds))
        if outcome.solution is not None:
            found = rows_of(pruned.problem, outcome.solution)
            if self.best is None or found.timing.period < self.best.timing.period:
                self.best = found
        return outcome.deterministic_seconds


def settled(arena: Arena, found: Found, *, limits: Limits) -> Selected:
    """Of the placements with the proven period one that is always the same.

    Fewer GPUs where a few tries show that the found sizes can shrink, then lowest ranges, then
    first rows.
    """
    assert found.selected is not None
    if _lies_in_one_node(arena, found.selected):
        pool = int(arena.tables.copies[0].pool[found.selected.copy_rows[0] or 0])
        return _settled(one_node.arena_of_pool(arena, pool), found, limits)
    chosen = in_its_place(arena, _settled(arena, found, limits), limits)
    assert chosen is not None
    return chosen


def _settled(arena: Arena, found: Found, limits: Limits) -> Selected:
    assert found.selected is not None
    limit = found.selected.timing.period
    budget = Budget(limits)
    sizes = _sizes(arena, found.selected)
    smaller = {
        copy: frozenset(
            (pool, int(count))
            for pool, largest in allowed
            for count in np.unique(arena.tables.copies[copy].layouts.num_gpus)
            if count <= largest
        )
        for copy, allowed in sizes.items()
    }
    rows = rows_of_sizes(arena, arena.rows, smaller)
    part = compact(arena, rows_within(arena.tables, arena.problem, rows, limit))
    arena, rows = part.arena, part.arena.rows
    if not complete(arena, rows):
        return found.selected
    search_ = SizeSearch(arena, rows, horizon_seconds=limit)
    search_.minimise_gpus()
    for _ in range(TIE_TRIES):
        relaxed = search_.best(budget)
        if relaxed.sizes is None or relaxed.sizes == sizes:
            break
        settled_ = _settled_on(arena, rows_of_sizes(arena, rows, relaxed.sizes), limit, budget)
        if settled_ is not None:
            return _original(settled_, part)
        search_.rule_out(relaxed.sizes)
    settled_ = _settled_on(arena, rows_of_sizes(arena, rows, sizes), limit, budget)
    return found.selected if settled_ is None else _original(settled_, part)


def _sizes(arena: Arena, selected: Selected) -> Sizes:
    """The size of every copy of a placement."""
    sizes: Sizes = {}
    for index, (copy, row) in enumerate(zip(arena.tables.copies, selected.copy_rows, strict=True)):
        here = () if row is None else ((int(copy.pool[row]), int(copy.layouts.num_gpus[row])),)
        sizes[index] = frozenset(here)
    return sizes


def _settled_on(arena: Arena, rows: Rows, limit: float, budget: Budget) -> Selected | None:
    """The placement on fixed sizes that order decides; None when they cannot hold the limit."""
    rows = rows_within(arena.tables, arena.problem, rows, limit)
    if not complete(arena, rows):
        return None
    pruned = prune(arena.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return None
    solution = settle_ties(pruned.problem, limits=budget.rest(), period_seconds=limit)
    # A cyclic period may lie between two ticks, and the solver knows only the later one.
    if solution is None or solution.timing.period > limit * (1 + SLACK):
        return None
    return rows_of(pruned.problem, solution)


def rows_of(problem: Problem, solution: Solution) -> Selected:
    """A solution by table rows, which problems with other options can read too."""
    assignment = solution.assignment
    copies = tuple(
        None if option is None else copy.options[option].row
        for copy, option in zip(problem.copies, assignment.copy_options, strict=True)
    )
    calls = tuple(
        None if option is None else (call.options[option].copy, call.options[option].row)
        for call, option in zip(problem.calls, assignment.call_options, strict=True)
    )
    return Selected(copies, assignment.first_gpus, calls, solution.timing)


def _limit(best: Selected | None, horizon_seconds: float | None, gap: float = 0.0) -> float | None:
    limits = [] if best is None else [best.timing.period * (1.0 - gap)]
    return min([*limits, *([] if horizon_seconds is None else [horizon_seconds])], default=None)


def _slowest(arena: Arena, rows: Rows) -> float:
    """A period that no sensible schedule exceeds: every call at its slowest, one by one."""
    total = sum(call.fixed_seconds for call in arena.problem.calls)
    slowest: dict[int, float] = {}
    for table, mask in zip(arena.tables.calls, rows.calls, strict=True):
        here = float(table.seconds[mask].max(initial=0.0))
        slowest[table.call] = max(slowest.get(table.call, 0.0), here)
    for copy, mask in zip(arena.tables.copies, rows.copies, strict=True):
        total += float(copy.sync_seconds[mask].max(initial=0.0))
    return total + sum(slowest.values()) + 1e-3


def complete(arena: Arena, rows: Rows) -> bool:
    """Every home has a row, and every call with a table too."""
    homes = all(
        rows.copies[index].any()
        for index, copy in enumerate(arena.tables.copies)
        if copy.shadow_of is None
    )
    calls = {table.call for table in arena.tables.calls}
    served = {table.call for n, table in enumerate(arena.tables.calls) if rows.calls[n].any()}
    return homes and calls <= served


def scenarios(arena: Arena) -> Iterator[Rows]:
    """Rows for every set of shadows that exist, none first.

    A shadow with a single call serves it wherever it exists: otherwise nothing would use it.
    """
    tables = arena.tables
    shadows = [i for i, copy in enumerate(tables.copies) if copy.shadow_of is not None]
    for present in itertools.product([False, True], repeat=len(shadows)):
        used = {shadow for shadow, there in zip(shadows, present, strict=True) if there}
        alone = {shadow for shadow in used if sum(t.copy == shadow for t in tables.calls) == 1}
        taken = {table.call for table in tables.calls if table.copy in alone}
        copies = [
            mask if tables.copies[i].shadow_of is None or i in used else np.zeros_like(mask)
            for i, mask in enumerate(arena.rows.copies)
        ]
        calls = []
        for table, mask in zip(tables.calls, arena.rows.calls, strict=True):
            shadow = tables.copies[table.copy].shadow_of is not None
            keep = table.copy in used if shadow else table.call not in taken
            calls.append(mask.copy() if keep else np.zeros_like(mask))
        yield Rows([mask.copy() for mask in copies], calls)
