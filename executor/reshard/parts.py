"""What a rank holds, or needs, of Hugging Face tensors: boxes of their index space."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from automap.executor.engines.training_engine import Piece

VOCABULARY_PADDING = 64
"""vLLM splits the vocabulary as if it were a multiple of this."""
_LAYER = re.compile(r"\.layers\.(\d+)\.")
_EXPERT = re.compile(r"\.experts\.(\d+)\.")
_HEADS = re.compile(r"\.(k_proj|v_proj)\.(weight|bias|lora_B\.weight)$")
_ROWS = re.compile(r"\.(q_proj|gate_proj|up_proj)\.(weight|bias|lora_B\.weight)$")
_COLUMNS = re.compile(r"\.(o_proj|down_proj)\.(weight|lora_A\.weight)$")
_VOCABULARY = re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$")


@dataclass(frozen=True, slots=True)
class Part:
    """A box of a tensor: `shape` elements from `start` on, in every dimension."""

    name: str
    full_shape: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def index(self) -> tuple[slice, ...]:
        """Where the part lies in the whole tensor, a slice per dimension."""
        return tuple(
            slice(start, start + size) for start, size in zip(self.start, self.shape, strict=True)
        )

    def common(self, other: "Part") -> "Part | None":
        """What lies in both parts of one tensor; None if nothing does."""
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(min, _stop(self), _stop(other)))
        shape = tuple(last - first for first, last in zip(start, stop, strict=True))
        if any(size <= 0 for size in shape):
            return None
        return Part(self.name, self.full_shape, start, shape, self.dtype)

    def within(self, outer: "Part") -> tuple[slice, ...]:
        """Its index in a tensor that holds only the part `outer`."""
        first = [start - before for start, before in zip(self.start, outer.start, strict=True)]
        return tuple(slice(at, at + size) for at, size in zip(first, self.shape, strict=True))


Held = dict[Part, Tensor]
"""Parts of one tensor with their values."""


def part_of(piece: Piece, dtype: torch.dtype | None = None) -> Part:
    """Where an engine's piece lies; `dtype` instead of its own if it will be converted."""
    start = [0] * len(piece.full_shape)
    start[piece.dim] = piece.start
    kept = dtype if dtype is not None and piece.view.is_floating_point() else piece.view.dtype
    return Part(piece.name, tuple(piece.full_shape), tuple(start), piece.shape, kept)


def whole(part: Part) -> Part:
    """The tensor that a part is of."""
    zeros = (0,) * len(part.full_shape)
    return Part(part.name, part.full_shape, zeros, part.full_shape, part.dtype)


def layer_of(name: str) -> int | None:
    """The transformer layer that a Hugging Face tensor belongs to; None: embedding, norm, head."""
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def expert_of(name: str) -> int | None:
    """The expert of its layer that a Hugging Face tensor belongs to; None: no expert."""
    match = _EXPERT.search(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Target:
    """What one rank of a generation replica reads of each tensor, by vLLM's rules.

    Query heads, key-value heads, intermediate widths and the vocabulary (padded) are split over
    the tensor ranks, key-value heads repeated if there are fewer than ranks; everything else, and
    whatever has a name that is not known here, is read whole. Of an adapter's factors that is what
    the same part of their product needs. Experts are split like all else, or each is read whole by
    the one rank that has it.
    """

    tensor_rank: int
    tensor_parallel_size: int
    num_key_value_heads: int
    layers: tuple[int, int] | None = None
    """First and last + 1 of this pipeline stage; None: all. Tensors outside layers go to all."""
    experts: tuple[int, int] | None = None
    """First and last + 1 of those that this rank has whole; None: a slice of each."""

    def part(self, tensor: Part) -> Part | None:
        """The part that this rank reads of a whole tensor; None where others alone read it."""
        layer = layer_of(tensor.name)
        if self.layers and layer is not None and layer not in range(*self.layers):
            return None
        expert = expert_of(tensor.name)
        if self.experts and expert is not None:
            return tensor if expert in range(*self.experts) else None
        dim = 1 if _COLUMNS.search(tensor.name) else 0
        start, size = self._range(tensor.name, tensor.full_shape[dim])
        starts, shape = list(tensor.start), list(tensor.full_shape)
        starts[dim], shape[dim] = start, size
        return Part(tensor.name, tensor.full_shape, tuple(starts), tuple(shape), tensor.dtype)

    def _range(self, name: str, count: int) -> tuple[int, int]:
        """Start and size along the split dimension."""
        size = self.tensor_parallel_size
        if _HEADS.search(name):
            heads = self.num_key_value_heads
            per_rank = count // heads * max(heads // size, 1)
            return self.tensor_rank * heads // size * (count // heads), per_rank
        if _ROWS.search(name) or _COLUMNS.search(name):
            return self.tensor_rank * (count // size), count // size
        if _VOCABULARY.search(name):
            padded = -(-count // VOCABULARY_PADDING) * VOCABULARY_PADDING
            start = min(self.tensor_rank * (padded // size), count)
            return start, min(padded // size, count - start)
        return 0, count


def of_whole(name: str, tensor: Tensor) -> Held:
    """A whole tensor as its one part."""
    shape = tuple(tensor.shape)
    return {Part(name, shape, (0,) * len(shape), shape, tensor.dtype): tensor}


def covers(held: Iterable[Part], wanted: Part) -> bool:
    """Whether parts that do not overlap hold all of another."""
    common = {part for each in held if (part := wanted.common(each)) is not None}
    return sum(math.prod(part.shape) for part in common) >= math.prod(wanted.shape)


def by_name(parts: Iterable[Part]) -> dict[str, list[Part]]:
    """Parts under their tensors' names, in order."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.name, []).append(part)
    return found


def is_whole(part: Part) -> bool:
    """Whether a part is all of its tensor."""
    return part.shape == part.full_shape


def full_tensor(held: Mapping[Part, Tensor]) -> Tensor:
    """A new tensor of the full shape with the parts in their places; elsewhere uninitialised."""
    first, values = next(iter(held.items()))
    tensor = torch.empty(first.full_shape, dtype=first.dtype, device=values.device)
    for part, values in held.items():
        tensor[part.index].copy_(values.reshape(part.shape))
    return tensor


def view_bytes(memory: Tensor, part: Part) -> Tensor:
    """The beginning of a memory of bytes as a tensor shaped like a part."""
    return memory[: part.nbytes].view(part.dtype).view(part.shape)


def _stop(part: Part) -> Sequence[int]:
    return [start + size for start, size in zip(part.start, part.shape, strict=True)]
