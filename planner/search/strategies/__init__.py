"""Named strategies: how people place these models today, under the planner's own cost model.

A strategy is a name, a reference, and a function from a problem to an assignment; where its
framework knows only some layouts, those are the only ones it may use. `strategies.md` in docs
describes each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from automap.planner.search.candidates.tables import Tables
from automap.planner.search.model.solve import Limits
from automap.planner.search.space.rows import Rows
from automap.planner.search.strategies import restrictions
from automap.planner.search.strategies.apart import (
    app_separation,
    fully_async,
    one_step_off,
    openrlhf,
)
from automap.planner.search.strategies.app import app_interleaving
from automap.planner.search.strategies.auto_mapping import hybridflow, standalone
from automap.planner.search.strategies.cuts import rlinf
from automap.planner.search.strategies.fixed import colocate_all, split
from automap.planner.search.strategies.groups import Shared
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.metropolis import real_mcmc
from automap.planner.search.strategies.placing import DoesNotFit, Placed
from automap.planner.search.strategies.proportional import real_heuristic
from automap.planner.search.strategies.together import fastest_together

__all__ = [
    "QUICK",
    "STARTS",
    "STRATEGIES",
    "DoesNotFit",
    "Index",
    "Placed",
    "Shared",
    "StrategyInfo",
    "fastest_together",
]

HYBRIDFLOW = "HybridFlow (arXiv 2409.19256"


@dataclass(frozen=True, slots=True)
class StrategyInfo:
    """A named strategy and where it comes from."""

    name: str
    description: str
    reference: str
    """The paper or framework that places models so."""
    place: Callable[[Index, Limits], Placed]
    """The strategy's assignment; DoesNotFit, with the numbers in a sentence, where it has none."""
    rows: Callable[[Tables], Rows] | None = None
    """The layouts and settings it may use; None: all."""
    needs_staleness: bool = False
    """True where the strategy generates while it trains, with weights an iteration old."""


def _unlimited(place: Callable[[Index], Placed]) -> Callable[[Index, Limits], Placed]:
    """A strategy that always runs to its end."""
    return lambda index, _: place(index)


STRATEGIES: dict[str, StrategyInfo] = {
    info.name: info
    for info in (
        StrategyInfo(
            "colocate_all",
            "Every model on all GPUs of one pool, one after another, with any layouts.",
            "Flattening in APP (arXiv 2312.11819)",
            _unlimited(colocate_all),
        ),
        StrategyInfo(
            "split",
            "Actor and reference on one half of the GPUs, all other models on the other half.",
            f"Split in {HYBRIDFLOW}, figure 12)",
            _unlimited(split),
        ),
        StrategyInfo(
            "standalone",
            "Every model on GPUs of its own, with the best sizes.",
            f"Standalone in {HYBRIDFLOW}, figure 12)",
            _unlimited(standalone),
        ),
        StrategyInfo(
            "hybridflow",
            "The best partition of the models into colocated sets and the best sizes, by the sum "
            "over stages of the slowest set.",
            f"{HYBRIDFLOW}, section 6, Algorithms 1 and 2)",
            _unlimited(hybridflow),
        ),
        StrategyInfo(
            "verl",
            "Every model on all GPUs, training by FSDP or Megatron, generation by tensor "
            "parallelism on the same GPUs (hybrid engine).",
            f"verl's default; {HYBRIDFLOW}, 3D-HybridEngine)",
            _unlimited(partial(colocate_all, strategy="verl")),
            restrictions.fsdp_or_megatron,
        ),
        StrategyInfo(
            "deepspeed_chat",
            "Every model on all GPUs, data-parallel with ZeRO-3; generation by tensor parallelism "
            "on the same GPUs.",
            f"DeepSpeed-Chat (arXiv 2308.01320), as described in {HYBRIDFLOW}, Table 1)",
            _unlimited(partial(colocate_all, strategy="deepspeed_chat")),
            restrictions.zero3,
        ),
        StrategyInfo(
            "openrlhf",
            "Every model on GPUs of its own, data-parallel with ZeRO-3; generation on a second "
            "copy of the actor, with GPUs of its own.",
            f"OpenRLHF (arXiv 2405.11143), as described in {HYBRIDFLOW}, Table 1)",
            _unlimited(openrlhf),
            restrictions.zero3,
        ),
        StrategyInfo(
            "nemo_aligner",
            "Actor and reference on one half of the GPUs, the others on the other half; generation "
            "with the tensor and pipeline sizes of training.",
            f"NeMo-Aligner (arXiv 2405.01481), as described in {HYBRIDFLOW}, Table 1)",
            _unlimited(partial(split, strategy="nemo_aligner")),
            restrictions.one_parallelism,
        ),
        StrategyInfo(
            "app_interleaving",
            "What trains on all GPUs with ZeRO-3, what only scores side by side on equal parts.",
            "Interleaving in APP (arXiv 2312.11819)",
            app_interleaving,
            restrictions.zero3,
        ),
        StrategyInfo(
            "app_separation",
            "Every model on GPUs of its own and a shadow actor for generation; inference by tensor "
            "parallelism alone, with replicas for generation only.",
            "Separation in APP (arXiv 2312.11819)",
            _unlimited(app_separation),
            restrictions.tensor_parallel_inference,
        ),
        StrategyInfo(
            "real_heuristic",
            "Generation and reference on all GPUs, models that train on nodes of their own in "
            "proportion to their size, as two replicas of tensor groups of four.",
            "ReaL's heuristic mode (arXiv 2406.14088)",
            real_heuristic,
            restrictions.two_replicas,
        ),
        StrategyInfo(
            "real_mcmc",
            "Markov chain Monte Carlo over the calls' layouts and ranges, by simulated seconds; "
            "its steps follow the time limit.",
            "ReaL's search (arXiv 2406.14088), repaired",
            real_mcmc,
        ),
        StrategyInfo(
            "rlinf",
            "Dynamic programming over the cuts of the workflow: halves in turn on all GPUs, or "
            "side by side.",
            "RLinf (arXiv 2509.15965)",
            rlinf,
        ),
        StrategyInfo(
            "one_step_off",
            "Rollouts on one half, everything else on the other, one iteration behind; needs "
            "staleness.",
            "verl's one-step-off recipe, after Asynchronous RLHF (arXiv 2410.18252)",
            _unlimited(one_step_off),
            needs_staleness=True,
        ),
        StrategyInfo(
            "fully_async",
            "Rollouts and rewards on one half, what trains on the other, neither waiting for the "
            "other's iteration; needs staleness.",
            "AReaL (arXiv 2505.24298)",
            _unlimited(fully_async),
            needs_staleness=True,
        ),
    )
}
STARTS = ("colocate_all", "split", "standalone", "hybridflow")
"""Strategies that start every search; they take a fraction of a second."""
QUICK = tuple(name for name in STRATEGIES if name != "real_mcmc")
"""Strategies that take seconds (at 1,024 GPUs `rlinf` 14, the others below 5); the other one runs
as long as the time limit says."""
