"""How the ranks of a model are arranged while it trains or scores."""

from dataclasses import dataclass
from typing import Literal

from automap.executor.layout.coordinates import Coordinates, ExpertCoordinates, groups_over
from automap.executor.layout.shards import Shard, equal_part
from automap.planner.plan import Parallelism

Order = Literal["megatron", "hybridflow"]

_ORDERS: dict[str, tuple[str, ...]] = {
    "megatron": ("tensor", "context", "data", "pipeline"),
    "hybridflow": ("tensor", "pipeline", "context", "data"),
}


@dataclass(frozen=True, slots=True)
class RankLayout:
    """How the ranks of one model are arranged.

    Order `megatron` runs tensor first, then context, data, pipeline, as the planner and
    Megatron-core do. `hybridflow` runs tensor, pipeline, (context,) data, as the HybridFlow paper's
    figures do. Experts are split over `expert_parallel_size` ranks of a stage, counted in the
    same order; where that is less than the tensor group, each expert's width is split over
    the rest of it (Megatron's expert_tensor_parallel_size).

    Raises:
        ValueError: a size below 1, or expert groups that do not fit a stage.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int = 1
    order: Order = "megatron"

    def __post_init__(self) -> None:
        if self.order not in _ORDERS:
            raise ValueError(f"order must be one of {sorted(_ORDERS)}, got {self.order!r}")
        for name in ("tensor", "pipeline", "context", "data", "expert"):
            check_size(f"{name}_parallel_size", getattr(self, f"{name}_parallel_size"))
        expert, tensor, stage = self.expert_parallel_size, self.tensor_parallel_size, self._stage
        if stage % expert or (expert % tensor and tensor % expert):
            raise ValueError(
                f"expert_parallel_size {expert} must divide the {stage} ranks of a pipeline stage, "
                f"and be a divisor or a multiple of tensor_parallel_size {tensor}"
            )

    @classmethod
    def of(cls, parallelism: Parallelism, *, order: Order = "megatron") -> "RankLayout":
        """The layout of a plan's copy or call."""
        return cls(
            tensor_parallel_size=parallelism.tensor_parallel_size,
            pipeline_parallel_size=parallelism.pipeline_parallel_size,
            context_parallel_size=parallelism.context_parallel_size,
            data_parallel_size=parallelism.data_parallel_size,
            expert_parallel_size=parallelism.expert_parallel_size,
            order=order,
        )

    @property
    def _stage(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tensor_parallel_size * self.context_parallel_size * self.data_parallel_size

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self._stage * self.pipeline_parallel_size

    @property
    def data_shards(self) -> int:
        """Data × context ranks: copies of the weights, or shards of them where FSDP splits."""
        return self.data_parallel_size * self.context_parallel_size

    def data_shard(self, rank: int) -> int:
        """The number of the copy or shard that a rank holds of its tensor and pipeline part."""
        place = self.coordinates(rank)
        return place.data * self.context_parallel_size + place.context

    @property
    def expert_tensor_parallel_size(self) -> int:
        """Ranks that share one expert's width."""
        return max(self.tensor_parallel_size // self.expert_parallel_size, 1)

    def _sizes(self) -> list[tuple[str, int]]:
        """Dimensions and their sizes, fastest first."""
        return [(name, getattr(self, f"{name}_parallel_size")) for name in _ORDERS[self.order]]

    def coordinates(self, rank: int) -> Coordinates:
        """Where a rank stands; ValueError if there is no such rank."""
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank must be from 0 to {self.world_size - 1}, got {rank}")
        places = {}
        for name, size in self._sizes():
            rank, places[name] = divmod(rank, size)
        return Coordinates(**places)

    def rank_of(
        self, *, tensor: int = 0, context: int = 0, data: int = 0, pipeline: int = 0
    ) -> int:
        """The rank that stands there; ValueError if a coordinate is beyond its size."""
        places = Coordinates(tensor, context, data, pipeline)._asdict()
        rank, stride = 0, 1
        for name, size in self._sizes():
            if not 0 <= places[name] < size:
                raise ValueError(f"{name} must be from 0 to {size - 1}, got {places[name]}")
            rank += places[name] * stride
            stride *= size
        return rank

    def expert_coordinates(self, rank: int) -> ExpertCoordinates:
        """Where a rank stands among the experts of its stage."""
        place = self.coordinates(rank)
        inner = place.context + self.context_parallel_size * place.data
        within_stage = place.tensor + self.tensor_parallel_size * inner
        rest, expert_tensor = divmod(within_stage, self.expert_tensor_parallel_size)
        expert_data, expert = divmod(rest, self.expert_parallel_size)
        return ExpertCoordinates(expert_tensor, expert, expert_data, place.pipeline)

    def groups(self, *dimensions: str) -> list[list[int]]:
        """Ranks that differ in these dimensions alone.

        Of tensor, context, data, pipeline, e.g. `groups("tensor", "pipeline")` for the
        model-parallel groups; or of expert_tensor, expert, expert_data, pipeline.
        """
        ranks = range(self.world_size)
        if set(dimensions) <= set(Coordinates._fields):
            return groups_over([self.coordinates(rank) for rank in ranks], dimensions)
        return groups_over([self.expert_coordinates(rank) for rank in ranks], dimensions)

    def shard(self, rank: int) -> Shard:
        """The part of the dense weights that a rank holds."""
        place = self.coordinates(rank)
        return Shard(
            tensor=equal_part(place.tensor, self.tensor_parallel_size),
            pipeline=equal_part(place.pipeline, self.pipeline_parallel_size),
        )


def check_size(name: str, size: int) -> None:
    """ValueError unless it is at least 1."""
    if size < 1:
        raise ValueError(f"{name} must be at least 1, got {size}")
