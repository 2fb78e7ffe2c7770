"""Cuts widened from the first round on leave the optimum that brute force finds."""

import pytest

from automap.planner.search.decomposition import wider_cuts
from automap.planner.search.decomposition.master import Sizes
from automap.planner.search.decomposition.wider_cuts import WiderCuts
from tests.planner.search.test_search_sizes import check_barrier, instance

pytestmark = pytest.mark.thorough


@pytest.mark.slow
def test_a_widened_cut_excludes_no_better_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = []
    widened = WiderCuts.widened

    def recorded(self: WiderCuts, sizes: Sizes, *given: object) -> Sizes:
        cut = widened(self, sizes, *given)  # type: ignore[arg-type]
        assert cut.items() <= sizes.items()
        freed.append(len(sizes) - len(cut))
        return cut

    monkeypatch.setattr(wider_cuts, "FIRST_ROUND", 0)
    monkeypatch.setattr(WiderCuts, "widened", recorded)
    for seed in range(60):
        check_barrier(instance(seed, barrier=True))
    assert sum(number > 0 for number in freed) >= 5
