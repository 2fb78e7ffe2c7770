"""The linear relaxation: never above the optimum, above the bounds without a solver."""

import random
from collections.abc import Callable

import pytest

from automap.planner.search.many_models.linear_bound import relax
from automap.planner.search.many_models.linear_program import LinearProgram
from automap.planner.search.model.bounds import Bounds
from automap.planner.search.model.problem import (
    CallChoice,
    CallOption,
    CopyChoice,
    CopyOption,
    PoolSlice,
    Precedence,
    Problem,
)
from automap.planner.search.model.solve import Limits, minimise_period
from tests.planner.search import oracle
from tests.planner.search.instances import (
    agents_problem,
    random_problem,
    streamed_problem,
    tailed_problem,
)

Made = Callable[..., Problem]


@pytest.mark.parametrize("made", [random_problem, streamed_problem, tailed_problem])
@pytest.mark.parametrize("seed", range(60))
def test_no_brute_force_optimum_is_below_the_bound(seed: int, made: Made) -> None:
    problem = made(seed, barrier=True)
    optimum = oracle.best_period(problem, longest=60)
    for cutoff_seconds in (60.0, optimum):
        if optimum is not None:
            relaxation = relax(problem, cutoff_seconds=cutoff_seconds)
            assert relaxation.bound_seconds <= optimum * (1 + 1e-12)
            assert all(sum(shares) <= 1 + 1e-6 for shares in relaxation.shares)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_no_solution_of_many_calls_is_below_the_bound(seed: int) -> None:
    problem = agents_problem(seed)
    slowest = sum(max(o.seconds for o in call.options) for call in problem.calls) + 10.0
    found = minimise_period(problem, limits=Limits(0.3, 0), cutoff_seconds=slowest)
    assert found.solution is not None
    shortest = found.solution.timing.period
    for cutoff_seconds in (slowest, shortest):
        bound = relax(problem, cutoff_seconds=cutoff_seconds).bound_seconds
        assert 0.5 * shortest < bound <= shortest * (1 + 1e-9)


def fast_or_frugal() -> Problem:
    """Two calls, one after another beside a third: fast on all GPUs, or frugal on half."""
    sizes = ((4, 6.0), (2, 10.0))
    copies = tuple(
        CopyChoice(f"copy {c}", "", None, tuple(CopyOption(0, n, 0, 0, 0.0, c) for n, _ in sizes))
        for c in range(3)
    )
    calls = tuple(
        CallChoice(f"call {k}", tuple(CallOption(k, o, s, 0, o) for o, (_, s) in enumerate(sizes)))
        for k in range(3)
    )
    pool = PoolSlice("pool", 0, 4, 4, 2**30, 2**30, 0.0)
    return Problem((pool,), copies, calls, (Precedence(0, 1, 0),))


def test_speed_is_paid_for_with_gpu_seconds() -> None:
    """The bound that takes the least of both separately says 15; the truth is 16."""
    problem = fast_or_frugal()
    optimum = oracle.best_period(problem, longest=60)
    bounds = Bounds(problem)
    minima = [bounds.minimum(k, list(call.options)) for k, call in enumerate(problem.calls)]
    linear = relax(problem, cutoff_seconds=60.0).bound_seconds
    assert bounds.period(minima) + 0.4 < linear <= optimum == 16


@pytest.mark.parametrize("seed", range(20))
def test_wrong_dual_values_give_a_lower_bound_too(seed: int) -> None:
    draw, program = random.Random(seed), LinearProgram()
    period, *others = program.variables(4, 10.0)
    program.at_least({period: 1.0, **{each: -draw.random() for each in others}}, 1.0)
    program.at_least({others[0]: 1.0, others[1]: draw.random()}, draw.random())
    program.at_least(dict.fromkeys(others, 1.0), 1.0, equal=True)
    exact, values = program.solve()
    assert exact == pytest.approx(values[period], abs=1e-6)
    wrong = [draw.random(), draw.random(), draw.uniform(-1, 1)]
    assert program.bound(wrong) <= values[period] + 1e-6
