"""Which rank holds which part of a model: parallel groups for training and for generation.

Pure arithmetic. Ranks count from 0 within the model's own processes. All groups come as torch
wants them: ranks ascending, groups by their first rank, every rank in exactly one group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple

from planner.result import Parallelism

Order = Literal["megatron", "hybridflow"]
Grouping = Literal["interval", "vanilla", "afresh"]
Interval = tuple[Fraction, Fraction]

_ORDERS: dict[str, tuple[str, ...]] = {
    "megatron": ("tensor", "context", "data", "pipeline"),
    "hybridflow": ("tensor", "pipeline", "context", "data"),
}


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


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of every layer's width and a range of the layers, as fractions from 0 to 1.

    Exact where the sizes divide heads, widths and layers, and stages are not interleaved.
    """

    tensor: Interval
    pipeline: Interval

    @property
    def size(self) -> Fraction:
        """As a fraction of the model."""
        return _length(self.tensor) * _length(self.pipeline)

    def overlap(self, other: "Shard") -> Fraction:
        """What both hold, as a fraction of the model."""
        return _common(self.tensor, other.tensor) * _common(self.pipeline, other.pipeline)

    def contains(self, other: "Shard") -> bool:
        """Whether the other lies wholly inside."""
        return self.overlap(other) == other.size


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
            _check_size(f"{name}_parallel_size", getattr(self, f"{name}_parallel_size"))
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
            return _groups([self.coordinates(rank) for rank in ranks], dimensions)
        return _groups([self.expert_coordinates(rank) for rank in ranks], dimensions)

    def shard(self, rank: int) -> Shard:
        """The part of the dense weights that a rank holds."""
        place = self.coordinates(rank)
        return Shard(
            tensor=_interval(place.tensor, self.tensor_parallel_size),
            pipeline=_interval(place.pipeline, self.pipeline_parallel_size),
        )


