"""This rank's part of a model: built, filled from and written to folders, parked on the host."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch import Tensor, nn
from transformers import PreTrainedConfig

from automap.executor.engines.megatron import weights
from automap.executor.engines.megatron.architecture import Architecture
from automap.executor.engines.megatron.configuration import (
    Precision,
    Recompute,
    build_configuration,
)
from automap.executor.engines.megatron.decoder import DecoderStage, global_name, mark_split
from automap.executor.engines.megatron.names import NameMap
from automap.executor.engines.megatron.parallel_groups import ParallelGroups
from automap.executor.engines.offload import Offloadable, device
from automap.executor.engines.training_engine import Head, Piece
from automap.executor.layout import RankLayout

SCALAR_HEAD = "score.weight"


class MegatronModel(Offloadable):
    """One model over tensor, data and pipeline ranks, and its weights.

    Collective methods: `load` and `save`.
    """

    def __init__(
        self,
        config: PreTrainedConfig | Path | str,
        *,
        layout: RankLayout,
        head: Head,
        precision: Precision,
        trains: bool,
        recompute: Recompute,
        sequence_parallel: bool,
        virtual_pipeline_parallel_size: int,
        groups: ParallelGroups | None,
        seed: int,
    ) -> None:
        """See `MegatronEngine`."""
        self.layout = layout
        self.head: Head = head
        self.architecture = Architecture.of(config)
        self.device = device()
        self.config = build_configuration(
            self.architecture,
            layout,
            precision=precision,
            recompute=recompute,
            sequence_parallel=sequence_parallel,
            virtual_pipeline_parallel_size=virtual_pipeline_parallel_size,
        )
        self.groups = groups or ParallelGroups(
            layout, virtual_pipeline_parallel_size=virtual_pipeline_parallel_size
        )
        self.groups.check(layout, virtual_pipeline_parallel_size)
        self.place = layout.coordinates(dist.get_rank())
        self.names = NameMap(self.architecture, head, layout)
        self._seed = seed
        super().__init__()
        devices = [self.device] if self.device.type == "cuda" else []
        with self.groups.active(), torch.random.fork_rng(devices):
            # Megatron wants its random streams, although nothing here draws from them.
            model_parallel_cuda_manual_seed(seed)
            self.stages = self._build()
        for stage in self.stages:
            stage.requires_grad_(trains)
        self._draw()

    def _build(self) -> list[DecoderStage]:
        """This pipeline rank's chunks of the model, on which Megatron's marks are complete."""
        last_rank = self.layout.pipeline_parallel_size - 1
        chunks = self.groups.virtual_pipeline_parallel_size
        collection = ProcessGroupCollection.use_mpu_process_groups()
        stages = [
            DecoderStage(
                self.config,
                self.architecture,
                collection,
                head=self.head,
                pre_process=self.place.pipeline == 0 and chunk == 0,
                post_process=self.place.pipeline == last_rank and chunk == chunks - 1,
                vp_stage=chunk if chunks > 1 else None,
            )
            for chunk in range(chunks)
        ]
        for stage in stages:
            stage.to(self.device)  # Megatron's router is made on the host.
            for name, parameter in stage.named_parameters():
                mark_split(global_name(name, stage), parameter, self.names)
        return stages

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Megatron's parameters by names whose layers are counted over the whole model."""
        for stage in self.stages:
            for name, parameter in stage.named_parameters():
                yield global_name(name, stage), parameter

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Megatron's names, layers counted over the whole model, and this rank's shards."""
        self.require_on_device("weights")
        return ((name, parameter.data) for name, parameter in self.named_parameters())

    def pieces(self, name: str, tensor: Tensor, *, tensor_rank: int) -> Sequence[Piece]:
        """See `TrainingEngine`. `name` may be of any pipeline stage."""
        return self.names.pieces(name, tensor, tensor_rank=tensor_rank)

    def is_own(self, name: str) -> bool:
        """Whether this rank stands for a parameter, rather than a tensor rank that holds the same.

        So does a replica on a data rank; a tied embedding's copy never does.
        """
        if self.names.is_copy(name):
            return False
        return self.names.split_dimension(name) is not None or self.place.tensor == 0

    def is_first_copy(self, name: str) -> bool:
        """Whether this rank alone stands for a parameter."""
        if self.names.is_expert(name):
            return self.layout.expert_coordinates(dist.get_rank()).expert_data == 0
        return self.is_own(name) and self.place.data == 0

    # Folders

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Read Hugging Face safetensors, each rank its own parts.

        A missing scalar head is drawn from the seed.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a tensor is missing or has another shape. Both on all ranks alike, and
                nothing has been changed.
        """
        self.require_on_device("weights")
        if not weights.read(self._held(), Path(folder), optional=SCALAR_HEAD):
            self._draw(only=SCALAR_HEAD)

    def save(self, folder: Path) -> None:
        """Write config and safetensors; rank 0 writes.

        Raises:
            OSError: rank 0 could not write; on all ranks, and nothing has been changed.
        """
        self.require_on_device("weights")
        weights.write(
            self._held(only_first=True), Path(folder), self.architecture.config, self.head
        )

    # Host memory

    def weight_tensors(self) -> list[Tensor]:
        """See `Offloadable`."""
        return [each for _, each in self.parameters()]

    def _held(self, *, only_first: bool = False) -> weights.Held:
        return [
            (each.data, self.names.pieces(name, each.data, tensor_rank=self.place.tensor))
            for name, each in self.named_parameters()
            if not only_first or self.is_first_copy(name)
        ]

    @torch.no_grad()
    def _draw(self, only: str | None = None) -> None:
        weights.draw(
            self._held(),
            standard_deviation=self.architecture.standard_deviation,
            seed=self._seed,
            only=only,
        )
