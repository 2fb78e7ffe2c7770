"""Which rank holds which part of a model: parallel groups for training and for generation.

Pure arithmetic. Ranks count from 0 within the model's own processes. All groups come as torch
wants them: ranks ascending, groups by their first rank, every rank in exactly one group.
"""

from automap.executor.layout.coordinates import (
    Coordinates,
    ExpertCoordinates,
    GenerationCoordinates,
)
from automap.executor.layout.generation_layout import GenerationLayout, Grouping
from automap.executor.layout.rank_layout import Order, RankLayout
from automap.executor.layout.shards import Interval, Shard

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
