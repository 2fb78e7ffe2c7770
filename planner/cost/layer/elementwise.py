"""Bytes that the small kernels of a layer move: norms, residual sums, rotary, activation."""

from typing import NamedTuple

from automap.planner.cost import constants

FP32_BYTES = constants.PRECISION_BYTES["fp32"]


class Elementwise(NamedTuple):
    """Bytes that a layer's small kernels read and write per token."""

    hidden: float
    """Per element of the hidden state: two norms and two residual sums."""
    rotary: float
    """Per element of queries and keys."""
    activation: float
    """Per element of the activation's result."""
    kernels: float


def fused_elementwise(element: int, *, gated: bool) -> Elementwise:
    """Traffic of kernels that read their operands and write their result, once each.

    Two norms read and write h, two residual sums read 2h and write h; rotary reads and writes
    queries and keys; the activation reads what it makes (twice that when gated).
    """
    return Elementwise(10.0 * element, 2.0 * element, (3.0 if gated else 2.0) * element, 6.0)


def plain_elementwise(element: int, *, gated: bool, query_key_norm: bool = False) -> Elementwise:
    """Traffic of PyTorch's operations one by one, counted in Transformers' modeling_qwen2.py.

    An RMSNorm casts to fp32, squares, averages, scales, casts back, and multiplies with its weight
    (in 16 bits 6 + 8 + 4 + 8 + 6 + 4 bytes). Rotary: times cosine, the halves negated and put
    together, times sine, and the sum (2, 1, 2, 2, 3 elements). The activation, and its product.
    Where queries and keys have norms (modeling_qwen3.py), each is six such operations.
    """
    casts = 0 if element == FP32_BYTES else 2 * (element + FP32_BYTES)
    norm = casts + 5 * FP32_BYTES + 2 * element
    hidden = 2.0 * norm + 6.0 * element
    rotary, kernels = 10.0 * element, 26.0
    if query_key_norm:
        rotary, kernels = rotary + norm, kernels + 12.0
    return Elementwise(hidden, rotary, (5.0 if gated else 2.0) * element, kernels)
