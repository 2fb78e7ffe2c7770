"""A sharded model: built, filled, gathered, saved, and parked on the host."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from peft import LoraConfig
from torch import Tensor
from transformers import PreTrainedConfig

from automap.executor.engines.fsdp import lora, weights
from automap.executor.engines.fsdp.context_parallel import ContextGroup
from automap.executor.engines.fsdp.network import (
    HEAD_NAMES,
    build_network,
    fill_buffers,
    read_config,
)
from automap.executor.engines.fsdp.parallel import (
    Recompute,
    Sharding,
    apply_fsdp,
    apply_recompute,
    apply_tensor_parallel,
    build_mesh,
    check_context_parallel,
    check_tensor_parallel,
)
from automap.executor.engines.fsdp.sharded_parameters import (
    ShardedParameter,
    full_tensors,
    sharded_parameters,
)
from automap.executor.engines.offload import Offloadable, device
from automap.executor.engines.tensor_folder import TensorFolder, save_folder
from automap.executor.engines.training_engine import Head, Piece
from automap.executor.layout import RankLayout

Precision = Literal["bf16", "fp32"]

DTYPES: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}


class FsdpModel(Offloadable):
    """A transformers model over data shards (FSDP2) and tensor ranks (DTensor), and its weights.

    Collective methods: `load`, `save`, and advancing `full_tensors`.
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
        sharding: Sharding,
        lora_rank: int | None,
        seed: int,
    ) -> None:
        """See `FsdpEngine`."""
        self.layout = layout
        self.device = device()
        self.mesh = build_mesh(layout, self.device.type)
        self.context = ContextGroup.of(layout)
        self.place = layout.coordinates(dist.get_rank())
        self.data_shard = layout.data_shard(dist.get_rank())
        self.head: Head = head
        self._dtype = DTYPES[precision]
        self._seed = seed
        super().__init__()
        self._lora: LoraConfig | None = None
        self._build(read_config(config), trains, recompute, sharding, lora_rank)
        self._draw(self._all)

    def _build(
        self,
        config: PreTrainedConfig,
        trains: bool,
        recompute: Recompute,
        sharding: Sharding,
        lora_rank: int | None,
    ) -> None:
        masters = trains and lora_rank is None
        dtype = torch.float32 if masters else self._dtype
        network = build_network(config, self.head, dtype=dtype)
        if lora_rank is not None:
            self._lora = lora.lora_config(network, lora_rank)
            lora.add_adapter(network, self._lora)
        if not trains:
            network.requires_grad_(False)
        self.summed: frozenset[str] = frozenset()
        if self.layout.context_parallel_size > 1:
            check_context_parallel(config, self.layout)
        if self.layout.tensor_parallel_size > 1:
            check_tensor_parallel(config, self.layout.tensor_parallel_size)
            self.summed = apply_tensor_parallel(network, self.mesh["tensor"])
        apply_recompute(network, recompute)
        apply_fsdp(network, self.mesh["data"], sharding=sharding, compute_dtype=self._dtype)
        network.to_empty(device=self.device)
        fill_buffers(network)
        self.network = network
        self._all = sharded_parameters(network)
        self._by_name = {each.name: each for each in self._all}

    @property
    def trained(self) -> list[ShardedParameter]:
        """The parameters that an optimizer would update."""
        return [each for each in self._all if each.parameter.requires_grad]

    # Sharded and whole

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face names and this rank's parts; of LoRA, the base. Shared, not copied."""
        self.require_on_device("weights")
        return ((each.name, each.local()) for each in self._all if not each.is_adapter)

    def pieces(
        self, name: str, tensor: Tensor, *, tensor_rank: int, data_shard: int | None = None
    ) -> Sequence[Piece]:
        """See `TrainingEngine`. `data_shard` says which it is; None: this rank's own.

        At most one piece; none of an empty shard.
        """
        data = self.data_shard if data_shard is None else data_shard
        piece = self._by_name[name].piece(tensor, data_shard=data, tensor_rank=tensor_rank)
        return [] if piece is None else [piece]

    def adapter_pieces(self) -> Iterator[Piece]:
        """What this rank holds of the adapter: of the weight NAME.weight, NAME.lora_A.weight and B.

        At most one piece of each; shared, not copied.
        """
        self.require_on_device("weights")
        place = {"data_shard": self.data_shard, "tensor_rank": self.place.tensor}
        for each in self._all:
            piece = each.piece(each.local(), **place) if each.is_lora else None
            if piece is not None:
                yield replace(piece, name=each.hugging_face_name)

    def full_tensors(
        self, *, adapter_only: bool = False, dtype: torch.dtype | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors, gathered on all ranks one at a time; all ranks must take them all.

        Args:
            adapter_only: what trains with LoRA, under peft's names; else the (base) weights.
            dtype: to send and return; None: as they are kept.
        """
        self.require_on_device("weights")
        if adapter_only:
            self._lora_config()
        chosen = [each for each in self._all if each.is_adapter == adapter_only]
        return full_tensors(chosen, dtype)

    def merged_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors of a model that computes the same without an adapter; as `full_tensors`.

        Without LoRA the weights themselves.
        """
        self.require_on_device("weights")
        scaling = 0.0 if self._lora is None else self._lora.lora_alpha / self._lora.r
        return (
            (each.hugging_face_name, lora.merged(each, self._by_name, scaling))
            for each in self._all
            if not each.is_lora
        )

    # Folders

    def load(self, folder: Path) -> None:
        """Read Hugging Face safetensors, each rank its own parts.

        A missing scalar head is drawn from the seed; adapters are left alone.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a tensor is missing or has another shape; nothing has been changed.
        """
        self.require_on_device("weights")
        wanted = [each for each in self._all if not each.is_lora]
        head = f"{HEAD_NAMES['scalar']}.weight" if self.head == "scalar" else ""
        names = {each.hugging_face_name: each for each in wanted}
        absent = weights.read(names, self._ranges, TensorFolder(folder), may_miss=head)
        self._draw(absent)

    def save(self, folder: Path) -> None:
        """Write config and safetensors, in the engine's precision; rank 0 writes.

        With LoRA the adapters are added to the weights: what is saved is what the model computes.

        Raises:
            OSError: rank 0 could not write; on all ranks, and nothing has been changed.
        """
        self.require_on_device("weights")
        saved = [each for each in self._all if not each.is_lora]
        config = self.network.model.config
        config.architectures = [type(self.network.model).__name__]
        config.dtype = self._dtype
        save_folder(
            folder,
            ((name, tensor.to(self._dtype)) for name, tensor in self.merged_tensors()),
            sizes={each.hugging_face_name: each.nbytes(self._dtype) for each in saved},
            write_rest=config.save_pretrained,
        )

    # Host memory

    def weight_tensors(self) -> list[Tensor]:
        """See `Offloadable`; in fp32 they are the masters, too."""
        return [each.local() for each in self._all]

    def adapter_disabled(self) -> AbstractContextManager[None]:
        """While it lasts, the model is its frozen base: the reference of an actor with LoRA."""
        self._lora_config()
        return lora.disabled(self.network)

    def _lora_config(self) -> LoraConfig:
        if self._lora is None:
            raise ValueError("the model has no adapter: lora_rank is None")
        return self._lora

    def _ranges(self, parameter: ShardedParameter) -> tuple[slice, ...]:
        return parameter.ranges(data_shard=self.data_shard, tensor_rank=self.place.tensor)

    def _draw(self, parameters: list[ShardedParameter]) -> None:
        weights.draw(
            parameters,
            self._ranges,
            standard_deviation=getattr(self.network.model.config, "initializer_range", 0.02),
            seed=self._seed,
        )
