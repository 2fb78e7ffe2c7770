"""Strategies that generate on GPUs of their own, with a second copy of the actor's weights.

The shadow counts as one more model, so HybridFlow's allocation search finds the sizes. Under a
barrier the cost is the stage cost. Halves that work on different iterations side by side have one
stage: an iteration lasts as long as the slower half.
"""

from collections.abc import Sequence
from dataclasses import replace

from automap.planner.search.model.problem import Problem
from automap.planner.search.strategies.auto_mapping import cheapest, trains
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placing import DoesNotFit, Placed, check_pairs, check_served
from automap.planner.search.strategies.shadows import (
    rollouts_apart,
    shadows_of,
    weight_sync_seconds,
)


def every_model_apart(index: Index, *, strategy: str) -> Placed:
    """Every model on GPUs of its own, and the rollouts too; the sizes are of least stage cost."""
    copies = [*index.homes, *shadows_of(index.problem)]
    sets = [[copy] for copy in copies]
    return _placed(index, sets, strategy=strategy, stages=index.stages)


def openrlhf(index: Index) -> Placed:
    """OpenRLHF: each model and the generation engine on GPUs of its own (HybridFlow, Table 1)."""
    return every_model_apart(index, strategy="openrlhf")


def app_separation(index: Index) -> Placed:
    """APP's Separation (arXiv 2312.11819): a shadow actor for inference, and all models apart.

    APP has a shadow of the critic too, which here does not exist: values are computed at home.
    """
    return every_model_apart(index, strategy="app_separation")


def one_step_off(index: Index) -> Placed:
    """Rollouts on one half; all models, training and scoring, on the other; one iteration apart.

    verl's one-step-off recipe, after "Asynchronous RLHF" (arXiv 2410.18252).
    """
    _need_slack(index.problem, strategy="one_step_off")
    sets = [list(shadows_of(index.problem)), index.homes]
    return _placed(index, sets, strategy="one_step_off", stages=_one_stage(index))


def fully_async(index: Index) -> Placed:
    """Rollouts and rewards on one half; what trains, and the reference, on the other.

    AReaL (arXiv 2505.24298): rollout workers score what they generate; trainers never wait for the
    iteration that is being generated.
    """
    _need_slack(index.problem, strategy="fully_async")
    problem = index.problem
    scoring = [
        home
        for home in index.homes
        if problem.copies[home].role != "reference" and not trains(index, (home,))
    ]
    training = [home for home in index.homes if home not in scoring]
    if not training:
        raise DoesNotFit(f"fully_async: none of the {len(index.homes)} models trains")
    sets = [[*shadows_of(problem), *scoring], training]
    return _placed(index, sets, strategy="fully_async", stages=_one_stage(index))


def _one_stage(index: Index) -> list[int]:
    """All calls in the first stage: then the cost is the longest sum of seconds of any set."""
    return [0] * len(index.problem.calls)


def _need_slack(problem: Problem, *, strategy: str) -> None:
    """Raise where no rollout may use weights that are an iteration old."""
    least = min((sync.distance for sync in problem.syncs), default=None)
    if problem.barrier or (least is not None and least < 2):
        staleness = 0 if problem.barrier or least is None else least - 1
        raise DoesNotFit(
            f"{strategy} generates while it trains, on weights at least 1 iteration old, and the "
            f"job allows {staleness} (search.staleness)"
        )


def _placed(
    index: Index, sets: Sequence[Sequence[int]], *, strategy: str, stages: Sequence[int]
) -> Placed:
    part = rollouts_apart(index.problem, strategy=strategy)
    apart = Index(part.problem, stages=stages)
    check_served(apart)
    check_pairs(apart, sets, strategy=strategy)
    placed = cheapest(apart, [tuple(tuple(sorted(each)) for each in sets)], strategy=strategy)
    assignment = part.original(placed.assignment)
    assert placed.claimed_seconds is not None, "a stage cost"
    sync = weight_sync_seconds(index.problem, assignment)
    return replace(placed, assignment=assignment, claimed_seconds=placed.claimed_seconds + sync)
