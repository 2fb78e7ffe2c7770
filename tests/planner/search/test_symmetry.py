"""Identical copies: found in general, ordered in the search, and the optimum stays what it was."""

from dataclasses import replace

import pytest

from automap.planner.search.decomposition import race
from automap.planner.search.decomposition.symmetry import Interchange, interchanges
from automap.planner.search.model.problem import (
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    Precedence,
    Problem,
)
from automap.planner.search.search import solve
from automap.planner.search.space.rows import all_rows
from tests.planner.search import oracle
from tests.planner.search.instances import random_problem
from tests.planner.search.test_search_sizes import LIMITS, assert_sound, proven, space_of


def with_twin(problem: Problem) -> Problem:
    """One more model like the second, with calls and edges like its own."""
    new = len(problem.copies)
    copies = (*problem.copies, replace(problem.copies[1], id="twin", role="twin"))
    calls, edges = list(problem.calls), list(problem.precedences)
    for number, call in enumerate(problem.calls):
        if {option.copy for option in call.options} != {1}:
            continue
        options = tuple(replace(option, copy=new) for option in call.options)
        edges += [replace(e, target=len(calls)) for e in problem.precedences if e.target == number]
        edges += [replace(e, source=len(calls)) for e in problem.precedences if e.source == number]
        calls.append(replace(call, id=f"twin.{call.id}", options=options))
    return replace(problem, copies=copies, calls=tuple(calls), precedences=tuple(edges))


def twin_problem(seed: int) -> Problem | None:
    """A random problem with two identical copies; None where it has no second home, or rules."""
    problem = random_problem(seed, barrier=True)
    if len(problem.copies) != 2 or problem.syncs or problem.colocate or problem.separate:
        return None
    return with_twin(problem)


SEEDS = [seed for seed in range(400) if twin_problem(seed) is not None][:40]


def found_in(problem: Problem) -> list[Interchange]:
    space = space_of(problem)
    return interchanges(space, all_rows(space.tables))


def test_pairs_of_identical_models_move_together() -> None:
    """Two agents, each with a model that trains and one that scores it: neither moves alone."""
    option = (CopyOption(0, 2, 0, 0, 0.0, 0),)
    copies = tuple(CopyChoice(name, name, None, option) for name in ("a", "ra", "b", "rb"))
    seconds = (3.0, 2.0, 3.0, 2.0)
    calls = tuple(
        CallChoice(f"c{copy}", (CallOption(copy, 0, time, 0, 0),))
        for copy, time in enumerate(seconds)
    )
    pools = random_problem(0, barrier=True).pools[:1]
    problem = Problem(pools, copies, calls, (Precedence(0, 1, 0), Precedence(2, 3, 0)))
    assert found_in(problem) == [Interchange((2, 3, 0, 1))]
    crossed = replace(problem, precedences=(Precedence(0, 1, 0), Precedence(2, 3, 1)))
    assert found_in(crossed) == []
    slower = replace(calls[3], options=(replace(calls[3].options[0], seconds=2.5),))
    assert found_in(replace(problem, calls=(*calls[:3], slower))) == []
    assert found_in(replace(problem, separate=((1, 3),))) == [Interchange((2, 3, 0, 1))]
    assert found_in(replace(problem, separate=((1, 2),))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimum_with_identical_copies_equals_brute_force(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without order among them, and with memory counted from the first round on."""
    problem = twin_problem(seed)
    assert problem is not None
    assert Interchange((0, 2, 1)) in found_in(problem)
    expected = oracle.best_period(problem, longest=80)
    monkeypatch.setattr(race, "ROUNDS_WITHOUT_MEMORY", seed % 3)
    monkeypatch.setattr(race, "COARSE_SECONDS_PER_OPTION", 0.0)
    ordered = proven(problem)
    monkeypatch.setattr(race, "interchanges", lambda *_: [])
    free = proven(problem)
    for found in (ordered, free):
        if expected is None:
            assert found.solution is None
            continue
        assert found.solution is not None
        assert found.solution.timing.period == pytest.approx(expected)
        assert found.lower_bound == pytest.approx(expected)
        assert_sound(problem, found.solution)


@pytest.mark.parametrize("seed", range(60))
def test_the_optimum_with_coarse_memory_equals_brute_force(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(seed, barrier=True)
    expected = oracle.best_period(problem, longest=80)
    monkeypatch.setattr(race, "ROUNDS_WITHOUT_MEMORY", seed % 2)
    monkeypatch.setattr(race, "COARSE_SECONDS_PER_OPTION", 0.0)
    found = proven(problem)
    if expected is None:
        assert found.solution is None
    else:
        assert found.solution is not None
        assert found.solution.timing.period == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(40))
def test_a_search_within_a_gap_says_what_is_left_out(seed: int) -> None:
    """The plan may be longer by the gap, and the bound is never above the optimum."""
    problem = random_problem(seed, barrier=True)
    expected = oracle.best_period(problem, longest=80)
    limits = replace(LIMITS, gap=0.3)
    found = solve(space_of(problem), limits=limits, incumbent=None)
    assert found.is_proven
    if expected is None:
        assert found.solution is None
        return
    assert found.solution is not None
    period = found.solution.timing.period
    assert found.lower_bound <= expected + 1e-6
    assert period * (1 - limits.gap) <= found.lower_bound + 1e-6
    assert_sound(problem, found.solution)
