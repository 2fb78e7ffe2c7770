"""CP-SAT against brute force on random small problems: the same optimum, the same infeasibility."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from automap.planner.layout import RangeRelation
from automap.planner.search.model.problem import (
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    PoolSlice,
    Problem,
)
from automap.planner.search.model.pruning import prune
from automap.planner.search.model.solve import Limits, minimise_period
from automap.planner.units import MIB
from tests.helpers.seeds import seeds
from tests.planner.search import oracle
from tests.planner.search.instances import random_problem, streamed_problem, tailed_problem

pytestmark = pytest.mark.thorough

LIMITS = Limits(5.0, seed=1)
Made = Callable[..., Problem]
CUTOFF = {True: 60.0, False: 12.0}


def solved(problem: Problem) -> float | None:
    outcome = minimise_period(problem, limits=LIMITS, cutoff_seconds=CUTOFF[problem.barrier])
    assert outcome.is_proven
    if outcome.solution is None:
        return None
    assert oracle.fits(problem, outcome.solution.assignment)
    period = outcome.solution.timing.period
    assert outcome.lower_bound == pytest.approx(period, abs=2e-5)
    return period


def pruned_and_solved(problem: Problem, upper: float | None) -> float | None:
    pruned = prune(problem, upper_bound_seconds=upper)
    if pruned.hopeless:
        return None
    outcome = minimise_period(pruned.problem, limits=LIMITS, cutoff_seconds=CUTOFF[problem.barrier])
    assert outcome.is_proven
    if outcome.solution is None:
        return None
    assert oracle.fits(problem, pruned.original(outcome.solution.assignment))
    return outcome.solution.timing.period


@pytest.mark.parametrize("seed", seeds(range(200)))
def test_barrier_optimum_equals_brute_force(seed: int) -> None:
    problem = random_problem(seed, barrier=True)
    expected = oracle.best_period(problem, longest=60)
    assert solved(problem) == (None if expected is None else pytest.approx(expected))
    assert pruned_and_solved(problem, None) == pytest.approx(expected)
    if expected is not None:
        assert pruned_and_solved(problem, expected) == pytest.approx(expected)
        shorter = minimise_period(problem, limits=LIMITS, cutoff_seconds=expected - 0.5)
        assert shorter.is_proven
        assert shorter.solution is None


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("seed", seeds(range(12)))
def test_a_cutoff_far_above_the_period_hides_nothing(seed: int, barrier: bool) -> None:
    problem = random_problem(seed, barrier=barrier)
    near, far = (
        minimise_period(problem, limits=LIMITS, cutoff_seconds=cutoff)
        for cutoff in (CUTOFF[barrier], 2e9)
    )
    assert far.is_proven
    assert (near.solution is None) == (far.solution is None)
    if near.solution is not None and far.solution is not None:
        assert far.solution.timing.period == pytest.approx(near.solution.timing.period)
        assert far.lower_bound == pytest.approx(near.lower_bound, abs=2e-5)


def on_any_gpus(seed: int) -> Problem:
    """A random problem whose ranges may begin at every GPU: each is a node of its own."""
    problem = random_problem(seed, barrier=True)
    pools = tuple(replace(pool, gpus_per_node=1) for pool in problem.pools)
    return replace(problem, pools=pools)


@pytest.mark.parametrize("relation", ["nested", "equal"])
@pytest.mark.parametrize("seed", seeds(range(100)))
def test_optimum_where_ranges_are_related_equals_brute_force(
    seed: int, relation: RangeRelation
) -> None:
    problem = replace(on_any_gpus(seed), ranges=relation)
    expected = oracle.best_period(problem, longest=60)
    assert solved(problem) == (None if expected is None else pytest.approx(expected))
    assert pruned_and_solved(problem, expected) == pytest.approx(expected)


@pytest.mark.parametrize(("relation", "seconds"), [("any", 3), ("nested", 4), ("equal", None)])
def test_a_range_across_the_end_of_another_is_ruled_out(
    relation: RangeRelation, seconds: int | None
) -> None:
    """Two models of two GPUs fill the pool side by side; the third, of three, lies across one."""
    sizes = (3, 2, 2)
    copies = tuple(
        CopyChoice(f"m{n}", f"m{n}", None, (CopyOption(0, size, 0, 0, 0.0, 0),))
        for n, size in enumerate(sizes)
    )
    calls = tuple(
        CallChoice(f"call {n}", (CallOption(n, 0, 2.0 if n == 0 else 1.0, 0, 0),)) for n in range(3)
    )
    pool = PoolSlice("pool", 0, 4, 1, MIB, MIB, 0.0)
    problem = Problem((pool,), copies, calls, (), ranges=relation)
    assert oracle.best_period(problem, longest=60) == seconds
    assert solved(problem) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("seed", seeds(range(100)))
def test_cyclic_optimum_is_not_beaten_by_brute_force(seed: int) -> None:
    """Whole periods are the oracle's; the search may find a shorter one between two of them."""
    problem = random_problem(1000 + seed, barrier=False)
    expected = oracle.best_period(problem, longest=12)
    found = solved(problem)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert expected - 1 < found <= expected + 1e-5
    assert pruned_and_solved(problem, None) == pytest.approx(found, abs=2e-5)
    assert pruned_and_solved(problem, found + 1e-5) == pytest.approx(found, abs=2e-5)


@pytest.mark.parametrize("made", [streamed_problem, tailed_problem])
@pytest.mark.parametrize("seed", seeds(range(40)))
def test_streamed_optimum_equals_brute_force(seed: int, made: Made) -> None:
    problem = made(seed, barrier=True)
    expected = oracle.best_period(problem, longest=60)
    assert solved(problem) == (None if expected is None else pytest.approx(expected))
    assert pruned_and_solved(problem, None) == pytest.approx(expected)
    if expected is not None:
        assert pruned_and_solved(problem, expected) == pytest.approx(expected)


@pytest.mark.parametrize("made", [streamed_problem, tailed_problem])
@pytest.mark.parametrize("seed", range(20))
def test_streamed_cycles_are_not_beaten_by_brute_force(seed: int, made: Made) -> None:
    problem = made(1000 + seed, barrier=False)
    expected = oracle.best_period(problem, longest=12)
    found = solved(problem)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert expected - 1 < found <= expected + 1e-5
    assert pruned_and_solved(problem, None) == pytest.approx(found, abs=2e-5)
    assert pruned_and_solved(problem, found + 1e-5) == pytest.approx(found, abs=2e-5)


def test_streaming_shortens_some_of_these_problems() -> None:
    """Otherwise the two tests above would say nothing of it."""
    shorter = 0
    for seed in range(20):
        streamed = streamed_problem(seed, barrier=True)
        edges = tuple(replace(edge, chunks=0) for edge in streamed.precedences)
        found, whole = solved(streamed), solved(replace(streamed, precedences=edges))
        assert (found is None) == (whole is None)
        if found is not None and whole is not None:
            assert found <= whole + 1e-5
            shorter += found < whole - 0.5
    assert shorter >= 3


@pytest.mark.parametrize("seed", [6, 37, 40, 50])
def test_tails_shorten_some_of_these_problems(seed: int) -> None:
    tailed = tailed_problem(seed, barrier=True)
    first = tailed.calls[0]
    kept = tuple(option for option in first.options if option.tail is None)
    calls = (replace(first, options=kept), *tailed.calls[1:])
    found, whole = solved(tailed), solved(replace(tailed, calls=calls))
    assert found is not None
    assert whole is not None
    assert found < whole - 0.5
