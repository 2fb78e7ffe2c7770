"""Megatron's parameters and the Hugging Face tensors that lie in them: one map for all uses."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from automap.executor.engines.megatron.architecture import Architecture
from automap.executor.engines.training_engine import Head, Piece
from automap.executor.layout import RankLayout

_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"mlp\.experts\.local_experts\.(\d+)\.(.+)")
_REPLICATED = {
    "input_layernorm.weight": "input_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
}
_SPLIT_COLUMNS = {
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Consecutive rows of a Hugging Face tensor; without a name, rows that only pad."""

    name: str | None
    full_rows: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class _Split:
    """How ranks split a parameter."""

    kind: Literal["replicated", "columns", "vocabulary", "attention", "gated"]
    names: tuple[str, ...]
    """Hugging Face names of what is fused, in order."""
    ranks: int
    """Number of ranks that split the tensor: tensor ranks, or those of one expert."""
    width: int = 0
    """Width of a gated layer."""


@dataclass(frozen=True, slots=True)
class NameMap:
    """From Megatron's names to the tensors of a Hugging Face folder.

    Layers and experts of Megatron's names are counted over the whole model, so that a name means
    the same on every rank. Nothing here depends on the rank that asks.
    """

    architecture: Architecture
    head: Head
    layout: RankLayout

    def pieces(self, name: str, tensor: Tensor, *, tensor_rank: int) -> list[Piece]:
        """What the shard of parameter `name` on a tensor rank holds, each piece one slice of it.

        Raises:
            KeyError: the model has no such parameter.
        """
        split = self._split(name)
        if split.kind == "replicated":
            return [Piece(split.names[0], tuple(tensor.shape), 0, 0, len(tensor), tensor)]
        rank = tensor_rank % split.ranks
        if split.kind == "columns":
            height, width = tensor.shape
            full_shape = (height, width * split.ranks)
            return [Piece(split.names[0], full_shape, 1, rank * width, width, tensor)]
        pieces = []
        for offset, rows in _window(self._rows(split), rank * len(tensor), len(tensor)):
            if rows.name is not None:
                shape = (rows.full_rows, *tensor.shape[1:])
                view = tensor[offset : offset + rows.size]
                pieces.append(Piece(rows.name, shape, 0, rows.start, rows.size, view))
        return pieces

    def split_dimension(self, name: str) -> int | None:
        """Along which tensor ranks split a parameter; None if each holds the whole.

        Experts count as split also where each is whole, because ranks hold unlike ones.
        """
        kind = self._split(name).kind
        return None if kind == "replicated" else int(kind == "columns")

    def is_expert(self, name: str) -> bool:
        """Whether a parameter is of one expert."""
        return ".experts." in name

    def is_copy(self, name: str) -> bool:
        """Whether another parameter holds the same weights: the last stage's tied embedding."""
        return name == "output_layer.weight" and self.architecture.tied_embeddings

    def _split(self, name: str) -> _Split:
        match = _LAYER.fullmatch(name)
        if match is None:
            return self._split_end(name)
        layer, rest = f"model.layers.{match[1]}", match[2]
        ranks = self.layout.tensor_parallel_size
        if rest in _REPLICATED:
            return _Split("replicated", (f"{layer}.{_REPLICATED[rest]}",), ranks)
        if rest in _SPLIT_COLUMNS:
            return _Split("columns", (f"{layer}.{_SPLIT_COLUMNS[rest]}",), ranks)
        if rest == "mlp.linear_fc1.weight":
            gated = tuple(f"{layer}.mlp.{each}_proj.weight" for each in ("gate", "up"))
            return _Split("gated", gated, ranks, self.architecture.intermediate_size)
        module, _, kind = rest.rpartition(".")
        if module == "self_attention.linear_qkv":
            projections = tuple(f"{layer}.self_attn.{each}_proj.{kind}" for each in "qkv")
            return _Split("attention", projections, ranks)
        return self._split_experts(layer, rest)

    def _split_experts(self, layer: str, rest: str) -> _Split:
        is_mixtral = self.architecture.config.model_type == "mixtral"
        block = f"{layer}.block_sparse_moe" if is_mixtral else f"{layer}.mlp"
        if rest == "mlp.router.weight":
            return _Split("replicated", (f"{block}.gate.weight",), 1)
        match = _EXPERT.fullmatch(rest)
        if match is None:
            raise KeyError(f"no parameter {rest!r} in a layer")
        ranks = self.layout.expert_tensor_parallel_size
        gate, up, down = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
        expert = f"{block}.experts.{match[1]}"
        if match[2] == "linear_fc2.weight":
            return _Split("columns", (f"{expert}.{down}.weight",), ranks)
        gated = (f"{expert}.{gate}.weight", f"{expert}.{up}.weight")
        return _Split("gated", gated, ranks, self.architecture.expert_intermediate_size)

    def _split_end(self, name: str) -> _Split:
        ranks = self.layout.tensor_parallel_size
        embedding = "model.embed_tokens.weight"
        head = embedding if self.architecture.tied_embeddings else "lm_head.weight"
        ends = {
            "embedding.word_embeddings.weight": _Split("vocabulary", (embedding,), ranks),
            "decoder.final_layernorm.weight": _Split("replicated", ("model.norm.weight",), ranks),
        }
        if self.head == "scalar":
            ends["score.weight"] = _Split("replicated", ("score.weight",), ranks)
        else:
            ends["output_layer.weight"] = _Split("vocabulary", (head,), ranks)
        if name not in ends:
            raise KeyError(f"no parameter {name!r}")
        return ends[name]

    def _rows(self, split: _Split) -> Iterator[_Rows]:
        """The rows of all ranks' shards, one after the other."""
        if split.kind == "vocabulary":
            vocabulary = self.architecture.vocab_size
            padded = self.architecture.padded_vocab_size(split.ranks)
            yield _Rows(split.names[0], vocabulary, 0, vocabulary)
            yield _Rows(None, 0, 0, padded - vocabulary)
        elif split.kind == "gated":
            part = split.width // split.ranks
            for rank in range(split.ranks):
                for name in split.names:
                    yield _Rows(name, split.width, rank * part, part)
        else:
            # Megatron interleaves: the queries of a key-value head, then its key, its value.
            groups, head_dim = self.architecture.num_key_value_heads, self.architecture.head_dim
            queries = self.architecture.num_attention_heads // groups * head_dim
            for group in range(groups):
                for name, rows in zip(split.names, (queries, head_dim, head_dim), strict=True):
                    yield _Rows(name, rows * groups, rows * group, rows)


def _window(rows: Iterator[_Rows], start: int, count: int) -> Iterator[tuple[int, _Rows]]:
    """The `count` rows from `start` on: the place of each part in the window, and the part."""
    position = 0
    for each in rows:
        first = max(start, position)
        last = min(start + count, position + each.size)
        if first < last:
            inside = _Rows(each.name, each.full_rows, each.start + first - position, last - first)
            yield first - start, inside
        position += each.size
