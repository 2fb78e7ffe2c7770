"""How the ranks of a model that trains are regrouped while it generates."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from automap.executor.layout.coordinates import GenerationCoordinates, groups_over
from automap.executor.layout.rank_layout import RankLayout, check_size
from automap.executor.layout.shards import Shard, equal_part

Grouping = Literal["interval", "vanilla", "afresh"]


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

    Experts lie whole on the tensor ranks of a stage where `expert_parallel_size` is t_g; where it
    is 1, every expert's width is split over them.

    Raises:
        ValueError: t_g does not divide t, or p_g does not divide p; in `afresh` grouping, both
            together do not divide the ranks; expert_parallel_size is neither 1 nor t_g.
    """

    training: RankLayout
    tensor_parallel_size: int
    pipeline_parallel_size: int = 1
    grouping: Grouping = "interval"
    expert_parallel_size: int = 1

    def __post_init__(self) -> None:
        if self.grouping not in ("interval", "vanilla", "afresh"):
            raise ValueError(f"grouping must be interval, vanilla or afresh, got {self.grouping!r}")
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            size, trained = getattr(self, name), getattr(self.training, name)
            check_size(name, size)
            if trained % size and self.grouping != "afresh":
                raise ValueError(
                    f"generation {name} {size} must divide the training {name} {trained}"
                )
        if self.expert_parallel_size not in (1, self.tensor_parallel_size):
            raise ValueError(
                f"generation expert_parallel_size {self.expert_parallel_size} must be 1 or "
                f"tensor_parallel_size {self.tensor_parallel_size}"
            )
        if self.world_size % self._replica_size:
            raise ValueError(
                f"generation replicas of {self._replica_size} ranks (tensor_parallel_size "
                f"{self.tensor_parallel_size} × pipeline_parallel_size "
                f"{self.pipeline_parallel_size}) do not divide the {self.world_size} ranks"
            )

    @classmethod
    def of(
        cls,
        training: RankLayout,
        *,
        tensor_parallel_size: int,
        pipeline_parallel_size: int,
        expert_parallel_size: int = 1,
    ) -> "GenerationLayout":
        """In interval grouping where the sizes allow it, else counted afresh."""
        divides = (
            training.tensor_parallel_size % tensor_parallel_size == 0
            and training.pipeline_parallel_size % pipeline_parallel_size == 0
        )
        grouping: Grouping = "interval" if divides else "afresh"
        return cls(
            training, tensor_parallel_size, pipeline_parallel_size, grouping, expert_parallel_size
        )

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
        return self.training.data_shards

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
            data=self.training.data_shard(rank),
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
        return groups_over([self.coordinates(rank) for rank in range(self.world_size)], dimensions)

    def shard(self, rank: int) -> Shard:
        """The part of the dense weights that a rank generates with.

        `training.shard` is what it trains.
        """
        place = self.coordinates(rank)
        return Shard(
            tensor=equal_part(place.tensor, self.tensor_parallel_size),
            pipeline=equal_part(place.pipeline, self.pipeline_parallel_size),
        )

    @property
    def received_fraction(self) -> Fraction:
        """Share of the model's bytes that the transition brings to each rank (HybridFlow, Table 2).

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
        """Share of the model's bytes that the worst rank holds for training alone."""
        return max(trained.size - trained.overlap(own) for trained, own in self._shards())

    def _shards(self) -> set[tuple[Shard, Shard]]:
        """What ranks train and what they generate with."""
        return {(self.training.shard(rank), self.shard(rank)) for rank in range(self.world_size)}
