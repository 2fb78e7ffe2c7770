"""What each rank holds of each parameter."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement, Replicate, Shard, _StridedShard

from automap.executor.engines.fsdp.network import HEAD_NAMES, PackedNetwork
from automap.executor.engines.training_engine import Piece

ADAPTER_PREFIX = "base_model.model."
"""The beginning of the names that peft gives an adapter's tensors."""


@dataclass(frozen=True, slots=True)
class ShardedParameter:
    """A parameter that FSDP (and tensor parallelism) split.

    Tensor ranks split it evenly along `tensor_dim`; data × context ranks split each such part into
    data shards along `data_dim` as torch.chunk does: ceil(n ÷ shards) each, so that the last may
    be smaller, or empty.
    """

    name: str
    """The Hugging Face name; of an adapter's parameter, peft's."""
    parameter: nn.Parameter
    """A DTensor on the mesh of data shards, or of data shards and tensor ranks."""
    tensor_dim: int | None
    data_dim: int
    data_shards: int
    tensor_ranks: int

    @property
    def is_adapter(self) -> bool:
        """Whether it belongs to the adapter, with the head that trains beside it."""
        return self.name.startswith(ADAPTER_PREFIX)

    @property
    def is_lora(self) -> bool:
        """Whether it is one factor of an adapter's product."""
        return ".lora_" in self.name

    @property
    def hugging_face_name(self) -> str:
        """In the whole model's folder; an adapter's factors have none there."""
        return self.name.removeprefix(ADAPTER_PREFIX)

    def nbytes(self, dtype: torch.dtype | None = None) -> int:
        """Bytes of the whole tensor, in the dtype given or its own."""
        return math.prod(self.shape) * (dtype or self.parameter.dtype).itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        return tuple(self.parameter.shape)

    def local(self) -> Tensor:
        """This rank's part; shares storage with the parameter."""
        return _dtensor(self.parameter).to_local().detach()

    def like(self, local: Tensor) -> DTensor:
        """Another local part, such as a moment's, as a tensor sharded in the same way."""
        own = _dtensor(self.parameter)
        return DTensor.from_local(
            local,
            own.device_mesh,
            own.placements,
            run_check=False,
            shape=own.shape,
            stride=own.stride(),
        )

    def gather(self, dtype: torch.dtype | None = None) -> Tensor:
        """The whole tensor on all ranks, by one all-gather of what `dtype` needs.

        Not by DTensor.full_tensor: where both kinds of ranks split a dimension it gathers twice.
        """
        local = self.local() if dtype is None else self.local().to(dtype)
        owners = [
            self.ranges(data_shard=data, tensor_rank=tensor)
            for data in range(self.data_shards)
            for tensor in range(self.tensor_ranks if self.tensor_dim is not None else 1)
        ]
        group = None if self.tensor_dim is not None else self._data_group()
        most = math.prod(_sizes(owners[0]))
        padded = torch.nn.functional.pad(local.flatten(), (0, most - local.numel()))
        received = local.new_empty(len(owners) * most)
        dist.all_gather_single(received, padded, group=group)
        whole = local.new_empty(self.shape)
        for ranges, part in zip(owners, received.split(most), strict=True):
            sizes = _sizes(ranges)
            whole[ranges] = part[: math.prod(sizes)].view(sizes)
        return whole

    def _data_group(self) -> dist.ProcessGroup:
        return _dtensor(self.parameter).device_mesh.get_group("data")

    def ranges(self, *, data_shard: int, tensor_rank: int) -> tuple[slice, ...]:
        """The part of the whole tensor that a rank holds: a slice of every dimension."""
        ranges = [slice(0, count) for count in self.shape]
        if self.tensor_dim is not None:
            ranges[self.tensor_dim] = _part(ranges[self.tensor_dim], tensor_rank, self.tensor_ranks)
        ranges[self.data_dim] = _part(ranges[self.data_dim], data_shard, self.data_shards)
        return tuple(ranges)

    def piece(self, tensor: Tensor, *, data_shard: int, tensor_rank: int) -> Piece | None:
        """A rank's part as a range of one dimension; None if it holds nothing.

        Raises:
            ValueError: the part is a block, see `fsdp.parallel`.
        """
        ranges = self.ranges(data_shard=data_shard, tensor_rank=tensor_rank)
        shape = _sizes(ranges)
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"data shard {data_shard}, tensor rank {tensor_rank} hold {shape} of {self.name}, "
                f"not {tuple(tensor.shape)}"
            )
        split = [dim for dim, count in enumerate(self.shape) if shape[dim] != count]
        if len(split) > 1:
            raise ValueError(
                f"{self.name} {self.shape} does not split evenly over {self.tensor_ranks} tensor × "
                f"{self.data_shards} data shards along one dimension: gather it with full_tensors"
            )
        dim = split[0] if split else self.data_dim
        own = ranges[dim]
        if own.start == own.stop:
            return None
        return Piece(self.name, self.shape, dim, own.start, own.stop - own.start, tensor)


def sharded_parameters(network: PackedNetwork) -> list[ShardedParameter]:
    """All parameters of a network to which FSDP has been applied."""
    return [
        _describe(_public_name(name, network), parameter)
        for name, parameter in network.model.named_parameters()
    ]


def _public_name(name: str, network: PackedNetwork) -> str:
    if ".lora_" in name:
        return ADAPTER_PREFIX + name.replace(".default.", ".")
    if network.adapted and name.startswith(f"{HEAD_NAMES['scalar']}."):
        return ADAPTER_PREFIX + name
    return name.replace(".base_layer.", ".")


def _describe(name: str, parameter: nn.Parameter) -> ShardedParameter:
    own = _dtensor(parameter)
    sizes = dict(zip(own.device_mesh.mesh_dim_names or (), own.device_mesh.shape, strict=True))
    dims = dict(zip(sizes, map(_split_dim, own.placements), strict=True))
    data_dim = dims["data"]
    if data_dim is None:
        raise ValueError(f"{name} is not split into data shards: {own.placements}")
    return ShardedParameter(
        name=name,
        parameter=parameter,
        tensor_dim=dims.get("tensor"),
        data_dim=data_dim,
        data_shards=sizes["data"],
        tensor_ranks=sizes.get("tensor", 1),
    )


def _split_dim(placement: Placement) -> int | None:
    if isinstance(placement, Replicate):
        return None
    assert isinstance(placement, Shard | _StridedShard)
    return placement.dim


def _sizes(ranges: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(each.stop - each.start for each in ranges)


def _part(whole: slice, index: int, count: int) -> slice:
    length = whole.stop - whole.start
    size = -(-length // count)
    start = min(index * size, length)
    return slice(whole.start + start, whole.start + min(start + size, length))


def _dtensor(parameter: nn.Parameter) -> DTensor:
    if not isinstance(parameter, DTensor):
        raise TypeError("parameter is gathered: only between calls is it sharded")
    return parameter


def full_tensors(
    parameters: list[ShardedParameter], dtype: torch.dtype | None
) -> Iterator[tuple[str, Tensor]]:
    """Whole tensors one at a time; each may be freed before the next is gathered."""
    for each in parameters:
        yield each.name, each.gather(dtype)


def copy_local(source: DTensor, target: Tensor) -> None:
    """The local part of a sharded tensor into this rank's own, unless it is that already."""
    local = source.to_local()
    if local.data_ptr() != target.data_ptr():
        target.copy_(local)
