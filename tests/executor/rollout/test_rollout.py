"""vLLM in our processes, alone and beside the training engines that share its weights."""

from itertools import product

import pytest
import torch

from automap.executor.rollout.cpu_experts import own_experts
from automap.executor.rollout.sampling import response_seed
from tests.executor.ranks import Case, run_cases
from tests.executor.rollout import (
    continuous_cases,
    hybrid_cases,
    planned_cases,
    rollout_cases,
    stage_cases,
    weight_cases,
)

pytestmark = pytest.mark.many_processes

ON_TWO: dict[str, Case] = rollout_cases.ON_TWO | stage_cases.ON_TWO | continuous_cases.ON_TWO
WEIGHTS: dict[str, Case] = weight_cases.ON_TWO
MORE_ON_TWO: dict[str, Case] = (
    rollout_cases.MORE_ON_TWO | continuous_cases.MORE_ON_TWO | weight_cases.MORE_ON_TWO
)
ON_FOUR: dict[str, Case] = hybrid_cases.ON_FOUR | planned_cases.ON_FOUR
MORE_ON_FOUR: dict[str, Case] = (
    rollout_cases.ON_FOUR
    | hybrid_cases.MORE_ON_FOUR
    | planned_cases.MORE_ON_FOUR
    | stage_cases.MORE_ON_FOUR
)


def run(
    cases: dict[str, Case], factory: pytest.TempPathFactory, size: int
) -> dict[str, str | None]:
    folder = factory.mktemp("rollout")
    return run_cases(cases, world_size=size, folder=folder)


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run(ON_TWO, tmp_path_factory, 2)


@pytest.fixture(scope="module")
def more_on_two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run(MORE_ON_TWO, tmp_path_factory, 2)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run(WEIGHTS, tmp_path_factory, 2)


@pytest.fixture(scope="module")
def on_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run(ON_FOUR, tmp_path_factory, 4)


@pytest.fixture(scope="module")
def more_on_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run(MORE_ON_FOUR, tmp_path_factory, 4)


@pytest.mark.parametrize("case", ON_TWO)
def test_generation_on_two_processes(case: str, on_two: dict[str, str | None]) -> None:
    assert on_two[case] is None, on_two[case]


@pytest.mark.slow
@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_are_in_one_place_at_a_time(case: str, weights: dict[str, str | None]) -> None:
    assert weights[case] is None, weights[case]


@pytest.mark.slow
@pytest.mark.parametrize("case", ON_FOUR)
def test_training_and_generation_on_four(case: str, on_four: dict[str, str | None]) -> None:
    assert on_four[case] is None, on_four[case]


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_ON_TWO)
def test_more_on_two_processes(case: str, more_on_two: dict[str, str | None]) -> None:
    assert more_on_two[case] is None, more_on_two[case]


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_ON_FOUR)
def test_more_on_four_processes(case: str, more_on_four: dict[str, str | None]) -> None:
    assert more_on_four[case] is None, more_on_four[case]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_ranks_experts_together_are_all_that_were_chosen(ranks: int) -> None:
    generator = torch.Generator().manual_seed(ranks)
    outputs = torch.rand(8, 5, generator=generator, dtype=torch.float64)
    ids = torch.rand(6, 8, generator=generator).topk(3).indices.to(torch.int32)
    weights = torch.rand(6, 3, generator=generator, dtype=torch.float64)
    total = torch.zeros(6, 5, dtype=torch.float64)
    for own in torch.arange(8).chunk(ranks):
        places = torch.full((8,), -1, dtype=torch.int32)
        places[own] = torch.arange(len(own), dtype=torch.int32)
        here, at = own_experts(weights, ids, places)
        assert at.dtype == ids.dtype
        assert (at >= 0).all()
        assert (at < len(own)).all()
        total += (here[:, :, None] * outputs[own][at.long()]).sum(1)
    assert torch.allclose(total, (weights[:, :, None] * outputs[ids.long()]).sum(1))


def test_seeds_differ_in_every_argument() -> None:
    seeds = {response_seed(*five) for five in product(range(4), repeat=5)}
    assert len(seeds) == 4**5
    assert all(0 <= seed < 2**63 for seed in seeds)
