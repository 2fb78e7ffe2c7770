"""Context parallelism by all-to-all: slices of a packed row, and all of it in attention alone.

Every rank of a context group computes an equal slice of a packed row's tokens. Attention needs the
whole row, but each head by itself: so around it the ranks exchange tokens for heads, and each
attends over the whole row with its part of the heads.

Source: Jacobs et al. 2023 (DeepSpeed Ulysses, arXiv:2309.14509), section 3.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from automap.executor.engines.micro_batches import Packed
from automap.executor.layout import RankLayout


@dataclass(frozen=True, slots=True)
class Slice:
    """What one rank of a context group computes of a packed row."""

    tokens: Tensor
    """[tokens ÷ ranks] int64, rounded up: the row is padded at its end."""
    positions: Tensor
    """[tokens ÷ ranks] int64, each within its own sequence."""
    lengths: Tensor
    """[sequences] int64 of the whole padded row; padding is a sequence of its own."""
    outputs: Tensor
    """[own outputs] int64: which of the row's outputs are computed here."""
    places: Tensor
    """[own outputs] int64: where in the slice."""


@dataclass(frozen=True, slots=True)
class ContextGroup:
    """The ranks that share every packed row; alone, a rank computes all of it."""

    group: dist.ProcessGroup | None = None
    rank: int = 0
    size: int = 1

    @classmethod
    def of(cls, layout: RankLayout) -> "ContextGroup":
        """This process's group. Collective over the layout's ranks."""
        if layout.context_parallel_size == 1:
            return cls()
        group, _ = dist.new_subgroups_by_enumeration(layout.groups("context"))
        place = layout.coordinates(dist.get_rank())
        return cls(group, place.context, layout.context_parallel_size)

    def slice_of(self, packed: Packed, places: Tensor) -> Slice:
        """This rank's slice of a row whose outputs are wanted at `places` [outputs]."""
        total = len(packed.tokens)
        length = -(-total // self.size)
        rest = length * self.size - total
        tokens, positions = pad(packed.tokens, (0, rest)), pad(packed.positions, (0, rest))
        lengths = packed.lengths
        if rest:
            positions[total:] = torch.arange(rest)
            lengths = torch.cat([lengths, torch.tensor([rest])])
        own = slice(self.rank * length, (self.rank + 1) * length)
        outputs = torch.nonzero((places >= own.start) & (places < own.stop)).flatten()
        return Slice(tokens[own], positions[own], lengths, outputs, places[outputs] - own.start)

    def gather(self, values: Tensor, outputs: Tensor, count: int) -> Tensor:
        """All `count` outputs of a row, on all ranks; each rank brings those that it computed.

        What is computed from them must be the same on all ranks: backward, each takes the gradient
        of its own outputs, and the ranks' gradients of the weights add up to the row's.
        """
        if self.group is None:
            return values
        gathered: Tensor = _Gather.apply(values, outputs, count, self.group)
        return gathered

    def to_heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[1, heads, own tokens, head_dim] each → [1, own heads, all tokens, head_dim].

        Fewer key-value heads than ranks are repeated, so that each rank has one.
        """
        repeats = max(self.size // key.shape[1], 1)
        if repeats > 1:
            key, value = (each.repeat_interleave(repeats, dim=1) for each in (key, value))
        return self._exchange(query), self._exchange(key), self._exchange(value)

    def to_tokens(self, output: Tensor) -> Tensor:
        """[1, all tokens, own heads, head_dim] → [1, own tokens, heads, head_dim]."""
        return self._exchange(output)

    def _exchange(self, tensor: Tensor) -> Tensor:
        """Split along dimension 1 among the ranks, and join what they send along dimension 2."""
        if self.group is None:
            return tensor
        exchanged: Tensor = _Exchange.apply(tensor, self.group)
        return exchanged


class _Exchange(torch.autograd.Function):
    """Backward brings every gradient back to where its value came from."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_to_all(tensor, group, split=1, join=2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all_to_all(gradient, ctx.group, split=2, join=1), None


def _all_to_all(tensor: Tensor, group: dist.ProcessGroup, *, split: int, join: int) -> Tensor:
    sent = torch.stack(tensor.chunk(dist.get_world_size(group), dim=split))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return torch.cat(received.unbind(), dim=join)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, outputs: Tensor, count: int, group: dist.ProcessGroup
    ) -> Tensor:
        ctx.save_for_backward(outputs)
        gathered = values.new_zeros(count)
        gathered[outputs] = values
        dist.all_reduce(gathered, group=group)
        return gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (outputs,) = ctx.saved_tensors
        return gradient[outputs], None, None, None
