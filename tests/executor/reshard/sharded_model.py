"""A Llama's tensors cut over tensor ranks and pipeline stages, as an engine would hold them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from automap.executor.engines.training_engine import Piece
from automap.executor.layout import RankLayout

HEAD_DIM = 8
_ROWS = ("q_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")
_HEADS = ("k_proj", "v_proj")
_COLUMNS = ("o_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Llama:
    """Shapes of all tensors, and their values: a function of name and step."""

    num_layers: int = 8
    hidden_size: int = 32
    intermediate_size: int = 64
    num_attention_heads: int = 8
    num_key_value_heads: int = 8
    vocab_size: int = 128
    tied: bool = False
    only_matrices: bool = False
    """Layers without norms, no embedding and no head: every byte is evenly split."""
    chunks: int = 1
    """Ranges of layers that a stage holds; above 1, interleaved."""
    num_experts: int = 0
    """In the place of every MLP, with a router; 0: none."""
    dtype: torch.dtype = torch.float32

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden = self.hidden_size
        heads, groups = self.num_attention_heads * HEAD_DIM, self.num_key_value_heads * HEAD_DIM
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_layers):
            found |= {
                f"model.layers.{layer}.{name}.weight": shape
                for name, shape in {
                    "input_layernorm": (hidden,),
                    "self_attn.q_proj": (heads, hidden),
                    "self_attn.k_proj": (groups, hidden),
                    "self_attn.v_proj": (groups, hidden),
                    "self_attn.o_proj": (hidden, heads),
                    "post_attention_layernorm": (hidden,),
                    **self._mlp(),
                }.items()
            }
        found["model.norm.weight"] = (hidden,)
        if not self.tied:
            found["lm_head.weight"] = (self.vocab_size, hidden)
        if self.only_matrices:
            return {name: shape for name, shape in found.items() if kind_of(name) == "layers"}
        return found

    def _mlp(self) -> dict[str, tuple[int, ...]]:
        hidden, width = self.hidden_size, self.intermediate_size
        one = {
            "gate_proj": (width, hidden),
            "up_proj": (width, hidden),
            "down_proj": (hidden, width),
        }
        if not self.num_experts:
            return {f"mlp.{name}": shape for name, shape in one.items()}
        experts = {
            f"mlp.experts.{expert}.{name}": shape
            for expert in range(self.num_experts)
            for name, shape in one.items()
        }
        return {"mlp.gate": (self.num_experts, hidden), **experts}

    def value(self, name: str, *, step: int = 0) -> Tensor:
        """The whole tensor; integers, so that equality is exact in any dtype of 8 bits or more."""
        shape = self.shapes()[name]
        first = (sum(name.encode()) * 31 + step * 17) % 97
        values = (torch.arange(math.prod(shape)) * 7 + first) % 127
        return values.reshape(shape).to(self.dtype)

    def nbytes(self, *, kind: str) -> int:
        """Of all split tensors of layers, of embedding and head, or of all norms."""
        return sum(
            math.prod(shape) * self.dtype.itemsize
            for name, shape in self.shapes().items()
            if kind == kind_of(name)
        )

    def stage_of(self, name: str, stages: int) -> list[int]:
        """The pipeline stages that hold a tensor."""
        if ".layers." in name:
            chunk = int(name.split(".")[2]) * stages * self.chunks // self.num_layers
            return [chunk % stages]
        if "embed" in name:
            return [0, stages - 1] if self.tied else [0]
        return [stages - 1]


def expert_of(name: str) -> int | None:
    """The expert that a tensor is of, or None."""
    return int(name.split(".experts.")[1].split(".")[0]) if ".experts." in name else None


def kind_of(name: str) -> str:
    """`layers`: the matrices of layers; `ends`: embedding and head; `replicated`: norms."""
    if "norm" in name:
        return "replicated"
    return "layers" if ".layers." in name else "ends"


class ShardedLlama:
    """One rank's shard: all its parameters in one storage, and no piece of them contiguous."""

    def __init__(self, llama: Llama, layout: RankLayout, rank: int) -> None:
        self.llama, self.layout = llama, layout
        self.place = layout.coordinates(rank)
        self._pieces: list[Piece] = []
        names = [
            name
            for name in llama.shapes()
            if self.place.pipeline in llama.stage_of(name, layout.pipeline_parallel_size)
            and self._has_expert(name, layout.expert_coordinates(rank).expert)
        ]
        cuts = {name: self._cut(name) for name in names}
        total = sum(math.prod(self._shape(name, *cuts[name])) for name in names)
        self.memory = torch.zeros(total, dtype=llama.dtype)
        at = 0
        for name in names:
            shape = self._shape(name, *cuts[name])
            flat = self.memory[at : at + math.prod(shape)]
            at += len(flat)
            view = flat.view(shape) if len(shape) == 1 else flat.view(shape[::-1]).t()
            if len(shape) == 2 and shape[0] % 2 == 0:
                # In three dimensions, as a view of interleaved heads is.
                view = flat.view(2, shape[1], shape[0] // 2).transpose(1, 2)
            dim, start, size = cuts[name]
            self._pieces.append(Piece(name, llama.shapes()[name], dim, start, size, view))
        self.step(0)

    def step(self, step: int) -> None:
        """Set the values of a step."""
        for piece in self._pieces:
            value = self.llama.value(piece.name, step=step)
            cut = value.narrow(piece.dim, piece.start, piece.size)
            piece.view.copy_(cut.reshape(piece.view.shape))

    def pieces(self) -> Iterator[Piece]:
        return iter(self._pieces)

    def weights(self) -> list[Tensor]:
        return [self.memory]

    def _has_expert(self, name: str, expert_rank: int) -> bool:
        each = max(self.llama.num_experts // self.layout.expert_parallel_size, 1)
        expert = expert_of(name)
        return expert is None or expert // each == expert_rank

    def _cut(self, name: str) -> tuple[int, int, int]:
        """Dimension, start and size of this rank's part."""
        rank, ranks = self.place.tensor, self.layout.tensor_parallel_size
        if expert_of(name) is not None:
            ranks = self.layout.expert_tensor_parallel_size
            rank %= ranks
        shape = self.llama.shapes()[name]
        if any(part in name for part in _HEADS):
            heads = self.llama.num_key_value_heads
            size = max(heads // ranks, 1) * HEAD_DIM
            return 0, rank * heads // ranks * HEAD_DIM, size
        for dim, names in ((0, _ROWS), (1, _COLUMNS)):
            if any(part in name for part in names):
                size = -(-shape[dim] // ranks)
                start = min(rank * size, shape[dim])
                return dim, start, min(size, shape[dim] - start)
        return 0, 0, shape[0]

    def _shape(self, name: str, dim: int, _: int, size: int) -> tuple[int, ...]:
        shape = list(self.llama.shapes()[name])
        shape[dim] = size
        return tuple(shape)