@dataclass(frozen=True, slots=True)
class GenerationLayout:
    """Training ranks regrouped for generation: p_g-t_g-d_g-d in HybridFlow's terms.

    Each of the d copies of the training weights (data × context) becomes d_g = p·t ÷ (p_g·t_g)
    generation replicas. In `interval` grouping (HybridFlow, section 5) tensor and pipeline
    groups take ranks at intervals of t/t_g and p/p_g, so that every rank's training shard lies
    inside its generation shard. In `vanilla` grouping the ranks are counted afresh in the
    training's order: for comparison only.

    Where t_g or p_g exceeds what training has (FSDP trains on data ranks alone, and the model is
    too large for one of them to generate), no training shard lies inside a generation shard. Then
    the ranks are counted `afresh` as well, and each replica is a copy of its own.

    Raises:
        ValueError: t_g does not divide t, or p_g does not divide p; in `afresh` grouping, both
            together do not divide the ranks.
    """

    training: RankLayout
    tensor_parallel_size: int
    pipeline_parallel_size: int = 1
    grouping: Grouping = "interval"

    def __post_init__(self) -> None:
        if self.grouping not in ("interval", "vanilla", "afresh"):
            raise ValueError(f"grouping must be interval, vanilla or afresh, got {self.grouping!r}")
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            size, trained = getattr(self, name), getattr(self.training, name)
            _check_size(name, size)
            if trained % size and self.grouping != "afresh":
                raise ValueError(
                    f"generation {name} {size} must divide the training {name} {trained}"
                )
        if self.world_size % self._replica_size:
            raise ValueError(
                f"generation replicas of {self._replica_size} ranks (tensor_parallel_size "
                f"{self.tensor_parallel_size} × pipeline_parallel_size "
                f"{self.pipeline_parallel_size}) do not divide the {self.world_size} ranks"
            )

    @classmethod
    def of(
        cls, training: RankLayout, *, tensor_parallel_size: int, pipeline_parallel_size: int
    ) -> "GenerationLayout":
        """In interval grouping where the sizes allow it, else counted afresh."""
        divides = (
            training.tensor_parallel_size % tensor_parallel_size == 0
            and training.pipeline_parallel_size % pipeline_parallel_size == 0
        )
        grouping: Grouping = "interval" if divides else "afresh"
        return cls(training, tensor_parallel_size, pipeline_parallel_size, grouping)

    @property
    def world_size(self) -> int:
        """Ranks in all; the same as in training."""
        return self.training.world_size

    @property
    def micro_data_parallel_size(self) -> int:
        """d_g: generation replicas per copy of the training weights."""
        if self.grouping == "afresh":
            return 1
        return self._tensor_interval * self._pipeline_interval

    @property
    def data_parallel_size(self) -> int:
        """d: copies of the training weights; `afresh`, of the generation weights."""
        if self.grouping == "afresh":
            return self.world_size // self._replica_size
        return self.training.data_parallel_size * self.training.context_parallel_size

    @property
    def num_replicas(self) -> int:
        """Generation replicas in all."""
        return self.micro_data_parallel_size * self.data_parallel_size

    @property
    def _replica_size(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def _tensor_interval(self) -> int:
        return self.training.tensor_parallel_size // self.tensor_parallel_size

    @property
    def _pipeline_interval(self) -> int:
        return self.training.pipeline_parallel_size // self.pipeline_parallel_size

    def coordinates(self, rank: int) -> GenerationCoordinates:
        """Where a rank stands; ValueError if there is no such rank."""
        if self.grouping != "interval":
            return self._counted_afresh(rank)
        place = self.training.coordinates(rank)
        tensor, tensor_offset = divmod(place.tensor, self._tensor_interval)
        pipeline, pipeline_offset = divmod(place.pipeline, self._pipeline_interval)
        return GenerationCoordinates(
            tensor=tensor,
            pipeline=pipeline,
            micro_data=pipeline_offset * self._tensor_interval + tensor_offset,
            data=place.data * self.training.context_parallel_size + place.context,
        )

    def _counted_afresh(self, rank: int) -> GenerationCoordinates:
        afresh = RankLayout(
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            data_parallel_size=self.num_replicas,
            order=self.training.order,
        )
        place = afresh.coordinates(rank)
        data, micro_data = divmod(place.data, self.micro_data_parallel_size)
        return GenerationCoordinates(place.tensor, place.pipeline, micro_data, data)

    def replica(self, rank: int) -> int:
        """The generation replica that a rank belongs to; those of one training copy follow on."""
        place = self.coordinates(rank)
        return place.data * self.micro_data_parallel_size + place.micro_data

    def groups(self, *dimensions: str) -> list[list[int]]:
        """Ranks that differ in these dimensions alone: tensor, pipeline, micro_data, data.

        `groups("micro_data")` are the groups of the transition's all-gather,
        `groups("tensor", "pipeline")` the generation replicas.
        """
        return _groups([self.coordinates(rank) for rank in range(self.world_size)], dimensions)

    def shard(self, rank: int) -> Shard:
        """The part of the weights that a rank generates with; `training.shard` is the other."""
        place = self.coordinates(rank)
        return Shard(
            tensor=_interval(place.tensor, self.tensor_parallel_size),
            pipeline=_interval(place.pipeline, self.pipeline_parallel_size),
        )

    @property
    def received_fraction(self) -> Fraction:
        """Of the model's bytes, what the transition brings to each rank (HybridFlow, Table 2).

        Interval: (d_g − 1) ÷ (t·p). Vanilla gathers the whole model: (t·p − 1) ÷ (t·p). Afresh:
        what the worst rank lacks, if data ranks hold copies.
        """
        if self.grouping == "afresh":
            return max(own.size - own.overlap(trained) for trained, own in self._shards())
        parts = self.training.tensor_parallel_size * self.training.pipeline_parallel_size
        if self.micro_data_parallel_size == 1:
            return Fraction(0)
        missing = self.micro_data_parallel_size if self.grouping == "interval" else parts
        return Fraction(missing - 1, parts)

    @property
    def redundant_fraction(self) -> Fraction:
        """Of the model's bytes, what the worst rank holds for training and not for generation."""
        return max(trained.size - trained.overlap(own) for trained, own in self._shards())

    def _shards(self) -> set[tuple[Shard, Shard]]:
        """What ranks train and what they generate with."""
        return {(self.training.shard(rank), self.shard(rank)) for rank in range(self.world_size)}


def _groups(
    coordinates: Sequence[Coordinates | ExpertCoordinates | GenerationCoordinates],
    dimensions: tuple[str, ...],
) -> list[list[int]]:
    names = coordinates[0]._fields
    if not dimensions or set(dimensions) - set(names):
        raise ValueError(f"groups are over some of {', '.join(names)}; got {dimensions}")
    fixed = [index for index, name in enumerate(names) if name not in dimensions]
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(coordinates):
        groups.setdefault(tuple(place[index] for index in fixed), []).append(rank)
    return list(groups.values())


def _check_size(name: str, size: int) -> None:
    if size < 1:
        raise ValueError(f"{name} must be at least 1, got {size}")


@cache
def _interval(index: int, count: int) -> Interval:
    return Fraction(index, count), Fraction(index + 1, count)


def _length(interval: Interval) -> Fraction:
    return interval[1] - interval[0]


def _common(one: Interval, other: Interval) -> Fraction:
    return max(min(one[1], other[1]) - max(one[0], other[0]), Fraction(0))
