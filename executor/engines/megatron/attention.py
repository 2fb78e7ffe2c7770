"""Attention over packed sequences, each seeing itself alone, for Megatron's layers."""

from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import pad, scaled_dot_product_attention


@dataclass
class Sequences(PackedSeqParams):
    """Where the sequences of a packed row lie, and on the host too: reading the device waits.

    The format is that of one long sequence, so that rotations come per token.
    """

    lengths: tuple[int, ...] = ()

    @classmethod
    def of(cls, lengths: tuple[int, ...], device: torch.device) -> "Sequences":
        """Sequences of these lengths, end to end."""
        ends = torch.tensor(lengths).cumsum(0)
        boundaries = pad(ends, (1, 0)).to(device, torch.int32)
        return cls(
            qkv_format="sbhd",
            cu_seqlens_q=boundaries,
            cu_seqlens_kv=boundaries,
            max_seqlen_q=max(lengths),
            max_seqlen_kv=max(lengths),
            lengths=lengths,
        )


class PackedAttention(nn.Module):
    """Causal attention within each sequence, without a [tokens, tokens] mask.

    On a GPU in 16 bits by the flash kernel for sequences of unlike length, else sequence by
    sequence. Transformer Engine's TEDotProductAttention fits in the same place.
    """

    def __init__(self, *, softmax_scale: float, **others: Any) -> None:
        super().__init__()
        self.softmax_scale = softmax_scale

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        packed_seq_params: Sequences,
        **others: Any,
    ) -> Tensor:
        """Queries [tokens, 1, heads, head_dim] to outputs [tokens, 1, heads · head_dim]."""
        query, key, value = query[:, 0], key[:, 0], value[:, 0]
        if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
            output: Any = varlen_attn(
                query,
                key,
                value,
                packed_seq_params.cu_seqlens_q,
                packed_seq_params.cu_seqlens_kv,
                packed_seq_params.max_seqlen_q,
                packed_seq_params.max_seqlen_kv,
                scale=self.softmax_scale,
                window_size=(-1, 0),
                enable_gqa=query.shape[1] != key.shape[1],
            )
        else:
            output = self._one_by_one(query, key, value, packed_seq_params.lengths)
        return output.reshape(len(output), 1, -1)

    def _one_by_one(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: tuple[int, ...]
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        outputs = []
        for one in zip(*(each.split(lengths) for each in (query, key, value)), strict=True):
            q, k, v = (each.transpose(0, 1)[None] for each in one)
            seen = scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.softmax_scale)
            outputs.append(seen[0].transpose(0, 1))
        return torch.cat(outputs)
