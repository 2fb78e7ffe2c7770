"""Placements in one node of several have shorter weight syncs, wherever they are searched."""

from dataclasses import replace

import pytest

from automap.planner.assembly.given import scheduled
from automap.planner.explanation.locating import locate
from automap.planner.explanation.solving import placement_key
from automap.planner.explanation.study import study
from automap.planner.plan.types import Placement
from automap.planner.planning import estimate, make_plan
from automap.planner.search.model.problem import Assignment, Problem, copy_range
from automap.planner.search.search import break_ties, solve
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.studies.pareto import pareto
from tests.helpers.small_jobs import pool, small_job
from tests.planner.search import oracle
from tests.planner.search.instances import random_problem
from tests.planner.search.test_search_sizes import (
    LIMITS,
    LONGEST,
    structure_of,
    tables_of,
    with_real_syncs,
)

pytestmark = pytest.mark.thorough

LONGER = 4.0
"""Seconds that a sync takes more across nodes than inside one."""


def num_nodes(problem: Problem) -> int:
    return sum(-(-pool.num_gpus // pool.gpus_per_node) for pool in problem.pools)


SEEDS = [
    seed
    for seed in range(400)
    if (drawn := random_problem(seed, barrier=True)).syncs and num_nodes(drawn) > 1
][:25]


def slower(problem: Problem) -> Problem:
    """The problem with syncs as they are across nodes."""
    copies = []
    for copy in problem.copies:
        options = tuple(replace(o, sync_seconds=o.sync_seconds + LONGER) for o in copy.options)
        copies.append(replace(copy, options=options))
    return replace(problem, copies=tuple(copies))


def in_one_node(problem: Problem, assignment: Assignment) -> bool:
    nodes = set()
    for index in range(len(problem.copies)):
        span, option = copy_range(problem, assignment, index), assignment.copy_options[index]
        if span is not None and option is not None:
            number = problem.copies[index].options[option].pool
            pool = problem.pools[number]
            gpus = range(span.first - pool.first_gpu, span.end - pool.first_gpu)
            nodes |= {(number, gpu // pool.gpus_per_node) for gpu in gpus}
    return len(nodes) == 1


def best_periods(inside: Problem) -> tuple[float | None, float | None]:
    """(in one node, on several): the least periods, by trying every placement."""
    across, best = slower(inside), {True: None, False: None}
    for assignment in oracle.assignments(inside):
        if oracle.fits(inside, assignment):
            alone = in_one_node(inside, assignment)
            known = best[alone]
            limit = LONGEST[True] if known is None else int(known) - 1
            period = oracle.least_period(inside if alone else across, assignment, limit=limit)
            best[alone] = known if period is None else period
    return best[True], best[False]


def two_prices(inside: Problem) -> SearchSpace:
    """Tables that know what syncs take inside a node and across nodes."""
    tables = tables_of(slower(inside))
    copies = [replace(copy, node_sync_seconds=copy.sync_seconds - LONGER) for copy in tables.copies]
    return SearchSpace.whole(replace(tables, copies=copies), structure_of(inside))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_search_equals_brute_force_over_positions(seed: int) -> None:
    problem = with_real_syncs(random_problem(seed, barrier=True))
    there = [period for period in best_periods(problem) if period is not None]
    whole = two_prices(problem)
    found = solve(whole, limits=LIMITS, incumbent=None)
    assert found.is_proven
    if not there:
        assert found.solution is None
        return
    assert found.solution is not None
    assert found.solution.timing.period == pytest.approx(min(there))
    assert found.lower_bound == pytest.approx(min(there))
    tied = break_ties(whole, found.solution, limits=LIMITS)
    assert tied.timing.period == pytest.approx(min(there))
    exact = solve(whole, limits=LIMITS, incumbent=None, cutoff_seconds=float(min(there)))
    assert exact.solution is not None
    assert exact.solution.timing.period == pytest.approx(min(there))
    below = solve(whole, limits=LIMITS, incumbent=None, cutoff_seconds=min(there) - 0.5)
    assert below.is_proven
    assert below.solution is None


@pytest.mark.slow
def test_one_node_wins_and_loses_among_the_problems() -> None:
    every = [best_periods(with_real_syncs(random_problem(s, barrier=True))) for s in SEEDS]
    both = [(alone, several) for alone, several in every if alone is not None and several]
    assert any(alone < several for alone, several in both)
    assert any(several < alone for alone, several in both)


def moved(placement: Placement, gpus: int) -> Placement:
    copies = [
        copy.model_copy(update={"first_gpu": copy.first_gpu + gpus}) for copy in placement.copies
    ]
    return placement.model_copy(update={"copies": copies})


@pytest.mark.slow
def test_a_placement_in_one_node_has_one_price_whatever_other_nodes_there_are() -> None:
    stale = {"search__staleness": 1}
    one = small_job("ppo", num_nodes=1, **stale)
    alone = estimate(one, make_plan(one).placement())
    assert alone.transitions  # else nothing is synced
    several = small_job("ppo", num_nodes=3, **stale)
    for first in (0, 4, 8):
        same = estimate(several, moved(alone.placement(), first))
        assert same.iteration_seconds == alone.iteration_seconds
        intervals = same.iteration_seconds_interval, alone.iteration_seconds_interval
        [(low, high), (lower, higher)] = [(each.low, each.high) for each in intervals if each]
        assert (low, high) == pytest.approx((lower, higher))
    apart = [c for c in alone.placement().copies if c.role == "reward"]
    assert apart
    copies = [
        c.model_copy(update={"first_gpu": 4} if c.role == "reward" else {})
        for c in alone.placement().copies
    ]
    spread = estimate(several, alone.placement().model_copy(update={"copies": copies}))
    seconds = [sync.end_seconds - sync.start_seconds for sync in spread.transitions]
    inside = [sync.end_seconds - sync.start_seconds for sync in alone.transitions]
    assert min(seconds) > max(inside)


def test_explanations_tell_one_node_from_several() -> None:
    """The same layouts that share GPUs in the same way have two prices."""
    separate = {"constraints__separate": [["actor", "reward"], ["actor", "reference"]]}
    alone = make_plan(small_job("grpo", num_nodes=1, **separate)).placement()
    several = study(small_job("grpo", num_nodes=2, **separate))
    copies = [
        copy.model_copy(update={"first_gpu": copy.first_gpu + (0 if copy.role == "actor" else 4)})
        for copy in alone.copies
    ]
    apart = alone.model_copy(update={"copies": copies})
    keys = []
    for placement in (alone, apart):
        ordered, timing = scheduled(several.job, placement)
        at, selected = locate(several, ordered, timing)
        keys.append(placement_key(at, selected))
    assert keys[0] != keys[1]


@pytest.mark.parametrize("responses", [512, pytest.param(700, marks=pytest.mark.slow)])
def test_no_objective_is_beaten_by_a_smaller_cluster(responses: int) -> None:
    length = {"mean": responses, "max": 1024}
    given = {"workload__response_length": length, "cluster__pools": [pool(1)]}
    alone = make_plan(small_job("ppo", **given))
    given["cluster__pools"] = [pool(2)]
    target = {"search__target_iteration_seconds": alone.iteration_seconds}
    fewest = make_plan(small_job("ppo", search__objective="fewest_gpus", **target, **given))
    assert fewest.gpus_used == alone.gpus_used
    assert fewest.iteration_seconds == pytest.approx(alone.iteration_seconds)
    price = make_plan(small_job("ppo", search__objective="price", **given))
    assert price.price_per_iteration <= alone.price_per_iteration * (1 + 1e-9)
    front = pareto(small_job("ppo", **given))
    assert min(p.price_per_iteration for p in front.plans) == pytest.approx(
        price.price_per_iteration
    )
    assert any(
        p.gpus_used == alone.gpus_used
        and p.iteration_seconds == pytest.approx(alone.iteration_seconds)
        for p in front.plans
    ) or any(
        p.iteration_seconds <= alone.iteration_seconds
        and p.price_per_iteration <= alone.price_per_iteration
        for p in front.plans
    )
