"""The simple plan: of the placements within a tolerance of the best the one easiest to set up.

`complexity` orders placements. From the best one on, a fixed list of simplifications is tried, and
each is kept that the tolerance allows and that makes the placement simpler. Where models share a
process, first other sizes that they may have in common; then those that lay the ranges anew (one
range for all, equal halves, two roles on one range, usual sizes), which are searched as the best
one was; then, where the ranges lie, those of the layouts. What is left of the tolerance goes to
memory: smaller micro-batches and the like with which, in the same layouts of the homes, a call is
less likely to run out of it. It is no proof that nothing simpler exists, but it repeats: what it
tries is limited by the solver's work.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, pairwise

import numpy as np

from automap.planner.cost.memory import fillable_bytes
from automap.planner.job.job import Job
from automap.planner.search.candidates.tables import BoolArray
from automap.planner.search.complexity import Traits, complexity, least_complexity
from automap.planner.search.model.solve import Limits
from automap.planner.search.objectives import RunPrice, SearchResult
from automap.planner.search.search import limits_of, solve
from automap.planner.search.space.processes import ProcessSpaces, of_process
from automap.planner.search.space.rows import Rows, Selected, period_of
from automap.planner.search.space.schedules import schedule, solve_in_place
from automap.planner.search.space.search_space import SearchSpace

WORK_SECONDS = 1.0
"""Deterministic seconds that all searches for other ranges may take together."""
ONE_SEARCH_SECONDS = 0.25
"""Deterministic seconds of one of them."""
IN_PLACE_SECONDS = 0.1
"""Deterministic seconds of one choice of layouts on given ranges."""
SPARE_PROBABILITIES = (0.005, 0.02)
"""Chances of running out of memory that are low enough to be worth the tolerance, the best first:
memory that is free costs nothing, and lengths, fragments and software change."""
SHARED_TRIES = 3
"""Common layouts that are tried for roles on one range."""


def simplified(
    job: Job, space: SearchSpace, best: SearchResult, *, began: float | None = None
) -> SearchResult:
    """The proven best placement, or the simplest found within the job's tolerance of it.

    What was cut by a limit, or ended at a gap, stays as it is: its optimum is not known. So does
    the answer to the fewest GPUs, and to `robust`, which choose among plans themselves.

    Args:
        job: Whose objective, tolerance and limits count.
        space: The job on its whole cluster.
        best: What best_placement found there.
        began: Reading of time.perf_counter from which a limit by the clock counts; now by default.
    """
    tolerance, spec = job.simplicity_tolerance, job.spec.search
    chosen = spec.objective == "fewest_gpus" or spec.robust or spec.optimality_gap
    if not tolerance or chosen or not best.is_proven or best.solution is None:
        return best
    most = most_seconds = best.lower_bound * (1 + tolerance)
    part, value_of = space, period_of
    known = [each.selected for each in best.attempts if each.selected is not None]
    if spec.objective != "throughput":
        price, per_second = RunPrice.of_job(job, space), _price_per_second(space, best.solution)
        if per_second <= 0:
            return best
        most_seconds = price.seconds(most, per_second)
        part, value_of = space.on_gpus(space.reached_gpus(best.solution)), price.of
        known = []  # they may touch other nodes
    if most_seconds <= best.solution.timing.period:
        return best
    limits = replace(limits_of(job, began), gap=tolerance)
    first = plainest_process(part, best.solution, most_seconds=most_seconds, limits=limits)
    if value_of(first) > most:
        first = best.solution  # on dearer GPUs than those of the limit in seconds
    part = of_process(part, first)
    selected = simplest(
        part,
        first,
        known,
        most_seconds=most_seconds,
        limits=limits,
        spare=[
            [fillable_bytes(pool, max_out_of_memory_probability=chance) for pool in job.pools]
            for chance in SPARE_PROBABILITIES
        ],
    )
    value = value_of(selected)
    if value > most:
        return best
    slower = value > best.objective_value
    return replace(best, solution=selected, objective_value=value, is_simplified=slower)


def _price_per_second(space: SearchSpace, selected: Selected) -> float:
    return space.price_per_second(space.touched_gpus(selected))


def plainest_process(
    space: SearchSpace, best: Selected, *, most_seconds: float, limits: Limits
) -> Selected:
    """The simplest placement found whose models share other sizes, as those of one process do.

    Every choice of what they share is a search, the best bound first; what could be no simpler is
    not searched. The best placement itself where nothing is shared.

    Args:
        space: What was searched.
        best: The best placement there.
        most_seconds: The longest period that is as good.
        limits: As for `simplest`.
    """
    rows = space.within(most_seconds)
    if not space.tables.has_processes or rows is None:
        return best
    traits, left, found = Traits.of(space), WORK_SECONDS, best
    its, choices = complexity(space, traits, best), ProcessSpaces(rows)
    while left > 0 and limits.deadline > time.perf_counter():
        choice = choices.next(most_seconds)
        if choice is None:
            break
        if least_complexity(choice.space) >= its:
            continue
        work = min(ONE_SEARCH_SECONDS, left)
        part = replace(limits, deterministic_seconds=work)
        other = solve(choice.space, limits=part, cutoff_seconds=most_seconds)
        left -= other.deterministic_seconds
        if other.solution is None or other.solution.timing.period > most_seconds:
            continue
        lifted = rows.lift(choice.lift(other.solution))
        simpler = complexity(space, traits, lifted)
        if simpler < its:
            found, its = lifted, simpler
    return found


def simplest(
    space: SearchSpace,
    best: Selected,
    known: Sequence[Selected],
    *,
    most_seconds: float,
    limits: Limits,
    spare: Sequence[Sequence[int]] = (),
) -> Selected:
    """The simplest placement found whose period is at most so many seconds; else the best itself.

    Args:
        space: What was searched, with the prices of its nodes.
        best: The best placement there.
        known: Other placements there, which may be simpler already.
        most_seconds: The longest period that is as good.
        limits: Of the job, with the share by which that exceeds the best period as their gap; their
            deadline ends this too.
        spare: [pool] bytes of a GPU that it would be better not to exceed; the best first.
    """
    descent = _Descent(space, best, most_seconds, limits)
    descent.look_at(known)
    descent.lay_anew()
    descent.choose_layouts()
    descent.spare_memory(spare)
    return descent.best


class _Descent:
    """From the best placement to simpler ones, one simplification after another."""

    def __init__(
        self, space: SearchSpace, best: Selected, most_seconds: float, limits: Limits
    ) -> None:
        rows = space.within(most_seconds)
        assert rows is not None, "the best placement is within the tolerance"
        self.space = rows
        lowered = rows.lowered(best)
        assert lowered is not None, "the best placement is within the tolerance"
        self.selected, self.most_seconds, self.limits = lowered, most_seconds, limits
        self.traits = Traits.of(self.space)
        self.complexity = complexity(self.space, self.traits, self.selected)
        self.left = WORK_SECONDS
        """Deterministic seconds for searches."""

    @property
    def best(self) -> Selected:
        """The simplest placement, by the rows of the space that was given."""
        return self.space.lift(self.selected)

    @property
    def is_over(self) -> bool:
        """True when the job's time has ended."""
        return self.limits.deadline <= time.perf_counter()

    def look_at(self, known: Sequence[Selected]) -> None:
        """Begin with the simplest of these placements that is good enough."""
        for each in known:
            self._take(self.space.lowered(each))

    def lay_anew(self) -> None:
        """Simplify the ranges."""
        for rows, together in self._ranges():
            if self.left <= 0 or self.is_over:
                return
            self._search(rows, together)

    def _ranges(self) -> Iterator[tuple[Rows, list[tuple[int, int]]]]:
        """Rows, and pairs of homes on one range, of the searches that may simplify the ranges."""
        usual, copies = self._usual(), self.space.tables.copies
        homes = [n for n, copy in enumerate(copies) if copy.shadow_of is None]
        chain = list(pairwise(homes))
        shadows = len(copies) > len(homes)
        if self.complexity.ranges > 1:
            yield self._without_shadows(usual), chain
        if self.complexity.ranges > 2 and shadows:
            yield usual, chain
        if self.complexity.ranges > 2:
            yield self._halves(usual), []
        for one, other in combinations(homes, 2):
            if self.complexity.ranges > 2 and self._range(one) != self._range(other):
                yield usual, [(one, other)]
        if self.complexity.shadows + self.complexity.odd_sizes > 0:
            yield self._without_shadows(usual), []
        if self.complexity.odd_sizes > 0:
            yield usual, []

    def _search(self, rows: Rows, together: list[tuple[int, int]]) -> None:
        problem = self.space.problem
        part = replace(
            self.space,
            rows=rows,
            problem=replace(problem, colocate=(*problem.colocate, *together)),
        )
        if not part.is_complete():
            return
        work = min(ONE_SEARCH_SECONDS, self.left)
        limits = replace(self.limits, deterministic_seconds=work)
        found = solve(part, limits=limits, cutoff_seconds=self.most_seconds)
        self.left -= found.deterministic_seconds
        self._take(found.solution)

    def _take(self, found: Selected | None) -> bool:
        """Keep a placement that is simpler and good enough; False: it is not."""
        if found is None or found.timing.period > self.most_seconds:
            return False
        its = complexity(self.space, self.traits, found)
        if its >= self.complexity:
            return False
        self.selected, self.complexity = found, its
        return True

    def _range(self, copy: int) -> tuple[int | None, int | None]:
        row = self.selected.copy_rows[copy]
        count = None if row is None else int(self.space.tables.copies[copy].layouts.num_gpus[row])
        return self.selected.first_gpus[copy], count

    def _usual(self) -> Rows:
        """Rows of usual sizes; all, where some call would have none."""
        rows = self.space.rows_where(
            {n: odd == 0 for n, odd in enumerate(self.traits.odd)},
            {n: odd == 0 for n, odd in enumerate(self.traits.engine_odd)},
        )
        return rows if self.space.is_complete(rows) else self.space.rows

    def _without_shadows(self, rows: Rows) -> Rows:
        none: dict[int, BoolArray] = {
            n: np.zeros(len(copy), dtype=np.bool_)
            for n, copy in enumerate(self.space.tables.copies)
            if copy.shadow_of is not None
        }
        return replace(self.space, rows=rows).rows_where(none)

    def _halves(self, rows: Rows) -> Rows:
        """Ranges of half a pool."""
        pools = np.array([pool.num_gpus for pool in self.space.problem.pools], dtype=np.int64)
        halves = {
            n: 2 * copy.layouts.num_gpus == pools[copy.pool]
            for n, copy in enumerate(self.space.tables.copies)
        }
        return replace(self.space, rows=rows).rows_where(halves)

    def choose_layouts(self) -> None:
        """Simplify the layouts where the ranges lie."""
        rows = self._rows_in_place()
        for masks, calls in self._layouts():
            if self.is_over:
                return
            fewer = replace(self.space, rows=rows).rows_where(masks, calls)
            if self._place(fewer):
                rows = fewer

    def _rows_in_place(self) -> Rows:
        """The rows on the ranges of the placement."""
        kept: dict[int, BoolArray] = {}
        for n, copy in enumerate(self.space.tables.copies):
            row, counts = self.selected.copy_rows[n], copy.layouts.num_gpus
            kept[n] = np.zeros(len(copy), dtype=np.bool_)
            if row is not None:
                kept[n] = (copy.pool == copy.pool[row]) & (counts == counts[row])
        return self.space.rows_where(kept)

    def _place(self, rows: Rows) -> bool:
        if not self.space.is_complete(rows):
            return False
        limits = replace(self.limits, deterministic_seconds=IN_PLACE_SECONDS, gap=0.0)
        found = solve_in_place(
            self.space, self.selected, rows, limits=limits, cutoff_seconds=self.most_seconds
        )
        return self._take(found)

    def spare_memory(self, capacities: Sequence[Sequence[int]]) -> None:
        """Fill less of the memory, in the same layouts of the homes; the first that can be had."""
        copies = self.space.tables.copies
        homes = [n for n, copy in enumerate(copies) if copy.shadow_of is None]
        same = {home: self._has(home, self.traits.sizes[home][self._row(home)]) for home in homes}
        rows = replace(self.space, rows=self._rows_in_place()).rows_where(same)
        for bytes_per_gpu in capacities:
            if self.is_over or not self.space.is_complete(rows):
                return
            limits = replace(self.limits, deterministic_seconds=IN_PLACE_SECONDS, gap=0.0)
            part = self.space.filling(bytes_per_gpu)
            if schedule(*part.alone(self.selected), limits=limits) is not None:
                return  # it fills no more as it is
            found = solve_in_place(
                part, self.selected, rows, limits=limits, cutoff_seconds=self.most_seconds
            )
            if found is not None and found.timing.period <= self.most_seconds:
                its = complexity(self.space, self.traits, found)
                if its <= self.complexity:
                    self.selected, self.complexity = found, its
                    return

    def _layouts(self) -> Iterator[tuple[dict[int, BoolArray], dict[int, BoolArray]]]:
        """Masks of layouts, and of settings, that may simplify the layouts, one after another."""
        copies = enumerate(self.space.tables.copies)
        homes = [number for number, copy in copies if copy.shadow_of is None]
        trained = [n for n in homes if self.space.tables.trains(n)]
        scoring = [n for n in homes if n not in trained]
        for group in (homes, trained, scoring):
            yield from self._shared(group)
        for home in (*trained, *scoring):
            yield from self._fewer(home)
        for number, table in enumerate(self.space.tables.calls):
            chosen = self.selected.call_rows[table.call]
            if chosen is None or chosen[0] != table.copy:
                continue
            dimensions, odd = self.traits.engine_dimensions[number], self.traits.engine_odd[number]
            if odd[chosen[1]]:
                yield {}, {number: odd == 0}
            for most in range(1, int(dimensions[chosen[1]])):
                if dimensions[self.selected.call_rows[table.call][1]] > most:  # type: ignore[index]
                    yield {}, {number: dimensions <= most}

    def _shared(
        self, group: list[int]
    ) -> Iterator[tuple[dict[int, BoolArray], dict[int, BoolArray]]]:
        """One layout for all homes of a group that lie on ranges of one size."""
        counts = {self._range(home)[1] for home in group}
        if len(group) < 2 or len(counts) > 1 or self._layouts_of(group) == 1:
            return
        (count,) = counts
        copies = self.space.tables.copies
        on_range = [np.flatnonzero(copies[home].layouts.num_gpus == count) for home in group]
        known = [
            {self.traits.sizes[home][row] for row in rows}
            for home, rows in zip(group, on_range, strict=True)
        ]
        chosen = [self.traits.sizes[home][self._row(home)] for home in group]
        common = reduce(set.intersection, known)
        for sizes in sorted(common, key=lambda s: (-chosen.count(s), _plainness(s)))[:SHARED_TRIES]:
            if self._layouts_of(group) == 1:
                return
            yield {home: self._has(home, sizes) for home in group}, {}

    def _layouts_of(self, group: list[int]) -> int:
        return len({self.traits.sizes[n][self._row(n)] for n in group})

    def _has(self, copy: int, sizes: tuple[int, ...]) -> BoolArray:
        return np.array([own == sizes for own in self.traits.sizes[copy]], dtype=np.bool_)

    def _fewer(self, home: int) -> Iterator[tuple[dict[int, BoolArray], dict[int, BoolArray]]]:
        """Usual sizes for a home, no interleaving, and fewer dimensions."""
        dimensions, odd = self.traits.dimensions[home], self.traits.odd[home]
        for most in range(1, 5):
            if dimensions[self._row(home)] > most:
                yield {home: dimensions <= most}, {}
        if odd[self._row(home)]:
            yield {home: odd == 0}, {}
        interleaved = self.space.tables.copies[home].layouts.virtual_pipeline_parallel_size
        if interleaved[self._row(home)] > 1:
            yield {home: interleaved == 1}, {}

    def _row(self, home: int) -> int:
        row = self.selected.copy_rows[home]
        assert row is not None, "a home has a layout"
        return row


def _plainness(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Fewer dimensions first, then the smaller sizes in the order of SIZES."""
    return (sum(size > 1 for size in sizes[:-1]), *sizes)
