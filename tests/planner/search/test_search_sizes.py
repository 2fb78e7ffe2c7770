"""The search over sizes against brute force: tables from random problems, the same optimum.

`test_search_oracle` solves whole problems; here the same problems go through the tables, the
sets of shadows, the master problem and its cuts, the tie-break, and the objectives.
"""

import random
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from automap.planner.layout import GenerationLayouts, Layouts
from automap.planner.search import search
from automap.planner.search.candidates.tables import CallTable, CopyTable, Tables
from automap.planner.search.model.problem import (
    Assignment,
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    PoolSlice,
    Precedence,
    Problem,
    WeightSyncChoice,
    copy_range,
)
from automap.planner.search.model.solve import MOST_TICKS, Limits, minimise_period
from automap.planner.search.objectives import (
    Cheapest,
    FewestGpus,
    RunPrice,
    SearchResult,
    paid_gpus,
)
from automap.planner.search.search import best_on_nodes, break_ties, solve
from automap.planner.search.space.rows import Selected
from automap.planner.search.space.schedules import schedule
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies import STARTS
from automap.planner.search.strategies.attempts import attempted
from tests.helpers.seeds import seeds
from tests.planner.search import oracle
from tests.planner.search.instances import MIB, random_problem

pytestmark = pytest.mark.thorough

LIMITS = Limits(20.0, seed=1)
CYCLIC_LIMITS = Limits(0.5, seed=1)
LONGEST = {True: 80, False: 14}


def tables_of(problem: Problem) -> Tables:
    """Tables whose rows are the problem's options, in their order."""
    copies = []
    for copy in problem.copies:
        ones = np.ones(len(copy.options), dtype=np.int64)
        counts = np.array([o.num_gpus for o in copy.options], dtype=np.int64)
        copies.append(
            CopyTable(
                id=copy.id,
                role=copy.role,
                shadow_of=copy.shadow_of,
                pool=np.array([o.pool for o in copy.options], dtype=np.int64),
                layouts=Layouts(counts, ones, ones, ones, ones, counts, ones, ones, 0 * ones),
                resident_bytes=np.array([o.resident_bytes for o in copy.options], dtype=np.int64),
                host_bytes=np.array([o.host_bytes for o in copy.options], dtype=np.int64),
                sync_seconds=np.array([o.sync_seconds for o in copy.options]),
            )
        )
    calls = []
    for number, call in enumerate(problem.calls):
        for index in sorted({option.copy for option in call.options}):
            mine = [option for option in call.options if option.copy == index]
            zero = np.zeros(len(mine), dtype=np.int64)
            calls.append(
                CallTable(
                    call=number,
                    copy=index,
                    copy_row=np.array([o.copy_option for o in mine], dtype=np.int64),
                    seconds=np.array([o.seconds for o in mine]),
                    transient_bytes=np.array([o.transient_bytes for o in mine], dtype=np.int64),
                    micro_batch_size=zero,
                    recompute=zero,
                    kv_cache_bytes=zero,
                    engine=GenerationLayouts(zero, zero, zero, zero),
                )
            )
    flow = tuple(
        SimpleNamespace(id=call.id, model=call.id if call.options else None)
        for call in problem.calls
    )
    return Tables(copies, calls, flow, sum(map(len, calls)))


def structure_of(problem: Problem) -> Problem:
    """The problem without options."""
    return replace(
        problem,
        copies=tuple(CopyChoice(c.id, c.role, c.shadow_of, ()) for c in problem.copies),
        calls=tuple(CallChoice(c.id, (), c.fixed_seconds) for c in problem.calls),
    )


def space_of(problem: Problem) -> SearchSpace:
    return SearchSpace.whole(tables_of(problem), structure_of(problem))


def assignment_of(problem: Problem, selected: Selected) -> Assignment:
    """A selection in the terms of the problem that the tables came from."""
    calls = []
    for number, chosen in enumerate(selected.call_rows):
        if chosen is None:
            calls.append(None)
            continue
        copy, row = chosen
        mine = [j for j, o in enumerate(problem.calls[number].options) if o.copy == copy]
        calls.append(mine[row])
    return Assignment(selected.copy_rows, selected.first_gpus, tuple(calls))


def assert_sound(problem: Problem, selected: Selected) -> None:
    """It is a placement of the problem, fits, and takes as long as it says."""
    assignment = assignment_of(problem, selected)
    assert assignment in set(oracle.assignments(problem))
    assert oracle.fits(problem, assignment)
    longest = 10 * LONGEST[problem.barrier]
    period = oracle.least_period(problem, assignment, limit=longest)
    assert period is not None
    if problem.barrier:
        assert selected.timing.period >= period - 1e-6
    else:
        assert period - 1 < selected.timing.period + 1e-6


