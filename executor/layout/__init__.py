"""Which rank holds which part of a model: parallel groups for training and for generation.

Pure arithmetic. Ranks count from 0 within the model's own processes. All groups come as torch
wants them: ranks ascending, groups by their first rank, every rank in exactly one group.
"""

from executor.layout.coordinates import Coordinates, ExpertCoordinates, GenerationCoordinates
from executor.layout.generation import GenerationLayout, Grouping
from executor.layout.ranks import Order, RankLayout
from executor.layout.shards import Interval, Shard

__all__ = [
    "Coordinates",
    "ExpertCoordinates",
    "GenerationCoordinates",
    "GenerationLayout",
    "Grouping",
    "Interval",
    "Order",
    "RankLayout",
    "Shard",
]
