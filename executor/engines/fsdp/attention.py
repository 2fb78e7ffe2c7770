"""Attention over packed sequences, each seeing itself alone, for transformers' models."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from automap.executor.engines.fsdp.context_parallel import ContextGroup

NAME = "packed"
"""Under which transformers finds it (attn_implementation)."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Where the sequences of a packed row lie."""

    lengths: list[int]
    boundaries: Tensor
    """[sequences + 1] int32: starts, and the end of the last."""
    context: ContextGroup
    """The ranks that share the row."""

    @classmethod
    def of(cls, lengths: Tensor, device: torch.device, context: ContextGroup) -> "Sequences":
        """From the lengths [sequences] of a packed row."""
        boundaries = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(device, torch.int32)
        return cls(lengths.tolist(), boundaries, context)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    sequences: Sequences,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sequence; the interface of transformers' attention functions.

    On a GPU in 16 bits by the flash kernel for sequences of unlike length, else sequence by
    sequence: no [tokens, tokens] mask either way. Dropout is not applied: log-probabilities must
    be the same in scoring and in training. Where ranks share the row, tokens are this rank's slice
    of it, and each rank attends over the whole row with its part of the heads.

    Args:
        module: the attention layer.
        query: [1, heads, tokens, head_dim].
        key: [1, key-value heads, tokens, head_dim].
        value: as key.
        attention_mask: None.
        sequences: where the sequences lie.
        scaling: of the scores; None: head_dim ** −0.5.
        sliding_window: tokens that a token sees, itself included; None: all before it.
        others: what models pass besides; refused where it changes the result.

    Returns:
        [1, tokens, heads, head_dim], and None for the attention weights.
    """
    for name in ("softcap", "s_aux"):
        if others.get(name) is not None:
            raise ValueError(f"packed attention has no {name}; the model needs it")
    heads = sequences.context.to_heads(query, key, value)
    output = _over_whole_row(*heads, sequences, scaling=scaling, window=sliding_window)
    return sequences.context.to_tokens(output), None


def _over_whole_row(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    *,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """[1, tokens, heads, head_dim] of the same tokens and heads as the queries."""
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        longest = max(sequences.lengths)
        output = varlen_attn(
            query[0].transpose(0, 1),
            key[0].transpose(0, 1),
            value[0].transpose(0, 1),
            sequences.boundaries,
            sequences.boundaries,
            longest,
            longest,
            scale=scaling,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        assert isinstance(output, Tensor)
        return output[None]
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    parts = zip(
        *(torch.split(each, sequences.lengths, dim=2) for each in (query, key, value)),
        strict=True,
    )
    outputs = [_attend(*part, scaling=scaling, window=window) for part in parts]
    return torch.cat(outputs, dim=2).transpose(1, 2)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, *, scaling: float | None, window: int | None
) -> Tensor:
    length = query.shape[2]
    if window is None or window >= length:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    seen = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    seen = seen.triu(1 - window)
    return scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling)


AttentionInterface.register(NAME, packed_attention)