def with_second_rollout(problem: Problem, seed: int) -> Problem:
    """One more call like call 0, as ReMax's greedy rollout: it waits for nothing either."""
    draw = random.Random(seed)
    longest = 9 if problem.barrier else 3
    options = tuple(
        replace(option, seconds=float(draw.randint(1, longest)))
        for option in problem.calls[0].options
    )
    new, last = len(problem.calls), len(problem.calls) - 1
    train = next(e.source for e in problem.precedences if e.distance > 0)
    distance = next(e.distance for e in problem.precedences if e.distance > 0)
    assert train == last
    return replace(
        problem,
        calls=(*problem.calls, CallChoice("m0.generate.greedy", options)),
        precedences=(
            *problem.precedences,
            Precedence(new, train, 0),
            Precedence(train, new, distance),
        ),
    )


def with_real_syncs(problem: Problem) -> Problem:
    """No sync takes 0 s, as no priced one does: the solver's rectangles have a length."""
    copies = []
    for copy in problem.copies:
        options = tuple(replace(o, sync_seconds=max(o.sync_seconds, 1.0)) for o in copy.options)
        copies.append(replace(copy, options=options))
    return replace(problem, copies=tuple(copies))


def instance(seed: int, *, barrier: bool) -> Problem:
    return with_real_syncs(random_problem(seed, barrier=barrier))


def seeds_with_a_shadow(seeds: range, *, barrier: bool) -> list[int]:
    return [seed for seed in seeds if random_problem(seed, barrier=barrier).syncs]


def proven(problem: Problem, **given: object) -> SearchResult:
    found = solve(space_of(problem), limits=LIMITS, incumbent=None, **given)
    assert found.is_proven
    return found


def check_barrier(problem: Problem) -> None:
    expected = oracle.best_period(problem, longest=LONGEST[True])
    found = proven(problem)
    if expected is None:
        assert found.solution is None
        return
    assert found.solution is not None
    assert found.solution.timing.period == pytest.approx(expected)
    assert found.lower_bound == pytest.approx(expected)
    assert_sound(problem, found.solution)
    exact = proven(problem, cutoff_seconds=float(expected))
    assert exact.solution is not None
    assert exact.solution.timing.period == pytest.approx(expected)
    assert proven(problem, cutoff_seconds=expected - 0.5).solution is None
    again = solve(space_of(problem), limits=LIMITS, incumbent=found.solution)
    assert again.is_proven
    assert again.solution == found.solution
    tied = break_ties(space_of(problem), found.solution, limits=LIMITS)
    assert tied.timing.period == pytest.approx(expected)
    assert_sound(problem, tied)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(200)))
def test_barrier_search_equals_brute_force(seed: int) -> None:
    check_barrier(instance(seed, barrier=True))


