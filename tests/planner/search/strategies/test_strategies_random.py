"""Strategies on random problems: valid, never better than the optimum, equal to enumeration."""

import itertools
import re

import pytest

from automap.planner.search.model.problem import Problem
from automap.planner.search.model.solve import Limits
from automap.planner.search.strategies import (
    STARTS,
    STRATEGIES,
    DoesNotFit,
    Placed,
    auto_mapping,
    fastest_together,
    fixed,
)
from automap.planner.search.strategies.auto_mapping import _partitions
from tests.helpers.seeds import seeds
from tests.planner.search import oracle
from tests.planner.search.instances import random_problem
from tests.planner.search.strategies.strategy_problems import (
    call_kind,
    check_valid,
    outcome,
    rich_problem,
    stage_cost,
)

pytestmark = pytest.mark.thorough

LIMITS = Limits.within(0.02, seed=0)
"""200 steps of the Markov chain."""


@pytest.mark.parametrize("seed", seeds(range(120)))
def test_random_problems_get_valid_placements_that_never_beat_the_optimum(seed: int) -> None:
    barrier = seed < 90
    problem = random_problem(seed, barrier=barrier)
    longest = 60 if barrier else 12
    best = oracle.best_period(problem, longest=longest)
    for name in STRATEGIES:
        result = outcome(problem, name, LIMITS)
        if isinstance(result, DoesNotFit):
            assert re.search(r"\d", result.reason), (name, result.reason)
            continue
        check_valid(problem, result)
        if name in STARTS:
            assert not any(
                option is not None and copy.shadow_of is not None
                for copy, option in zip(problem.copies, result.assignment.copy_options, strict=True)
            )
        period = oracle.least_period(problem, result.assignment, limit=longest)
        assert best is not None
        assert period is None or period >= best


@pytest.mark.slow
def test_random_problems_are_placed_often_enough_to_mean_something() -> None:
    placed = dict.fromkeys(STRATEGIES, 0)
    for seed in [*range(30), *range(60, 120)]:
        problem = random_problem(seed, barrier=seed < 30)
        for name in STRATEGIES:
            result = outcome(problem, name, LIMITS)
            placed[name] += isinstance(result, Placed)
    assert min(placed.values()) >= 5, placed
    assert all(placed[name] >= 10 for name in STARTS), placed


@pytest.mark.parametrize("mib", [400, 60, 45])
@pytest.mark.parametrize("seed", range(25))
def test_hybridflow_against_enumeration(seed: int, mib: int) -> None:
    """Every partition, every size, every strategy per set: the least d_cost, the same feasibility.

    With ample memory every model runs its best strategy, so the least cost is reached exactly.
    """
    problem = rich_problem(seed, mib=mib)
    expected = enumerated(problem)
    result = outcome(problem, "hybridflow")
    if expected is None:
        assert isinstance(result, DoesNotFit)
        return
    assert isinstance(result, Placed)
    check_valid(problem, result)
    assert result.claimed_seconds == pytest.approx(stage_cost(problem, result.assignment))
    if mib == 400:
        assert result.claimed_seconds == pytest.approx(expected)
    else:
        assert result.claimed_seconds >= expected - 1e-9


def enumerated(problem: Problem) -> float | None:
    """Least d_cost over partitions and sizes, sets taking their least sum of seconds."""
    best = None
    homes = list(range(len(problem.copies)))
    for partition in _partitions([(home,) for home in homes]):
        for sizes in itertools.product((1, 2, 4), repeat=len(partition)):
            if sum(sizes) > problem.num_gpus:
                continue
            chosen_sets = [
                brute_together(problem, list(members), 0, size)
                for members, size in zip(partition, sizes, strict=True)
            ]
            if any(found is None for found in chosen_sets):
                continue
            cost = sum(
                max(
                    sum(option.seconds for call, option in calls if call_kind(call) == stage)
                    for _, calls in chosen_sets
                )
                for stage in range(3)
            )
            best = cost if best is None else min(best, cost)
    return best


def brute_together(problem: Problem, copies: list[int], pool: int, count: int):
    """(least sum of seconds, its calls) over every combination of layouts on one range."""
    best = None
    capacity, host = problem.pools[pool].capacity_bytes, problem.pools[pool].host_bytes
    per_copy = [
        [
            (index, option)
            for index, option in enumerate(problem.copies[copy].options)
            if option.pool == pool and option.num_gpus == count
        ]
        for copy in copies
    ]
    for combination in itertools.product(*per_copy):
        if sum(option.host_bytes for _, option in combination) > host:
            continue
        free = capacity - sum(option.resident_bytes for _, option in combination)
        taken = {copy: index for copy, (index, _) in zip(copies, combination, strict=True)}
        calls = []
        for choice in problem.calls:
            usable = [o for o in choice.options if taken.get(o.copy) == o.copy_option]
            if any(o.copy in taken for o in choice.options):
                fitting = [o for o in usable if o.transient_bytes <= free]
                calls.append((choice.id, min(fitting, key=lambda o: o.seconds, default=None)))
        if any(option is None for _, option in calls) or free < 0:
            continue
        seconds = sum(option.seconds for _, option in calls)
        if best is None or seconds < best[0]:
            best = (seconds, calls)
    return best


@pytest.mark.parametrize("mib", [400, 60, 45, 38])
@pytest.mark.parametrize("seed", seeds(range(40)))
def test_fastest_together_against_enumeration(seed: int, mib: int) -> None:
    problem = rich_problem(seed, mib=mib)
    for count in (1, 2, 4):
        expected = brute_together(problem, [0, 1, 2], 0, count)
        found = fastest_together(problem, [0, 1, 2], 0, count)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert found.seconds == pytest.approx(expected[0])
            chosen_seconds = [
                problem.calls[c].options[o].seconds for c, o in found.call_options.items()
            ]
            assert found.seconds == pytest.approx(sum(chosen_seconds))


def test_limit_on_solved_sets_still_finds_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_mapping, "MOST_SETS_SOLVED", 0)
    for seed in range(20):
        problem = rich_problem(seed, mib=60)
        expected = enumerated(problem)
        result = outcome(problem, "hybridflow")
        assert isinstance(result, Placed) == (expected is not None)


@pytest.mark.parametrize("seed", seeds(range(40)))
def test_ranges_that_a_fixed_strategy_skips_would_not_have_been_chosen(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [random_problem(seed, barrier=True), rich_problem(seed, mib=60)]
    names = ("colocate_all", "split")
    found = [outcome(problem, name) for problem in problems for name in names]
    monkeypatch.setattr(fixed, "_least_seconds", lambda *_: 0.0)
    every = [outcome(problem, name) for problem in problems for name in names]
    assert list(map(str, found)) == list(map(str, every))
