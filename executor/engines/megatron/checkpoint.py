"""State in pieces of Hugging Face tensors, for torch.distributed.checkpoint.

A checkpoint's tensors are named and shaped like those of the Hugging Face folder, whatever the
layout that wrote them: each rank saves the rectangles that it holds, and another layout reads
the rectangles that it wants. The distributed optimizer's shards are ranges of a flattened
parameter; a range of a matrix is up to three rectangles.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from automap.executor.engines.megatron.model import MegatronModel
from automap.executor.engines.megatron.optimizer import MOMENTS, Optimizer
from automap.executor.engines.training_engine import Piece

Rectangle = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""


class Shards(torch.Tensor):
    """The rectangles of one tensor that this rank holds, as torch.distributed.checkpoint wants.

    It has the whole tensor's shape and none of its storage; the parts have theirs.
    """

    parts: list[tuple[tuple[int, ...], Tensor]]
    """Offsets in the whole tensor, and the values there."""
    saves: bool
    """Whether this rank's parts are written; a replica's are only read."""

    @staticmethod
    def __new__(
        cls, shape: tuple[int, ...], parts: list[tuple[tuple[int, ...], Tensor]], *, saves: bool
    ) -> "Shards":
        first = parts[0][1]
        own = torch.Tensor._make_wrapper_subclass(
            cls, torch.Size(shape), dtype=first.dtype, device=first.device
        )
        own.parts = parts
        own.saves = saves
        return own

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Shards({tuple(self.shape)}, {len(self.parts)} parts)"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # Asynchronous saving makes an empty tensor on the host and copies the attributes over.
        if func is torch.ops.aten.new_empty.default:
            own = args[0]
            empty = [(offsets, part.new_empty(0)) for offsets, part in own.parts]
            return cls(tuple(own.shape), empty, saves=own.saves)
        if func is torch.ops.aten.detach.default:
            own = args[0]
            return cls(tuple(own.shape), own.parts, saves=own.saves)
        raise NotImplementedError(f"{func} on the shards of a checkpoint")

    def __create_write_items__(self, fqn: str, _: Any) -> list[WriteItem]:
        return [self._write_item(fqn, *part) for part in self.parts] if self.saves else []

    def _write_item(self, fqn: str, offsets: tuple[int, ...], values: Tensor) -> WriteItem:
        data = TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(offsets), values.shape),
            properties=TensorProperties.create_from_tensor(values),
            size=self.shape,
        )
        index = MetadataIndex(fqn, torch.Size(offsets))
        return WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(at), each.shape) for at, each in self.parts]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        for offsets, values in self.parts:
            if index.offset == torch.Size(offsets):
                return values
        raise KeyError(f"{index.fqn} has no part at {index.offset} on this rank")


def model_state(model: MegatronModel) -> dict[str, Shards]:
    """This rank's weights by Hugging Face name."""
    builder = _StateBuilder(model)
    for name, parameter in model.named_parameters():
        builder.add(name, parameter.data, start=0, values=parameter)
    return builder.state()


def optimizer_state(model: MegatronModel, optimizer: Optimizer) -> dict[str, dict[str, Shards]]:
    """This rank's masters, where they are not the weights, and moments, likewise."""
    kinds = MOMENTS if model.config.params_dtype == torch.float32 else ("masters", *MOMENTS)
    builders = {kind: _StateBuilder(model) for kind in kinds}
    names = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, start, master in optimizer.masters():
        for kind, builder in builders.items():
            values = master if kind == "masters" else optimizer.moment(master, kind)
            builder.add(names[parameter], parameter.data, start=start, values=values)
    return {kind: builder.state() for kind, builder in builders.items()}


@torch.no_grad()
def copy_state(source: dict[str, Shards], target: dict[str, Shards]) -> None:
    """Values of one state into another; nothing to do where they share storage.

    Raises:
        ValueError: they are not of the same model and layout.
    """
    if set(source) != set(target):
        unlike = sorted(set(source) ^ set(target))
        raise ValueError(f"the state is of another model or layout: {', '.join(unlike[:5])} differ")
    for name, shards in target.items():
        given = dict(source[name].parts)
        for offsets, values in shards.parts:
            if offsets not in given or given[offsets].shape != values.shape:
                raise ValueError(f"the state of {name} has another layout: none at {offsets}")
            if given[offsets].data_ptr() != values.data_ptr():
                values.copy_(given[offsets])


class _StateBuilder:
    """Collects what a rank holds of Hugging Face tensors, parameter by parameter."""

    def __init__(self, model: MegatronModel) -> None:
        self._model = model
        self._found: dict[str, tuple[tuple[int, ...], list[tuple[tuple[int, ...], Tensor]]]] = {}
        self._saved: set[str] = set()

    def add(self, name: str, parameter: Tensor, *, start: int, values: Tensor) -> None:
        """Add a range of a parameter's elements.

        Args:
            name: of the parameter.
            parameter: local.
            start: where in the flattened parameter the range begins.
            values: the range, flat or shaped like the parameter; the parameter's own or others'.
        """
        tensor_rank = self._model.place.tensor
        pieces = self._model.pieces(name, parameter, tensor_rank=tensor_rank)
        saves = self._model.is_own(name)
        flat = values.detach().view(-1)
        for piece in pieces:
            first = int(piece.view.storage_offset() - parameter.storage_offset())
            lower = max(start, first)
            upper = min(start + len(flat), first + piece.view.numel())
            if lower >= upper:
                continue
            _, parts = self._found.setdefault(piece.name, (piece.full_shape, []))
            within = flat[lower - start : upper - start]
            for offsets, part in _cut(piece, lower - first, within):
                parts.append((offsets, part))
            if saves:
                self._saved.add(piece.name)

    def state(self) -> dict[str, Shards]:
        """By Hugging Face name."""
        return {
            name: Shards(shape, parts, saves=name in self._saved)
            for name, (shape, parts) in self._found.items()
        }


def _cut(piece: Piece, start: int, flat: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Elements of a piece from `start` on, as rectangles of the Hugging Face tensor."""
    position = 0
    for offsets, sizes in rectangles(piece.shape, start, start + len(flat)):
        count = torch.Size(sizes).numel()
        moved = list(offsets)
        moved[piece.dim] += piece.start
        yield tuple(moved), flat[position : position + count].view(sizes)
        position += count


def rectangles(shape: tuple[int, ...], start: int, stop: int) -> list[Rectangle]:
    """Elements `start` to `stop` of a flattened vector or matrix as rectangles, in order."""
    if len(shape) == 1:
        return [((start,), (stop - start,))]
    _, width = shape
    (first, left), (last, right) = divmod(start, width), divmod(stop, width)
    if first == last:
        return [((first, left), (1, right - left))]
    found: list[Rectangle] = []
    if left:
        found.append(((first, left), (1, width - left)))
        first += 1
    if first < last:
        found.append(((first, 0), (last - first, width)))
    if right:
        found.append(((last, 0), (1, right)))
    return found