LONG = (70, 108, 230, 249)
"""Seeds whose brute force takes many seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(seeds_with_a_shadow(range(300), barrier=True), slow=LONG))
def test_barrier_search_with_two_rollouts_equals_brute_force(seed: int) -> None:
    check_barrier(with_second_rollout(instance(seed, barrier=True), seed))


def test_a_tie_is_no_microsecond_longer() -> None:
    """Half the GPUs would do for one microsecond more, which is not the proven period."""
    pool = PoolSlice("p", 0, 4, 4, 8 * MIB, 8 * MIB, 1.0)
    sizes = tuple(CopyOption(0, num_gpus, MIB, 0, 0.0, row) for row, num_gpus in enumerate((4, 2)))
    copies = tuple(CopyChoice(name, name, None, sizes) for name in ("m0", "m1"))
    calls = tuple(
        CallChoice(
            f"m{copy}.train",
            tuple(CallOption(copy, row, s, 0, row) for row, s in enumerate((10.0, slow))),
        )
        for copy, slow in ((0, 10.0), (1, 10.000001))
    )
    # No bound sees the pair, so pruning keeps the smaller range.
    problem = Problem((pool,), copies, calls, (), colocate=((0, 1),))
    found = proven(problem)
    assert found.solution is not None
    assert found.solution.timing.period == 20.0
    assert break_ties(space_of(problem), found.solution, limits=LIMITS).timing.period == 20.0


def test_a_fixed_placement_is_scheduled_at_once() -> None:
    """Where only bounds of start times tell an order, this takes 90,000 conflicts and more."""
    pools = tuple(
        PoolSlice(f"p{i}", first, count, node, 18 * MIB, 7 * MIB, 1.0)
        for i, (first, count, node) in enumerate(((0, 4, 2), (4, 2, 2), (6, 4, 4)))
    )
    lays = ((None, 1, 1, 1.0), (None, 0, 1, 2.0), (1, 2, 4, 2.0))
    copies = tuple(
        CopyChoice(f"m{i}", f"m{i}", home, (CopyOption(pool, count, 0, 0, sync, 0),))
        for i, (home, pool, count, sync) in enumerate(lays)
    )
    runs = ((0, 5.0), (1, 4.0), (2, 1.0), (1, 1.0), (0, 3.0), (1, 3.0))
    calls = tuple(
        CallChoice(f"c{i}", (CallOption(copy, 0, seconds, 0, 0),))
        for i, (copy, seconds) in enumerate(runs)
    )
    before = ((0, 3), (1, 3), (1, 4), (2, 3), (3, 4), (3, 5))
    edges = tuple(Precedence(*edge, 0) for edge in before)
    problem = Problem(
        pools,
        copies,
        calls,
        (*edges, Precedence(5, 1, 1), Precedence(5, 2, 1)),
        (WeightSyncChoice(1, 2, 5, 1, 0),),
    )
    fixed = Assignment((0, 0, 0), (4, 2, 6), (0,) * 6)
    solution = schedule(problem, fixed, limits=Limits(0.05))
    assert solution is not None
    assert solution.timing.period == oracle.least_period(problem, fixed, limit=30)


def check_cyclic(problem: Problem) -> None:
    """Cyclic proofs take long even here: what the limit cuts must still be sound."""
    expected = oracle.best_period(problem, longest=LONGEST[False])
    space = space_of(problem)
    found = solve(space, limits=CYCLIC_LIMITS, incumbent=None)
    if expected is None:
        assert found.solution is None
        return
    assert found.lower_bound <= expected
    if found.solution is None:
        assert not found.is_proven
        return
    period = found.solution.timing.period
    assert found.lower_bound <= period
    assert expected - 1 < period
    assert_sound(problem, found.solution)
    if found.is_proven:
        assert period <= expected + 1e-5
        tied = break_ties(space, found.solution, limits=CYCLIC_LIMITS)
        assert tied.timing.period <= period * (1 + 1e-8)
        assert_sound(problem, tied)


@pytest.mark.parametrize("seed", seeds(range(1000, 1100)))
def test_cyclic_search_is_not_beaten_by_brute_force(seed: int) -> None:
    check_cyclic(instance(seed, barrier=False))


@pytest.mark.parametrize("seed", seeds(seeds_with_a_shadow(range(1000, 1150), barrier=False)))
def test_cyclic_search_with_two_rollouts_is_not_beaten_by_brute_force(seed: int) -> None:
    check_cyclic(with_second_rollout(instance(seed, barrier=False), seed))


def touched(problem: Problem, assignment: Assignment) -> tuple[int, ...]:
    nodes: list[set[int]] = [set() for _ in problem.pools]
    for index in range(len(problem.copies)):
        span = copy_range(problem, assignment, index)
        if span is None:
            continue
        pool = problem.copies[index].options[assignment.copy_options[index]].pool
        first = problem.pools[pool].first_gpu
        for gpu in range(span.first, span.end):
            nodes[pool].add((gpu - first) // problem.pools[pool].gpus_per_node)
    return tuple(len(n) * p.gpus_per_node for n, p in zip(nodes, problem.pools, strict=True))


def priced(problem: Problem, seed: int) -> Problem:
    """Pools with prices of their own."""
    draw = random.Random(seed)
    pools = tuple(
        replace(p, price_per_gpu_second=draw.choice([1.0, 2.0, 3.0])) for p in problem.pools
    )
    return replace(problem, pools=pools)


def every_placement(problem: Problem):
    """(period, sizes touched) of every placement that fits."""
    for assignment in oracle.assignments(problem):
        if oracle.fits(problem, assignment):
            period = oracle.least_period(problem, assignment, limit=LONGEST[problem.barrier])
            if period is not None:
                yield period, touched(problem, assignment)


@pytest.mark.parametrize("seed", seeds(range(60)))
def test_price_and_gpus_equal_brute_force(seed: int) -> None:
    problem = priced(instance(seed, barrier=True), seed)
    space = space_of(problem)
    every = list(every_placement(problem))
    least_price = min((p * space.price_per_second(s) for p, s in every), default=inf)
    best = best_on_nodes(Cheapest(RunPrice(space, 1, 0.0), [], LIMITS), [])
    assert best.is_proven
    assert best.objective_value == pytest.approx(least_price)
    assert best.lower_bound == pytest.approx(least_price)
    if best.solution is not None:
        assert_sound(problem, best.solution)
    fastest = min((p for p, _ in every), default=0)
    for target in (None, float(fastest), fastest + 2.0):
        counts = [paid_gpus(problem, s) for p, s in every if target is None or p <= target]
        fewest = best_on_nodes(FewestGpus(space, [], LIMITS, target), [])
        assert fewest.is_proven
        assert fewest.objective_value == min(counts, default=inf)
        if fewest.solution is not None:
            assert sum(space.touched_gpus(fewest.solution)) == fewest.objective_value
            if target is not None:
                assert fewest.solution.timing.period <= target + 1e-9


@pytest.mark.slow
def test_the_work_of_all_numbers_of_nodes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0.0

    def solve_and_count(*args: Any, **kwargs: Any) -> SearchResult:
        nonlocal counted
        found = replace(solve(*args, **kwargs), deterministic_seconds=0.25)
        counted += 0.25
        return found

    monkeypatch.setattr(search, "solve", solve_and_count)
    several = 0
    for seed in range(20):
        problem = priced(instance(seed, barrier=True), seed)
        space = space_of(problem)
        fastest = min((p for p, _ in every_placement(problem)), default=0)
        for objective in (
            FewestGpus(space, [], LIMITS, float(fastest)),
            Cheapest(RunPrice(space, 1, 0.0), [], LIMITS),
        ):
            counted = 0.0
            assert best_on_nodes(objective, []).deterministic_seconds == counted
            several += counted > 0.25
    assert several


@pytest.mark.parametrize("seed", range(20))
def test_nodes_whose_search_was_cut_are_searched_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first search of all ends at once: a second one on its nodes has what others leave."""
    searches: list[SearchSpace] = []

    def cut_at_first(space: SearchSpace, *, limits: Limits, **kwargs: Any) -> SearchResult:
        searches.append(space)
        work = limits.deterministic_seconds if len(searches) > 1 else 0.0
        return solve(space, limits=replace(limits, deterministic_seconds=work), **kwargs)

    monkeypatch.setattr(search, "solve", cut_at_first)
    problem = priced(instance(seed, barrier=True), seed)
    space = space_of(problem)
    every = list(every_placement(problem))
    fastest = float(min((p for p, _ in every), default=0))
    prices = [p * space.price_per_second(s) for p, s in every]
    cheapest = best_on_nodes(Cheapest(RunPrice(space, 1, 0.0), [], LIMITS), [])
    assert cheapest.is_proven
    assert cheapest.objective_value == pytest.approx(min(prices, default=inf))
    searches.clear()
    fewest = best_on_nodes(FewestGpus(space, [], LIMITS, fastest), [])
    counts = [paid_gpus(problem, s) for p, s in every if p <= fastest]
    assert fewest.objective_value == min(counts, default=inf)


