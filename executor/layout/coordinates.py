"""A rank's place in every dimension, and the groups of ranks that differ in some alone."""

from collections.abc import Sequence
from typing import NamedTuple


class Coordinates(NamedTuple):
    """A rank's place in every dimension."""

    tensor: int = 0
    context: int = 0
    data: int = 0
    pipeline: int = 0


class ExpertCoordinates(NamedTuple):
    """A rank's place among the experts of its stage; `expert_data` numbers their copies."""

    expert_tensor: int
    expert: int
    expert_data: int
    pipeline: int


class GenerationCoordinates(NamedTuple):
    """A rank's place while it generates; `data` numbers the copies of the training weights."""

    tensor: int
    pipeline: int
    micro_data: int
    data: int


def groups_over(
    coordinates: Sequence[Coordinates | ExpertCoordinates | GenerationCoordinates],
    dimensions: tuple[str, ...],
) -> list[list[int]]:
    """Ranks whose places differ in these dimensions alone."""
    names = coordinates[0]._fields
    if not dimensions or set(dimensions) - set(names):
        raise ValueError(f"groups are over some of {', '.join(names)}; got {dimensions}")
    fixed = [index for index, name in enumerate(names) if name not in dimensions]
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(coordinates):
        groups.setdefault(tuple(place[index] for index in fixed), []).append(rank)
    return list(groups.values())
