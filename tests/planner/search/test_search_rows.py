"""Reductions of rows before the solver: they leave the optimum and the bounds as they are."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from automap.planner.job.resolution import resolve
from automap.planner.search.candidates.tables import CallTable, joined_calls
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.decomposition.benders import shadow_sets
from automap.planner.search.decomposition.dominance import DominanceFilter
from automap.planner.search.decomposition.master import Sizes, relaxed_problem
from automap.planner.search.model.bounds import Bounds, CallMinimum
from automap.planner.search.model.problem import PoolSlice
from automap.planner.search.model.solve import Limits, minimise_period
from automap.planner.search.search import solve
from automap.planner.search.space.bounds_filter import rows_within
from automap.planner.search.space.rows import Rows, rows_without_tails
from automap.planner.search.space.search_space import SearchSpace
from benchmarks.mixed import drawn, known
from tests.helpers.small_jobs import small_job
from tests.planner.search.instances import random_problem, streamed_problem
from tests.planner.search.test_search_sizes import space_of, structure_of

LIMITS = Limits(5.0, seed=0)
CUTOFF = 500.0


def optimum(space: SearchSpace, rows: Rows, *, relaxed: bool = False) -> float | None:
    """The least period that the rows allow."""
    problem = relaxed_problem(space, rows) if relaxed else space.options(rows)
    solution = minimise_period(problem, limits=LIMITS, cutoff_seconds=CUTOFF).solution
    return None if solution is None else solution.timing.period


def without_shadows(seed: int) -> tuple[SearchSpace, Rows]:
    """A random problem as tables, and its rows without shadows."""
    space = space_of(random_problem(seed, barrier=seed % 2 == 0))
    return space, next(shadow_sets(space))


def streamed_space(seed: int) -> SearchSpace:
    """A random problem as tables whose first call is streamed, and may have a tail."""
    problem = streamed_problem(seed, barrier=seed % 4 != 3)
    plain, draw = space_of(problem), np.random.default_rng(seed)
    calls = []
    for table in plain.tables.calls:
        counts = plain.tables.copies[table.copy].layouts.num_gpus[table.copy_row]
        calls.append(with_courses(table, counts, draw) if table.call == 0 else table)
    return SearchSpace.whole(replace(plain.tables, calls=calls), structure_of(problem))


def with_courses(table: CallTable, counts: np.ndarray, draw: np.random.Generator) -> CallTable:
    """Every row streamed in two chunks, and again with a tail on half or a quarter of its GPUs."""
    twice, number = joined_calls([table, table]), len(table)
    tail = np.concatenate([np.zeros(number, dtype=np.int64), draw.choice([1, 3], number)])
    ratio = np.array([1, 2, 2, 4])[tail]
    has_tail = tail > 0
    return replace(
        twice,
        seconds=twice.seconds * np.where(has_tail, 1.125, 1.0),
        chunk_ready_shares=draw.choice([0.25, 0.5, 1.0], (2 * number, 1)),
        tail=tail,
        main_phase_shares=np.where(has_tail, draw.choice([0.375, 0.75], 2 * number), 1.0),
    ).take(np.flatnonzero(np.tile(counts, 2) % ratio == 0))


def every_size(space: SearchSpace) -> Sizes:
    return {
        index: frozenset(zip(copy.pool.tolist(), copy.layouts.num_gpus.tolist(), strict=True))
        for index, copy in enumerate(space.tables.copies)
    }


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_nothing_dominates_have_the_same_optimum(seed: int) -> None:
    space, rows = without_shadows(seed)
    kept = DominanceFilter(space, rows).of_sizes(rows, every_size(space))
    assert all((few <= many).all() for few, many in zip(kept.copies, rows.copies, strict=True))
    assert optimum(space, kept) == optimum(space, rows)


def test_some_random_rows_are_dominated() -> None:
    dropped = 0
    for seed in range(12):
        space, rows = without_shadows(seed)
        kept = DominanceFilter(space, rows).of_sizes(rows, every_size(space))
        dropped += sum(int(mask.sum()) for mask in rows.copies)
        dropped -= sum(int(mask.sum()) for mask in kept.copies)
    assert dropped > 0


@pytest.mark.parametrize("seed", range(12))
def test_the_relaxed_problem_is_no_slower_than_the_real_one(seed: int) -> None:
    space, rows = without_shadows(seed)
    real, relaxed = optimum(space, rows), optimum(space, rows, relaxed=True)
    if real is not None:
        assert relaxed is not None
        assert relaxed <= real + 1e-9


@pytest.mark.parametrize("seed", range(24))
def test_streams_and_tails_survive_every_reduction(seed: int) -> None:
    whole = streamed_space(seed)
    best = optimum(whole, whole.rows)
    found = solve(whole, limits=LIMITS, incumbent=None)
    assert found.is_proven
    if best is None:
        assert found.solution is None
        return
    assert found.solution is not None
    assert found.solution.timing.period == pytest.approx(best, abs=2e-5)
    kept = DominanceFilter(whole, whole.rows).of_sizes(whole.rows, every_size(whole))
    assert optimum(whole, kept) == pytest.approx(best, abs=2e-5)
    relaxed = optimum(whole, whole.rows, relaxed=True)
    assert relaxed is not None
    assert relaxed <= best + 2e-5


def test_some_of_these_plans_need_a_stream_or_a_tail() -> None:
    shorter = 0
    for seed in range(24):
        whole = streamed_space(seed)
        ended = [replace(edge, chunks=0) for edge in whole.problem.precedences]
        later = replace(whole, problem=replace(whole.problem, precedences=tuple(ended)))
        best, without = optimum(whole, whole.rows), optimum(later, rows_without_tails(whole.tables))
        shorter += best is not None and (without is None or best < without - 1e-3)
    assert shorter >= 3


def test_a_layout_that_ends_first_does_not_replace_one_that_is_streamed_first() -> None:
    """Every layout twice: the second one is faster, but all of its chunks are out at its end."""
    problem = streamed_problem(0, barrier=True)
    tables = space_of(problem).tables
    index = tables.calls[0].copy
    number = len(tables.copies[index])
    copies = list(tables.copies)
    copies[index] = copies[index].take(np.tile(np.arange(number), 2))
    calls = []
    for table in tables.calls:
        if table.copy == index:
            size = len(table)
            table = joined_calls([table, replace(table, copy_row=table.copy_row + number)])
            if table.call == 0:
                faster = np.repeat([1.0, 0.99], size)
                shares = np.repeat([0.25, 1.0], size)[:, None]
                table = replace(table, seconds=faster * table.seconds, chunk_ready_shares=shares)
        calls.append(table)
    whole = SearchSpace.whole(replace(tables, copies=copies, calls=calls), structure_of(problem))
    kept = DominanceFilter(whole, whole.rows).of_sizes(whole.rows, every_size(whole))
    assert kept.copies[index][:number].any()
    assert kept.copies[index][number:].any()


@pytest.mark.parametrize("seed", range(6))
def test_a_compact_arena_has_the_rows_that_it_was_made_of(seed: int) -> None:
    space, rows = without_shadows(seed)
    best = optimum(space, rows)
    if best is None:
        return
    within = rows_within(space.tables, space.problem, rows, best)
    assert space.is_complete(within)
    part = space.restrict(within)
    assert part.origin is not None
    assert optimum(part, part.rows) == best
    for index, copy in enumerate(part.tables.copies):
        whole = space.tables.copies[index]
        assert (whole.resident_bytes[part.origin.copy_rows[index]] == copy.resident_bytes).all()
    for table in part.tables.calls:
        numbers = part.origin.call_rows[table.call, table.copy]
        (whole_table,) = (
            each
            for each in space.tables.calls
            if (each.call, each.copy) == (table.call, table.copy)
        )
        assert (whole_table.seconds[numbers] == table.seconds).all()
        old = part.origin.copy_rows[table.copy][table.copy_row]
        assert (whole_table.copy_row[numbers] == old).all()


@pytest.mark.parametrize("seed", range(8))
def test_offsets_isolate_the_rest_of_the_bound(seed: int) -> None:
    problem = random_problem(seed, barrier=seed % 2 == 0)
    bounds, draw = Bounds(problem), random.Random(seed)
    width = len(bounds.shares(0, 1))
    minima = [
        CallMinimum(draw.uniform(1, 9), tuple(draw.uniform(0, 1) for _ in range(width)))
        for _ in problem.calls
    ]
    least = bounds.period(minima)
    for minimum, offset in zip(minima, bounds.offsets(minima), strict=True):
        parts = [minimum.seconds + offset.seconds]
        parts += [w + rest for w, rest in zip(minimum.weights, offset.weights, strict=True)]
        assert max(parts) <= least + 1e-9
    # The bound is a maximum of sums: one call's parts reach it.
    longest = max(range(len(minima)), key=lambda call: minima[call].seconds)
    grown = [*minima]
    grown[longest] = replace(minima[longest], seconds=100.0)
    assert bounds.period(grown) == pytest.approx(100.0 + bounds.offsets(minima)[longest].seconds)


@pytest.mark.parametrize("seed", range(8))
def test_shares_of_many_ranges_are_those_of_each(seed: int) -> None:
    draw = random.Random(seed)
    pools = tuple(
        PoolSlice(f"p{n}", 0, draw.choice([5, 24, 96, 1000]), 8, 1, 1, 0.0) for n in range(2)
    )
    bounds = Bounds(replace(random_problem(seed, barrier=True), pools=pools))
    ranges = [(n, count) for n, pool in enumerate(pools) for count in range(1, pool.num_gpus + 1)]
    columns = np.array(ranges).T
    expected = [bounds.shares(*each) for each in ranges]
    assert bounds.shares_of(*columns).tolist() == [list(each) for each in expected]


def test_roles_that_are_alike_are_priced_alike_and_apart() -> None:
    """A pin that changes nothing makes a role unlike the others, and it is priced by itself."""
    spec = small_job("ppo")
    job = resolve(spec)
    shared = price_candidates(job)
    apart = spec.model_copy(
        update={
            "constraints": spec.constraints.model_copy(
                update={"pools": {"reward": job.pools[0].name}}
            )
        }
    )
    alone = price_candidates(resolve(apart))
    assert shared.num_priced == alone.num_priced
    for one, other in zip(shared.calls, alone.calls, strict=True):
        assert (one.call, one.copy) == (other.call, other.copy)
        assert np.array_equal(one.seconds, other.seconds)
        assert np.array_equal(one.transient_bytes, other.transient_bytes)


def test_mixed_instances_repeat() -> None:
    assert drawn(0, 3) == drawn(0, 3)
    assert drawn(0, 3) != drawn(1, 3)


def test_a_stopped_benchmark_knows_what_it_has(tmp_path: Path) -> None:
    """Lines of another seed or budget are other instances."""
    file = tmp_path / "mixed.jsonl"
    assert known(file, 0, 120.0) == {}
    lines = [
        {"seed": seed, "number": number, "budget": budget}
        for seed, number, budget in ((0, 0, 120.0), (0, 2, 120.0), (1, 1, 120.0), (0, 1, 3.0))
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sorted(known(file, 0, 120.0)) == [0, 2]
