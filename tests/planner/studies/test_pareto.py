"""The Pareto front against an oracle that plans on every number of nodes by itself."""

import itertools
from typing import Any

import pytest

from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, SpecError
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.studies.pareto import pareto
from automap.planner.studies.result import Front
from tests.helpers.small_jobs import REMOVE, pool, small_job

pytestmark = pytest.mark.thorough

TWO_POOLS: dict[str, Any] = {
    "cluster__pools": [pool(2), pool(2, name="h100", gpu="h100", price_per_gpu_hour=3.0)]
}
FREE: dict[str, Any] = {"cluster__pools": [pool(2, price_per_gpu_hour=0.0)]}


def every_plan(spec: JobSpec) -> list[tuple[float, float]]:
    """(seconds, price) of the fastest plan on every number of nodes of every pool."""
    assert not isinstance(spec.cluster, str)
    found = []
    for numbers in itertools.product(*(range(p.num_nodes + 1) for p in spec.cluster.pools)):
        used = [p for p, n in zip(spec.cluster.pools, numbers, strict=True) if n]
        free = {
            p.name: 4 * (p.num_nodes - n) for p, n in zip(used, filter(None, numbers), strict=True)
        }
        if not used:
            continue
        part = spec.model_copy(
            update={
                "cluster": spec.cluster.model_copy(update={"pools": used}),
                "constraints": spec.constraints.model_copy(
                    update={"keep_free_gpus": {k: v for k, v in free.items() if v}}
                ),
            }
        )
        try:
            plan = make_plan(part)
        except InfeasibleError:
            continue
        found.append((plan.iteration_seconds, plan.price_per_iteration))
    return found


def not_beaten(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """By trying all pairs; each point once."""
    return sorted(
        {
            point
            for point in points
            if not any(
                other != point and other[0] <= point[0] and other[1] <= point[1] for other in points
            )
        }
    )


def points_of(front: Front) -> list[tuple[float, float]]:
    return [(plan.iteration_seconds, plan.price_per_iteration) for plan in front.plans]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"num_nodes": 3}, id="one pool"),
        pytest.param(TWO_POOLS, id="two pools", marks=pytest.mark.slow),
    ],
)
def test_the_front_is_that_of_all_numbers_of_nodes(changes: dict[str, Any]) -> None:
    spec = small_job(**changes)
    front = pareto(spec)
    assert front.proven
    assert front.undecided == []
    expected = not_beaten(every_plan(spec))
    assert len(expected) > 1
    assert points_of(front) == [pytest.approx(point) for point in expected]
    assert all(plan.search.status == "optimal" for plan in front.plans)


@pytest.mark.slow
def test_a_plan_of_the_front_is_what_its_own_spec_gives() -> None:
    front = pareto(small_job(num_nodes=2))
    for plan in front.plans:
        again = make_plan(plan.spec)
        assert again.iteration_seconds == plan.iteration_seconds
        assert again.gpus_used == plan.gpus_used


@pytest.mark.parametrize("asked", [REMOVE, 0.3])
def test_specs_of_a_front_ask_for_no_simpler_plan(asked: Any) -> None:
    (plan,) = pareto(small_job(search__simplicity_tolerance=asked)).plans
    assert plan.spec.search.simplicity_tolerance == 0
    assert make_plan(plan.spec).placement() == plan.placement()


@pytest.mark.slow
def test_no_plan_beats_the_front_by_more_than_the_tolerance() -> None:
    spec, tolerance = small_job(num_nodes=4), 0.3
    exact, front = pareto(spec), pareto(spec, tolerance=tolerance)
    assert len(front.plans) < len(exact.plans)
    assert front.searches < exact.searches
    for seconds, price in points_of(exact):
        assert any(
            s <= (1 + tolerance) * seconds and p <= (1 + tolerance) * price
            for s, p in points_of(front)
        )


def test_without_a_price_the_fastest_plan_beats_all() -> None:
    spec = small_job(**FREE)
    front = pareto(spec)
    assert points_of(front) == [(make_plan(spec).iteration_seconds, 0.0)]


def test_kept_free_gpus_and_targets_of_the_job() -> None:
    spec = small_job(
        num_nodes=2,
        constraints__keep_free_gpus={"a100": 2},
        search__objective="fewest_gpus",
        search__target_iteration_seconds=100.0,
    )
    front = pareto(spec)
    assert front.spec == spec
    assert [plan.gpus_used for plan in front.plans] == [8, 4]
    assert front.plans[0].spec.constraints.keep_free_gpus == {"a100": 2}
    assert front.plans[1].spec.constraints.keep_free_gpus == {"a100": 4}


def test_what_the_limit_left_open_is_said() -> None:
    spec = small_job("ppo", num_nodes=3, search__time_limit_seconds=0.001, search__limit_by="work")
    try:
        front = pareto(spec)
    except NoSolutionInTimeError:
        return
    assert not front.proven
    fastest = front.plans[0].iteration_seconds
    assert all(0 < each.lower_bound_seconds <= fastest * 10 for each in front.undecided)
    assert all(0 < each.gpus["a100"] <= 12 for each in front.undecided)


def test_what_makes_no_front_is_refused() -> None:
    with pytest.raises(SpecError, match=r"search\.strategy"):
        pareto(small_job(search__strategy="verl"))
    with pytest.raises(SpecError, match=r"search\.robust.*set it to false"):
        pareto(small_job(search__robust=True))
    with pytest.raises(SpecError, match="tolerance"):
        pareto(small_job(), tolerance=-0.1)
    large = {"actor": {"architecture": "llama-2-70b"}, "reward": {"function": True}}
    with pytest.raises(InfeasibleError) as error:
        pareto(small_job("rloo", models=large, workload__kl="none", cluster__pools=[pool()]))
    assert error.value.reasons[0].over_bytes
