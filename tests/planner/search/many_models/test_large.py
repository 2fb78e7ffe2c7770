"""The start of jobs of many calls: real solutions, no shorter than the optimum or the bound."""

from dataclasses import replace

import numpy as np
import pytest

from automap.planner.search.many_models import neighbourhood
from automap.planner.search.many_models.linear_bound import relax
from automap.planner.search.many_models.list_schedules import shortest_list_schedule
from automap.planner.search.many_models.many_model_search import large_start
from automap.planner.search.many_models.neighbourhood import Structure, improved, shortest
from automap.planner.search.model.problem import Problem
from automap.planner.search.model.solve import Budget, Limits
from automap.planner.search.space.schedules import schedule
from tests.planner.search import oracle
from tests.planner.search.instances import agents_problem, random_problem
from tests.planner.search.test_search_sizes import space_of


@pytest.fixture(autouse=True)
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhood, "TRIES", 4)


def one_pool(seeds: range) -> list[tuple[Problem, int]]:
    found = []
    for seed in seeds:
        problem = random_problem(seed, barrier=True)
        if len(problem.pools) == 1 and not problem.colocate and not problem.separate:
            optimum = oracle.best_period(problem, longest=60)
            if optimum is not None:
                found.append((problem, optimum))
    return found


CASES = one_pool(range(24))


def test_what_starts_a_search_fits_and_is_no_shorter_than_the_optimum() -> None:
    started = 0
    for problem, optimum in CASES:
        space = space_of(problem)
        found = large_start(space, space.rows, limit_seconds=60.0, budget=Budget(Limits(1.0, 0)))
        if found is None:
            continue
        started += 1
        made, solution = found
        assert oracle.fits(made, solution.assignment)
        assert solution.timing.period >= optimum * (1 - 1e-9)
        again = schedule(made, solution.assignment, limits=Limits(5.0, 0))
        assert again is not None
        assert again.timing.period <= solution.timing.period * (1 + 1e-9)
    assert started >= 3


def test_a_structure_holds_its_own_solution_with_and_without_shadows() -> None:
    absent = 0
    for problem, _ in CASES:
        solution = shortest_list_schedule(problem, relax(problem, cutoff_seconds=60.0), seed=1)
        if solution is None:
            continue
        absent += None in solution.timing.sync_starts
        structure = Structure.of(problem, solution)
        again = shortest(
            problem,
            [(structure, set[str]())],
            cutoff_seconds=structure.period + 1e-3,
            budget=Budget(Limits(5.0, 0)),
            most_seconds=5.0,
        )
        # The list schedule leaves memory out, the structure does not.
        if oracle.fits(problem, solution.assignment):
            assert again is not None
            assert again.period <= structure.period * (1 + 1e-9)
    assert absent >= 1


def test_a_call_that_only_a_shadow_may_serve_runs_there() -> None:
    """Its home has no setting for it, so no draw leaves the shadow out."""
    looked_at = 0
    for seed in range(8):
        free = agents_problem(seed)
        calls = tuple(
            replace(call, options=tuple(o for o in call.options if o.copy == 5))
            if any(o.copy == 5 for o in call.options)
            else call
            for call in free.calls
        )
        problem = replace(free, calls=calls)
        for part in (problem, free):
            solution = shortest_list_schedule(part, relax(part, cutoff_seconds=500.0), seed=1)
            if solution is None:  # it looks at whole nodes of four alone
                continue
            looked_at += 1
            assert None not in solution.assignment.call_options
            assert oracle.fits(part, solution.assignment)
    assert looked_at >= 8


def test_neighbourhoods_never_lengthen_a_list_schedule() -> None:
    drawn = 0
    for problem, _ in CASES:
        relaxation = relax(problem, cutoff_seconds=60.0)
        solution = shortest_list_schedule(problem, relaxation, seed=1)
        if solution is None:
            continue
        drawn += 1
        assert np.isfinite(solution.timing.period)
        assert solution.timing.period >= relaxation.bound_seconds * (1 - 1e-9)
        before = Structure.of(problem, solution)
        budget = Budget(Limits(0.5, 0))
        found = improved(lambda _, same=problem: same, before, bound_seconds=0.0, budget=budget)
        periods = [each.period for each in found]
        assert periods == sorted(periods, reverse=True)
        assert periods[0] == before.period
        twice = shortest_list_schedule(problem, relaxation, seed=1)
        assert twice is not None
        assert twice.assignment == solution.assignment
    assert drawn >= 3
