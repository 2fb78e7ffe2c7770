"""The FSDP engine on two gloo processes, and on four where that takes long."""

from pathlib import Path

import pytest

from tests.executor.engines.fsdp_cases import MORE_ON_TWO, ON_FOUR, ON_TWO
from tests.executor.ranks import run_cases

pytestmark = pytest.mark.many_processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fsdp")


@pytest.fixture(scope="module")
def on_two(folder: Path) -> dict[str, str | None]:
    return run_cases(ON_TWO, world_size=2, folder=folder)


@pytest.fixture(scope="module")
def more_on_two(folder: Path) -> dict[str, str | None]:
    return run_cases(MORE_ON_TWO, world_size=2, folder=folder)


@pytest.fixture(scope="module")
def on_four(on_two: dict[str, str | None], folder: Path) -> dict[str, str | None]:
    return run_cases(ON_FOUR, world_size=4, folder=folder)


@pytest.mark.parametrize("case", ON_TWO)
def test_on_two_processes(case: str, on_two: dict[str, str | None]) -> None:
    assert on_two[case] is None, on_two[case]


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_ON_TWO)
def test_more_on_two_processes(case: str, more_on_two: dict[str, str | None]) -> None:
    assert more_on_two[case] is None, more_on_two[case]


@pytest.mark.slow
@pytest.mark.parametrize("case", ON_FOUR)
def test_on_four_processes(case: str, on_four: dict[str, str | None]) -> None:
    assert on_four[case] is None, on_four[case]
