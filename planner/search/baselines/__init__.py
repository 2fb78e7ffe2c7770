"""Named strategies: how people place these models today, under the planner's own cost model.

They choose from the same options as the search, and neither overlaps calls beyond what their sets
allow nor uses shadows. `strategies.md` in docs describes each.
"""

from collections.abc import Callable
from dataclasses import dataclass

from planner.search.baselines.auto_mapping import hybridflow, standalone
from planner.search.baselines.fixed import colocate_all, split
from planner.search.baselines.groups import Shared
from planner.search.baselines.index import Index
from planner.search.baselines.placing import DoesNotFit, Placed
from planner.search.baselines.together import fastest_together
from planner.search.problem import Problem

__all__ = [
    "STRATEGIES",
    "DoesNotFit",
    "Index",
    "Placed",
    "Shared",
    "StrategyInfo",
    "fastest_together",
    "place_all",
]


@dataclass(frozen=True, slots=True)
class StrategyInfo:
    """A named strategy and where it comes from."""

    name: str
    description: str
    reference: str
    """The paper or framework that places models so."""
    place_indexed: Callable[[Index], Placed]

    def place(self, problem: Problem) -> Placed:
        """The strategy's assignment, without shadows, and its stage cost in seconds.

        Raises:
            DoesNotFit: it has none; the reason is a sentence with the numbers.
        """
        return self.place_indexed(Index(problem))


STRATEGIES: dict[str, StrategyInfo] = {
    info.name: info
    for info in (
        StrategyInfo(
            "colocate_all",
            "Every model on all GPUs of one pool, one after another.",
            "Flattening in APP (arXiv 2312.11819); DeepSpeed-Chat; verl's default",
            colocate_all,
        ),
        StrategyInfo(
            "split",
            "Actor and reference on one half of the GPUs, all other models on the other half.",
            "NeMo-Aligner, as described in HybridFlow (arXiv 2409.19256, Table 1)",
            split,
        ),
        StrategyInfo(
            "standalone",
            "Every model on GPUs of its own, with the best sizes.",
            "OpenRLHF, as described in HybridFlow (arXiv 2409.19256, Table 1)",
            standalone,
        ),
        StrategyInfo(
            "hybridflow",
            "The best partition of the models into colocated sets and the best sizes, by the sum "
            "over stages of the slowest set.",
            "HybridFlow, Algorithms 1 and 2 (arXiv 2409.19256, section 6)",
            hybridflow,
        ),
    )
}


def place_all(problem: Problem) -> dict[str, Placed | DoesNotFit]:
    """Every strategy on one problem: its placement, or why it has none."""
    index = Index(problem)
    results: dict[str, Placed | DoesNotFit] = {}
    for name, info in STRATEGIES.items():
        try:
            results[name] = info.place_indexed(index)
        except DoesNotFit as reason:
            results[name] = reason
    return results
