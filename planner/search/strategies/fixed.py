"""Strategies whose sets of models are given: only layouts and settings are chosen."""

import math
from collections.abc import Sequence

from automap.planner.search.strategies.groups import Shared
from automap.planner.search.strategies.index import Index
from automap.planner.search.strategies.placing import (
    DoesNotFit,
    Placed,
    PlacedSet,
    assignment_of,
    check_pairs,
    check_served,
    largest_slot,
    packed,
    shortage,
    stage_seconds,
)
from automap.planner.search.strategies.stages import GENERATION
from automap.planner.search.strategies.together import together


def colocate_all(index: Index, *, strategy: str = "colocate_all", note: str = "") -> Placed:
    """Every home on all usable GPUs of one pool; of several pools the fastest.

    Where no layout divides all usable GPUs (GPUs kept free, odd nodes, a forced size), the largest
    range that every home has a layout for.
    """
    check_served(index)
    check_pairs(index, [index.homes], strategy=strategy)
    slots = []
    for pool in range(len(index.problem.pools)):
        largest = largest_slot(index, index.homes, pool, index.problem.pools[pool].num_gpus)
        if largest is not None:
            slots.append((largest,))
    if not slots:
        raise DoesNotFit(
            f"{strategy}: the {len(index.homes)} models {index.name(index.homes)} have no pool "
            "and size in common"
        )
    return _best(index, [index.homes], slots, strategy=strategy, note=note)


def split(index: Index, *, strategy: str = "split") -> Placed:
    """The actor and the reference on one half of the GPUs, the other models on the other half."""
    check_served(index)
    sets = _halves(index)
    if len(sets) == 1:
        note = f"every model generates ({index.name(sets[0])}): {strategy} is colocate_all"
        return colocate_all(index, strategy=strategy, note=note)
    check_pairs(index, sets, strategy=strategy)
    slots = _half_slots(index, sets)
    if not slots:
        sizes = "; ".join(f"{pool.name} has {pool.num_gpus} GPUs" for pool in index.problem.pools)
        raise DoesNotFit(
            f"{strategy}: no two halves have layouts for {index.name(sets[0])} and for "
            f"{index.name(sets[1])} ({sizes})"
        )
    return _best(index, sets, slots, strategy=strategy, note="")


def _halves(index: Index) -> list[list[int]]:
    """Generating models and the reference; the others. One set when all models generate."""
    generating = [
        home
        for home in index.homes
        if any(index.stages[call] == GENERATION for call in index.calls_of[home])
    ]
    others = [home for home in index.homes if home not in generating]
    references = [h for h in others if index.problem.copies[h].role == "reference"]
    rest = [home for home in others if home not in references]
    if not generating or not others:
        return [index.homes]
    if not rest:  # without critic and reward model the reference alone is the second half
        return [generating, references]
    return [sorted(generating + references), rest]


def _half_slots(index: Index, sets: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Pairs of slots: half and half, the uneven halves of an odd number of nodes, two pools."""
    pairs: list[tuple[int, ...]] = []
    for pool, choice in enumerate(index.problem.pools):
        half = choice.num_gpus // 2
        small = [largest_slot(index, members, pool, half) for members in sets]
        pairs += _pairs([small])
        for i, size in enumerate(small):
            if size is not None:
                rest = choice.num_gpus - index.slots[size].count
                other = largest_slot(index, sets[1 - i], pool, rest)
                pairs += _pairs([[size, other] if i == 0 else [other, size]])
        for second in range(len(index.problem.pools)):
            if second != pool:
                counts = [index.problem.pools[p].num_gpus for p in (pool, second)]
                pairs += _pairs(
                    [
                        [
                            largest_slot(index, sets[0], pool, counts[0]),
                            largest_slot(index, sets[1], second, counts[1]),
                        ]
                    ]
                )
    return sorted(set(pairs))


def _pairs(candidates: list[list[int | None]]) -> list[tuple[int, ...]]:
    return [
        (first, second) for first, second in candidates if first is not None and second is not None
    ]


def _best(
    index: Index,
    sets: Sequence[Sequence[int]],
    slots: Sequence[tuple[int, ...]],
    *,
    strategy: str,
    note: str,
) -> Placed:
    """The slots with the least stage cost; of equals the first.

    Raises:
        DoesNotFit: none of them fits; the reason is that of the set that lacks memory first.
    """
    best: Placed | None = None
    least = math.inf, 0
    reasons: dict[int, str] = {}
    solved: dict[tuple[int, int], Shared | None] = {}
    bounds = [_least_seconds(index, sets, choice) for choice in slots]
    for at in sorted(range(len(slots)), key=bounds.__getitem__):
        choice = slots[at]
        if bounds[at] > least[0] * (1 + 1e-12):
            break
        placed = []
        for number, slot in enumerate(choice):
            if (number, slot) not in solved:
                solved[number, slot] = together(index, sets[number], slot)
            shared = solved[number, slot]
            if shared is None:
                reasons[at] = shortage(index, sets[number], slot)
                break
            placed.append(PlacedSet(slot, shared))
        firsts = packed(index.problem, [index.slots[slot] for slot in choice])
        if len(placed) < len(choice) or firsts is None:
            continue
        seconds = stage_seconds(index, placed)
        if (seconds, at) < least:
            best, least = Placed(assignment_of(index, placed, firsts), seconds, note), (seconds, at)
    if best is None:
        told = dict.fromkeys(reasons[at] for at in sorted(reasons))
        raise DoesNotFit(f"{strategy}: {'; '.join(told)}")
    return best


def _least_seconds(index: Index, sets: Sequence[Sequence[int]], choice: tuple[int, ...]) -> float:
    """A bound on the stage cost: what the calls of the slowest set take if each copy is alone."""
    return max(
        sum(float(index.alone[member].seconds[slot].sum()) for member in members)
        for members, slot in zip(sets, choice, strict=True)
    )