@pytest.mark.parametrize("seed", range(20))
def test_a_search_without_time_keeps_a_strategy_that_meets_the_target(seed: int) -> None:
    problem = priced(instance(seed, barrier=True), seed)
    space, names = space_of(problem), STARTS
    attempts = attempted(space, names, LIMITS)
    periods = [a.selected.timing.period for a in attempts if a.selected is not None]
    none = Limits(0.0, seed=1)
    for target in (None, *periods):
        fewest = best_on_nodes(FewestGpus(space, attempts, none, target), names)
        if not periods:
            assert fewest.solution is None
            continue
        assert fewest.solution is not None
        assert fewest.lower_bound <= fewest.objective_value
        if target is not None:
            assert fewest.solution.timing.period <= target
    best = best_on_nodes(Cheapest(RunPrice(space, 1, 0.0), attempts, none), names)
    assert (best.solution is None) == (not periods)


def test_coarse_ticks_exclude_and_bound_no_more_than_their_seconds() -> None:
    """Beyond 10^6 s a tick is more than a microsecond, and every call may be one tick too long."""
    seconds = [1e8 + 1e-5, 1e8 + 1e-5, 1e8 + 1e-5]
    copies = (CopyChoice("m", "m", None, (CopyOption(0, 1, MIB, 0, 0.0, 0),)),)
    calls = tuple(
        CallChoice(f"m.{n}", (CallOption(0, 0, each, MIB, 0),)) for n, each in enumerate(seconds)
    )
    edges = (Precedence(0, 1, 0), Precedence(1, 2, 0))
    pools = (PoolSlice("p", 0, 1, 1, 8 * MIB, 8 * MIB, 1.0),)
    problem = Problem(pools, copies, calls, edges)
    period = sum(seconds)
    shorter = minimise_period(problem, limits=LIMITS, cutoff_seconds=period * 0.999)
    assert shorter.is_proven
    assert shorter.solution is None
    outcome = minimise_period(problem, limits=LIMITS, cutoff_seconds=period)
    assert outcome.solution is not None or outcome.lower_bound < period
    found = solve(space_of(problem), limits=LIMITS, incumbent=None)
    assert found.solution is not None
    assert found.solution.timing.period == pytest.approx(period)
    tick = period / MOST_TICKS
    assert period - 100 * tick <= found.lower_bound <= period - tick
