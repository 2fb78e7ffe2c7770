"""Numbers of nodes come in the order in which a sort of them all would have them."""

from collections.abc import Callable
from itertools import product
from math import inf

import pytest

from automap.planner.job.resolution import resolve
from automap.planner.search import SearchSpace, price_candidates
from automap.planner.search.node_choices import NodeChoices, Sizes, sizes_of_nodes
from tests.helpers.small_jobs import pool, small_job

MODEL = {"architecture": "qwen2.5-32b"}
MODELS = {"actor": MODEL, "reference": MODEL, "reward": {"function": True}}
JOB = small_job(
    models=MODELS,
    cluster__pools=[pool(5), pool(4, name="l40s", gpu="l40s", price_per_gpu_hour=1.0)],
)


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    job = resolve(JOB)
    return SearchSpace.of(job, price_candidates(job))


def price(space: SearchSpace, share: float) -> Callable[[float, Sizes], float]:
    """What is paid where so large a share of the rates is: nothing at 0."""
    return lambda bound, sizes: share * bound * space.price_per_second(sizes)


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_all_come_in_order(space: SearchSpace, share: float) -> None:
    cost, choices = price(space, share), NodeChoices(space, price(space, share))
    axes = [sizes_of_nodes(space.problem, number) for number in range(2)]
    bounds: dict[Sizes, float | None] = {
        sizes: space.on_gpus(sizes).lower_bound() for sizes in product(*axes) if any(sizes)
    }
    holding = [(bound, sizes) for sizes, bound in bounds.items() if bound is not None]
    wanted = sorted((cost(bound, sizes), bound, sizes) for bound, sizes in holding)
    assert 0 < len(wanted) < len(bounds)
    for least, _, sizes in wanted:
        assert choices.least <= least
        assert choices.next() == (least, sizes)
    assert choices.next() is None
    assert choices.least == inf


def test_what_is_left_is_bounded(space: SearchSpace) -> None:
    choices = NodeChoices(space, price(space, 1.0))
    first = NodeChoices(space, price(space, 1.0)).next()
    assert first is not None
    assert choices.next(deadline=-inf) is None
    assert choices.least <= first[0]
    assert choices.next(most=0.99 * first[0]) is None
    assert 0.99 * first[0] < choices.least <= first[0]
    assert choices.next(most=first[0]) == first


def test_the_first_is_found_without_looking_at_them_all() -> None:
    many = [pool(256), pool(256, name="l40s", gpu="l40s", price_per_gpu_hour=1.0)]
    job = resolve(small_job(models=MODELS, cluster__pools=many))
    looked: list[Sizes] = []
    space = SearchSpace.of(job, price_candidates(job))

    def cost(bound: float, sizes: Sizes) -> float:
        looked.append(sizes)
        return bound * space.price_per_second(sizes)

    assert NodeChoices(space, cost).next() is not None
    assert len(looked) < 256 * 256 / 100
