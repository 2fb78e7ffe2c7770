"""The transition between training and generation, on eight gloo processes."""

import pytest

from tests.executor.ranks import run_cases
from tests.executor.reshard.reshard_cases import MORE_ON_EIGHT, ON_EIGHT

pytestmark = pytest.mark.many_processes


@pytest.fixture(scope="module")
def on_eight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run_cases(ON_EIGHT, world_size=8, folder=tmp_path_factory.mktemp("reshard"))


@pytest.fixture(scope="module")
def more_on_eight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run_cases(MORE_ON_EIGHT, world_size=8, folder=tmp_path_factory.mktemp("reshard"))


@pytest.mark.parametrize("case", ON_EIGHT)
def test_on_eight_processes(case: str, on_eight: dict[str, str | None]) -> None:
    assert on_eight[case] is None, on_eight[case]


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_ON_EIGHT)
def test_more_on_eight_processes(case: str, more_on_eight: dict[str, str | None]) -> None:
    assert more_on_eight[case] is None, more_on_eight[case]
