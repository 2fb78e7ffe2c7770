"""APP's Interleaving (arXiv 2312.11819): what trains on all GPUs, what only scores side by side."""

from collections.abc import Sequence

from automap.planner.search.model.problem import Range
from automap.planner.search.model.solve import Limits
from automap.planner.search.strategies.auto_mapping import trains
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placing import (
    DoesNotFit,
    Placed,
    check_served,
    largest_slot,
    packed,
)
from automap.planner.search.strategies.ranges import fastest_on


def app_interleaving(index: Index, limits: Limits) -> Placed:
    """Actor and critic on all GPUs of a pool; the other models on equal parts of it.

    The authors' `InitialRewardSeparate` = (1, 1, 0.5, 0.5): reference on the first half, reward on
    the second. With another number k of models that do not train, each gets a k-th. Of several
    pools the first that holds it.
    """
    check_served(index)
    reasons = []
    for pool in range(len(index.problem.pools)):
        try:
            places = interleaved(index, pool)
            return fastest_on(index.problem, places, strategy="app_interleaving", limits=limits)
        except DoesNotFit as reason:
            reasons.append(reason.reason)
    raise DoesNotFit("; ".join(dict.fromkeys(reasons)))


def interleaved(index: Index, pool: int) -> dict[int, Range]:
    """The ranges in one pool."""
    training = [home for home in index.homes if trains(index, (home,))]
    scoring = [home for home in index.homes if home not in training]
    num_gpus = index.problem.pools[pool].num_gpus
    places = {
        home: Range(index.problem.pools[pool].first_gpu, _largest(index, [home], pool, num_gpus))
        for home in training
    }
    if scoring:
        count = _largest(index, scoring, pool, num_gpus // len(scoring))
        slots = [index.slots[index.number_of[pool, count]]] * len(scoring)
        firsts = packed(index.problem, slots)
        if firsts is None:
            raise DoesNotFit(
                f"app_interleaving: {len(scoring)} aligned ranges of {count} GPUs do not fit in "
                f"the {num_gpus} of pool {index.problem.pools[pool].name}"
            )
        places |= {home: Range(first, count) for home, first in zip(scoring, firsts, strict=True)}
    return places


def _largest(index: Index, members: Sequence[int], pool: int, most: int) -> int:
    slot = largest_slot(index, members, pool, most)
    if slot is None:
        raise DoesNotFit(
            f"app_interleaving: {index.name(members)} have no layout in common for at most {most} "
            f"GPUs of pool {index.problem.pools[pool].name}"
        )
    return index.slots[slot].count
